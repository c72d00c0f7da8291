"""The MCP server at `/mcp`: agents, conversations and appointments as tools of any MCP client."""
