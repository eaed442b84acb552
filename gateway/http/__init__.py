"""HTTP itself: requests in, answers out, and what is common to every endpoint."""
