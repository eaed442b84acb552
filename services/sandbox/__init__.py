"""Runs other people's Python functions behind walls. Knows nothing of agents, databases or gRPC."""
