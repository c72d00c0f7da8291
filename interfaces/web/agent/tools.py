"""The section of an agent's page about tools: what it may use, what asks first, and its MCP servers.

Values of the servers' headers are never shown.
"""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from agent_core import tools
from agent_core.mcp.offer import LIST_SECONDS, offer_tools
from agent_core.mcp.server import HIDDEN
from agent_core.tool_spec import Effect
from agent_core.tools import SEPARATOR
from interfaces.web.pages import FormResult, given_revision, person
from sessions_app.agents import mcp_servers
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import BadInput, NotFound, TooSoon
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import Agent
from sessions_app.single_line import one_line

LONGEST_LINE = 300  # characters of a tool's description
LONGEST_FIELD = 5_000  # characters of the names of servers' tools
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


def allowed_tools(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """All tools with their rights, and the MCP servers."""
    is_refused = "others" in (outcome.typed or {})  # else another form of this section may be
    allowed = set(_ticked(request) if is_refused else agent.allow_tools)
    known = {tool.name for tool in tools.all()}
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
        **servers(agent, outcome),
    }


MOST_NAMED = 12  # tools of a server that the result of a test names
TESTS = Rate(limit=6, seconds=60)  # of connections, for each person
SHOWN = ("server", "url", "trusted", "own")  # fields of a form that are shown again; headers are not


def add_server(request: HttpRequest, agent: Agent) -> None:
    """Add an MCP server. BadInput."""
    name = request.POST.get("server", "").strip()
    if name in agent.mcp_servers:
        raise BadInput(f"there is already an MCP server named {name!r}", code="bad_mcp_servers")
    _store(agent, name, _typed(request))


def change_server(request: HttpRequest, agent: Agent) -> None:
    """Change an MCP server. Values that are sent back hidden are kept. BadInput, NotFound."""
    _store(agent, _named(request, agent), _typed(request))


def delete_server(request: HttpRequest, agent: Agent) -> None:
    """Delete an MCP server with its secrets. NotFound."""
    _store(agent, _named(request, agent), None)


def _named(request: HttpRequest, agent: Agent) -> str:
    name = request.POST.get("server", "")
    if name not in agent.mcp_servers:
        raise NotFound("there is no such server")
    return name


def _store(agent: Agent, name: str, server: dict[str, Any] | None) -> None:
    update_agent(agent.pk, {"mcp_servers": {name: server}}, revision=agent.revision)


def _typed(request: HttpRequest) -> dict[str, Any]:
    """The settings of a server as the API takes them. BadInput."""
    return {
        "url": request.POST.get("url", "").strip(),
        "headers": _headers(request.POST.get("headers", "")),
        "trusted": request.POST.get("trusted") == "yes",
        "own": request.POST.get("own") == "yes",
    }


def _headers(text: str) -> dict[str, str]:
    """The headers of lines such as `Authorization: Bearer TOKEN`. BadInput, which repeats no secret."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if line.strip() and not colon:
            raise BadInput(f"line {number} of the headers must be a name, a colon and a value")
        if colon:
            found[name.strip()] = value.strip()
    return found


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


def servers(agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The servers, of which one may have a form that was refused or the result of a test."""
    typed = outcome.typed or {}
    refused = {name: typed.get(name, "") for name in SHOWN} if "url" in typed else {}
    visible, found = mcp_servers.visible_servers(agent), outcome.found
    is_adding = bool(refused) and "new" in typed
    changed = "" if is_adding else refused.get("server", "")
    return {
        "servers": [
            {
                "name": name,
                "about": about,
                "headers": "\n".join(f"{header}: {value}" for header, value in about["headers"].items()),
                "form": refused if name == changed else about,
                "is_open": name == changed,
                "found": found if found.get("server") == name else None,
            }
            for name, about in visible.items()
        ],
        "new_server": refused if is_adding else {},
        "is_adding": is_adding,
        "hidden": HIDDEN,
        "connects": settings.RONDO_MCP,
    }
