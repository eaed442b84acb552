"""Agents, their tools, rules and memory as objects of the wire."""
