"""The MCP servers of an agent. Their headers may hold secrets, so they are stored but never shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from agent_core.addresses import Reach
from agent_core.exceptions import BadServer
from agent_core.mcp.server import McpServer, read_server
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent

MOST_SERVERS = 8


def merge_servers(stored: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Merge a change into the stored servers: a server replaces the one of its name, null removes it. BadInput."""
    try:
        if not isinstance(given, Mapping):
            raise BadServer("mcp_servers must be an object whose keys are server names")
        after = dict(stored)
        for name, server in given.items():
            if server is None:
                after.pop(name, None)
                continue
            known = McpServer.from_json(name, stored[name]) if name in stored else None
            after[name] = read_server(str(name), server, known=known, reach=reach()).to_json()
        if len(after) > MOST_SERVERS:
            raise BadServer(f"{len(after)} MCP servers are too many; an agent has at most {MOST_SERVERS}")
    except BadServer as error:
        raise BadInput(str(error), code="bad_mcp_servers") from None
    return after


def visible_servers(agent: Agent) -> dict[str, Any]:
    """Return the servers as people see them. Sending them back unchanged changes nothing."""
    return {name: McpServer.from_json(name, data).shown() for name, data in sorted(agent.mcp_servers.items())}


def servers(agent: Agent) -> tuple[McpServer, ...]:
    """Return the servers that a turn of this agent may use."""
    if not settings.RONDO_MCP:
        return ()
    return tuple(McpServer.from_json(name, data) for name, data in sorted(agent.mcp_servers.items()))


def reach(user_id: int | None = None) -> Reach:
    """Return the addresses that a user's MCP servers may have."""
    hosts = frozenset(host.lower() for host in settings.RONDO_MCP_HOSTS)
    return Reach(hosts=hosts, user=str(user_id or ""))
