"""Messages: the conversation log, and talking to agents."""
