"""The section of an agent's page about tools: what it may use, what asks first, its MCP servers."""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from agent_core import tools
from agent_core.mcp.offer import LIST_SECONDS, offer_tools
from agent_core.tool_spec import Effect
from agent_core.tools import SEPARATOR
from interfaces.web.pages import FormResult, given_revision, person
from sessions_app.agents import mcp_servers
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import NotFound, TooSoon
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import Agent
from sessions_app.single_line import one_line

LONGEST_LINE = 300  # characters of a tool's description
LONGEST_FIELD = 5_000  # characters of the names of servers' tools
MOST_NAMED = 12  # tools of a server that the result of a test names
TESTS = Rate(limit=6, seconds=60)  # of connections, for each person
RIGHTS = {
    Effect.READ: "Only reads",
    Effect.WRITE: "Writes",
    Effect.DANGEROUS: "Asks you first",
}
SOMETIMES = "Some calls ask first"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


def change_allowed(request: HttpRequest, agent: Agent) -> None:
    """Change which tools the agent may use without asking."""
    update_agent(agent.pk, {"allow_tools": _ticked(request)}, revision=given_revision(request))


def _ticked(request: HttpRequest) -> list[str]:
    others = request.POST.get("others", "")[:LONGEST_FIELD].replace(",", " ").split()
    return [*request.POST.getlist("tool"), *others]


def change_own(request: HttpRequest, agent: Agent) -> None:
    """Say whether an MCP server's answers are the owner's own data."""
    name = request.POST.get("server", "")
    shown = mcp_servers.visible_servers(agent).get(name)
    if shown is None:
        raise NotFound("there is no such server")
    server = shown | {"own": request.POST.get("own") == "yes"}
    update_agent(agent.pk, {"mcp_servers": {name: server}}, revision=agent.revision)


def try_server(request: HttpRequest, agent: Agent) -> dict[str, Any]:
    """Connect to an MCP server and list its tools, within LIST_SECONDS. TooSoon."""
    server = request.POST.get("server", "")
    chosen = [each for each in mcp_servers.servers(agent) if each.name == server]
    if not chosen:
        raise NotFound("there is no such server")
    if wait := take_allowance(f"test-mcp:{person(request).pk}", TESTS):
        raise TooSoon(f"Too many tests; try again in {wait:.0f} seconds.")
    offered = offer_tools(chosen, mcp_servers.reach(agent.owner_id), LIST_SECONDS)
    names = [tool.name.partition(SEPARATOR)[2] for tool in offered.tools]
    return {
        "server": server,
        "problem": offered.missing[0].reason if offered.missing else "",
        "count": len(names),
        "left_out": offered.left_out[:MOST_NAMED],
        "more_left_out": max(0, len(offered.left_out) - MOST_NAMED),
        "names": ", ".join(names[:MOST_NAMED]) + (" and more" if len(names) > MOST_NAMED else ""),
    }


def allowed_tools(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """All tools with their rights, and the MCP servers."""
    allowed = set(agent.allow_tools if outcome.typed is None else _ticked(request))
    known = {tool.name for tool in tools.all()}
    found = outcome.found
    return {
        "tools": [
            {
                "name": tool.name,
                "line": one_line(_SENTENCE_END.split(tool.description.strip(), 1)[0], LONGEST_LINE),
                "right": SOMETIMES if tool.effect_of else RIGHTS[tool.effect],
                "is_free": tool.effect is Effect.READ,
                "is_allowed": tool.name in allowed,
            }
            for tool in tools.all()
        ],
        "others": ", ".join(sorted(allowed - known)),
        "servers": [
            {"name": name, "found": found if found.get("server") == name else None, **about}
            for name, about in mcp_servers.visible_servers(agent).items()
        ],
        "connects": settings.RONDO_MCP,
    }
