"""What runs outside of the server: the zygote, its guards and the workers. Standard library only."""
