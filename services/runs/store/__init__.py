"""Runs in the database: plain functions over a connection, composed by their callers into one transaction each.

Locks are always taken in the order conversation, run, approval, so that no two transactions can wait for each other.
"""
