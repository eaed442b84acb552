"""Tools that run elsewhere: services that implement ToolExecutor, and MCP servers."""
