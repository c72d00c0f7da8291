"""Agents: settings, documents and MCP servers."""
