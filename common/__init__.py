"""Shared foundations: ids, errors, clock, settings, database, RPC plumbing and generated protobuf code."""
