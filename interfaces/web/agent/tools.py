"""The section of an agent's page about tools: what it may use, and what asks first."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpRequest

from agent_core import tools
from agent_core.tool_spec import Effect
from interfaces.web.agent.servers import servers
from interfaces.web.pages import FormResult, given_revision
from sessions_app.agents.edit import update_agent
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
