"""The gRPC edge: one adapter, one file per interceptor, server, health and client channel."""
