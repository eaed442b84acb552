"""Metrics and the names they go by."""
