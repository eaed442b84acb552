"""Conversations: threads of messages with an agent."""
