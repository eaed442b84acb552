"""What the model is told of a Python function, read from its syntax tree. The code is never imported or run."""
