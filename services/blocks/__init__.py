"""Memory blocks: labelled pieces of the system prompt, which agents can share and edit."""
