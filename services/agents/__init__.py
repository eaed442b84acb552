"""Agents: what they are, not what they do."""
