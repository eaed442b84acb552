"""Protobuf at the edge of the services: well-known types, field masks and checks of single values."""
