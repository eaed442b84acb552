"""The HTTP gateway: a thin edge that imports only `common`."""
