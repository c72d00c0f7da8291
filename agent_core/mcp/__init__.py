"""Tools of MCP servers: what a server lists, how it is called, which of it an agent is offered."""
