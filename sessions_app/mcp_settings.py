"""The MCP servers of an agent: how they are changed, shown and read. Their headers go in and never come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from agent_core.addresses import Reach
from agent_core.exceptions import BadServer
from agent_core.mcp_server import McpServer, read_server
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent

MOST_SERVERS = 8


def changed(stored: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """What is stored after a change: servers by name, each given whole, null removes one. BadInput."""
    try:
        if not isinstance(given, Mapping):
            raise BadServer("mcp_servers must be an object of servers by name")
        after = dict(stored)
        for name, server in given.items():
            if server is None:
                after.pop(name, None)
                continue
            known = McpServer.from_json(name, stored[name]) if name in stored else None
            after[name] = read_server(str(name), server, known=known, reach=reach()).to_json()
        if len(after) > MOST_SERVERS:
            raise BadServer(f"an agent has at most {MOST_SERVERS} MCP servers")
    except BadServer as error:
        raise BadInput(str(error), code="bad_mcp_servers") from None
    return after


def shown(agent: Agent) -> dict[str, Any]:
    """The servers as people see them; sent back as they are, they change nothing."""
    return {name: McpServer.from_json(name, data).shown() for name, data in sorted(agent.mcp_servers.items())}


def servers(agent: Agent) -> tuple[McpServer, ...]:
    """The servers that a turn of this agent may use."""
    if not settings.RONDO_MCP:
        return ()
    return tuple(McpServer.from_json(name, data) for name, data in sorted(agent.mcp_servers.items()))


def reach() -> Reach:
    """Where servers may be."""
    return Reach(hosts=frozenset(host.lower() for host in settings.RONDO_MCP_HOSTS))
