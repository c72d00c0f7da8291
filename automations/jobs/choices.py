"""What an automation may choose instead of its agent: models, length of a reply, tools, a gate (rules 11.6, 11.7).

They are checked with the agent, whose owner must be allowed to use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_core.connections import MOST_TOKENS
from automations.exceptions import BadJob
from automations.gates import registry
from automations.models import CronJob
from sessions_app import permits
from sessions_app.agents.edit import check_model, used_connections
from sessions_app.models import Agent

MODELS = ("model", "fallback_model")
CHOICES = (*MODELS, "max_output_tokens", "allow_tools", "gate")


def checked_choices(
    agent: Agent, given: Mapping[str, Any], job: CronJob | None = None, *, is_limited: bool = False
) -> dict[str, Any]:
    """Return the choices among the given values, as they are stored. BadJob, BadInput.

    A tool that `job` has already is accepted even if it is missing now. `is_limited`: models
    may name only connections that the agent uses already.
    """
    found = {name: given[name] for name in CHOICES if name in given}
    for name in MODELS:
        if found.get(name):
            check_model(name, agent, found[name], used_connections(agent) if is_limited else None)
    _check_length(found.get("max_output_tokens"))
    if found.get("allow_tools") is not None:
        stored = (job.allow_tools if job else None) or ()
        found["allow_tools"] = _tools(agent, found["allow_tools"], stored)
    if found.get("gate") is not None:
        found["gate"] = registry.checked(found["gate"])
    return found


def _check_length(value: Any) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (is_whole and 1 <= value <= MOST_TOKENS):
        text = f"max_output_tokens must be a whole number from 1 to {MOST_TOKENS:,}, or null"
        raise BadJob(text, code="bad_max_output_tokens")


def _tools(agent: Agent, given: Any, stored: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise BadJob("allow_tools must be a list of names of tools, or null", code="bad_allow_tools")
    return permits.check_allowed_tools(given, stored, agent.mcp_servers)


def choices_of(job: CronJob) -> dict[str, Any]:
    """The choices of a job that are not its agent's."""
    return {name: value for name in CHOICES if (value := getattr(job, name)) not in ("", None)}


def turn_choices(job: CronJob) -> dict[str, Any]:
    """The choices of a job as the input of its turns, so that later changes concern later slots only."""
    return {
        "model": job.model,
        "fallback_model": job.fallback_model,
        "max_output_tokens": job.max_output_tokens,
        "allow_tools": None if job.allow_tools is None else tuple(job.allow_tools),
        "gate": job.gate,
    }
