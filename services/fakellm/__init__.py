"""A fake LLM provider: a real HTTP server that speaks like OpenAI and Anthropic and does what it is told."""
