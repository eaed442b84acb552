"""The run engine: a pure machine, an actor per live run, a supervisor, and the event log that everything reads."""
