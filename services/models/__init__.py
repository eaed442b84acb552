"""LLM providers behind one interface: `stream(request) -> events`."""
