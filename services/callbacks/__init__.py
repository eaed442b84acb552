"""Tells others of each stop of a run: written with the stop, sent from the outbox until it is taken."""
