"""The Bridle services and the process entry points that compose them."""
