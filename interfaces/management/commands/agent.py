from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from interfaces.terminal.command import LinesCommand, choose_agent, json_option
from sessions_app.agents.edit import update_agent
from sessions_app.agents.mcp_servers import visible_servers
from sessions_app.connections.usable import model_warnings
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent
from sessions_app.spending.caps import budget_of, shown_caps

SHOWN = (
    *("name", "fallback_model", "model_settings", "timezone", "engine", "unified_session", "heartbeat"),
    *("routine_limit", "policy", "events_url", "allow_tools", "revision"),
)
OBJECTS = {"heartbeat", "policy", "model_settings"}


class Command(LinesCommand):
    help = "Show the settings of an agent as the API does, or change them. Prints one JSON object."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agent", metavar="NAME", help="NAME, or USER/NAME; default: the only one")
        parser.add_argument(
            "--set",
            metavar="JSON",
            help='what the API\'s PATCH takes, such as {"heartbeat": {"enabled": true}}',
        )

    def lines(self, options: dict[str, Any]) -> Iterator[str]:
        agent = choose_agent(options["agent"])
        if options["set"] is not None:
            agent = update_agent(agent.pk, _changes(options["set"]))
        yield json.dumps(_shown(agent), ensure_ascii=False, indent=2)


def _changes(text: str) -> dict[str, Any]:
    """The changes as `update_agent` takes them. BadInput."""
    found = json_option("set", text)
    if not isinstance(found, dict):
        raise BadInput("--set must be a JSON object")
    for name in OBJECTS & found.keys():
        if not isinstance(found[name], dict):
            raise BadInput(f"{name} must be an object", code=f"bad_{name}")
    return found


def _shown(agent: Agent) -> dict[str, Any]:
    warnings = model_warnings(agent)
    [limits] = shown_caps([budget_of("agent", agent.pk, agent.limits, zone=agent.timezone)])
    return {
        **{name: getattr(agent, name) for name in SHOWN},
        "model": agent.effective_model,
        "limits": limits,
        "mcp_servers": visible_servers(agent),
        "warnings": [*warnings.uncallable, *warnings.caps],
    }
