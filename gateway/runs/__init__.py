"""Runs as the wire has them: started by messages, followed, listed."""
