"""Chat completions as the `openai` SDK speaks them, with an agent as the model."""
