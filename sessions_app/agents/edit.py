"""Create and change agents. A change takes effect with the next turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any, Protocol

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef

from agent_core.connections import EFFORTS, LARGEST_TEMPERATURE, MOST_TOKENS, prefix_of
from agent_core.exceptions import PolicyError
from sessions_app import permits
from sessions_app.agents import mcp_servers as mcp_settings
from sessions_app.agents.zones import set_first_zone, zone_of, zone_problem
from sessions_app.channels.webhook import check_setting
from sessions_app.connections.usable import refusal
from sessions_app.events import announce_change
from sessions_app.exceptions import AgentExists, BadInput, NotFound, RevisionConflict
from sessions_app.limits import quotas
from sessions_app.limits.policies import check_policy
from sessions_app.mailbox.deposit import moving_undrained
from sessions_app.models import PRIMARY_KEY, Agent, Engine, Session, SessionType, Turn
from sessions_app.models.agent import DEFAULT_ZONE, heartbeat_defaults
from sessions_app.postgres.rows import existing
from sessions_app.spending import accounts
from sessions_app.spending.caps import merge_caps


class AgentDependent(Protocol):
    """Something that is created and changed with an agent. Each method is called in the transaction of the change."""

    def made(self, agent: Agent) -> None:
        """The agent was created."""

    def lock(self, agent_id: int) -> None:
        """Lock the rows that a change of the agent concerns. It is called before the agent's own row is locked."""

    def heartbeat_changed(self, agent: Agent) -> None:
        """The agent's heartbeat settings were changed, after `lock`."""

    def zone_changed(self, agent: Agent, before: str) -> None:
        """The agent's time zone was changed, after `lock`; `before` is the old one."""

    def is_used(self, agent_id: int) -> bool:
        """Whether the agent has such a thing that the server did not make with it."""


_dependents: list[AgentDependent] = []


def register_agent_dependent(dependent: AgentDependent) -> None:
    """Register something that belongs to agents."""
    _dependents.append(dependent)


def lock_dependents(agent_id: int) -> None:
    """Lock the rows of every dependent that a change of the agent concerns."""
    for dependent in _dependents:
        dependent.lock(agent_id)


MOST_ROUTINES = 1_000
LONGEST_MODEL = 200  # characters
LONGEST_INTERVAL = 7 * 86_400  # seconds between two heartbeats
LONGEST_ACKNOWLEDGEMENT = 10_000  # characters
_NAME = re.compile(r"\w[\w .-]{0,63}")


def new_agent(owner: AbstractBaseUser, name: str, given: Mapping[str, Any]) -> Agent:
    """Create an agent with its primary session; `given` as for `update_agent`. AgentExists, BadInput,
    TooManyAgents.
    """
    if not _NAME.fullmatch(name) or name != name.strip():
        raise BadInput(
            f"bad name {name[:64]!r}: use 1 to 64 letters, digits, spaces, dots, dashes and underscores; begin with a"
            " letter or digit",
            code="bad_name",
        )
    return create_agent(
        owner, name, **_columns(given, Agent(owner_id=int(owner.pk), heartbeat=heartbeat_defaults()))
    )


def update_agent(
    agent_id: int, changes: Mapping[str, Any], *, revision: int | None = None, is_limited: bool = False
) -> Agent:
    """Change settings. Objects are merged; null removes a key, except from `heartbeat`.

    `is_limited`: models may name only connections that the agent uses already.
    BadInput, NotFound; RevisionConflict if `revision` is not the agent's.
    """
    with transaction.atomic():
        if changes.keys() & {"timezone", "heartbeat"}:
            lock_dependents(agent_id)
        agent = existing(Agent.objects.select_for_update(no_key=True).filter(pk=agent_id), revision=revision)
        zone, heartbeat = agent.timezone, agent.heartbeat
        columns = _columns(changes, agent, used_connections(agent) if is_limited else None)
        toggled = columns.get("unified_session", agent.unified_session) != agent.unified_session
        changed = {name for name, value in columns.items() if value != getattr(agent, name)}
        for name, value in columns.items():
            setattr(agent, name, value)
        agent.revision += 1
        with moving_undrained(agent_id) if toggled else nullcontext():
            agent.save(update_fields=[*columns, "revision", "updated_at"])
        if toggled:
            announce_change()
        _notify_dependents(agent, zone, heartbeat)
        if changed & _OF_CALLS:
            accounts.forget_stopped(Agent.objects.filter(pk=agent_id))
        if "limits" in changed:
            accounts.tell_anew("agent", agent_id)
    return agent


def take_zone(user_id: int, name: str) -> None:
    """Keep the zone of a user who has none, and give it to their agents in UTC that nobody has used. BadInput."""
    if not (zone := set_first_zone(user_id, name)):
        return
    said = Turn.objects.filter(session__agent=OuterRef("pk"))
    unused = Agent.objects.filter(~Exists(said), owner_id=user_id, timezone=DEFAULT_ZONE)
    for agent in unused.exclude(timezone=zone):
        if not any(each.is_used(agent.pk) for each in _dependents):
            with suppress(NotFound, RevisionConflict):  # somebody was faster
                update_agent(agent.pk, {"timezone": zone}, revision=agent.revision)


def _notify_dependents(agent: Agent, zone: str, heartbeat: dict[str, Any]) -> None:
    """Report a changed time zone or heartbeat; `zone` and `heartbeat` are the values before."""
    for dependent in _dependents:
        if agent.timezone != zone:
            dependent.zone_changed(agent, zone)
        if agent.heartbeat != heartbeat:
            dependent.heartbeat_changed(agent)


def _columns(given: Mapping[str, Any], agent: Agent, reached: frozenset[str] | None = None) -> dict[str, Any]:
    """Return the columns of the given settings, checked; objects are merged into the agent's. BadInput."""
    columns: dict[str, Any] = {}
    for name, value in given.items():
        if name in _MODELS:
            columns[name] = check_model(name, agent, value, reached)
        elif name in _MERGED:
            columns[name] = _MERGED[name](agent, value)
        elif name not in _CHECKS:
            raise BadInput(f"the setting {name[:60]!r} cannot be changed", code="not_editable")
        elif problem := _CHECKS[name](value):
            code = "unknown_timezone" if name == "timezone" else f"bad_{name}"
            raise BadInput(problem, code=code)
        else:
            columns[name] = value
    if "allow_tools" in given:
        servers = columns.get("mcp_servers", agent.mcp_servers)  # the same change may add servers
        columns["allow_tools"] = permits.check_allowed_tools(given["allow_tools"], agent.allow_tools, servers)
    return columns


def _policy(merged: dict[str, Any]) -> dict[str, Any]:
    policy = {key: value for key, value in merged.items() if value is not None}
    try:
        check_policy(policy)
    except PolicyError as error:
        raise BadInput(str(error), code="bad_policy") from error
    return policy


def _heartbeat(merged: dict[str, Any]) -> dict[str, Any]:
    problem = next((text for key, value in merged.items() if (text := _heartbeat_problem(key, value))), "")
    if problem:
        raise BadInput(problem, code="bad_heartbeat")
    return merged


def _heartbeat_problem(key: str, value: Any) -> str:
    if key == "enabled":
        return "" if isinstance(value, bool) else "heartbeat.enabled must be true or false"
    if key == "interval_seconds":
        return _within("heartbeat.interval_seconds", 1, LONGEST_INTERVAL)(value)
    if key == "ack_max_chars":
        return _within("heartbeat.ack_max_chars", 0, LONGEST_ACKNOWLEDGEMENT)(value)
    if key != "active_hours":
        return f"heartbeat has no setting {key[:60]!r}"
    hour = _within("hour", 0, 24)
    if not isinstance(value, list) or len(value) != 2 or any(hour(each) for each in value):
        return "heartbeat.active_hours must be two hours from 0 to 24"
    if value[0] % 24 == value[1] % 24 and value != [0, 24]:
        return "the two hours of heartbeat.active_hours must differ; use [0, 24] for the whole day"
    return ""


def _within(name: str, least: int, most: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            return f"{name} must be a whole number from {least} to {most}"
        return ""

    return check


def used_connections(agent: Agent) -> frozenset[str]:
    """The connections that the agent's models name: the only ones that a limited request reaches."""
    return frozenset(prefix_of(each) for each in (agent.effective_model, agent.fallback_model))


def check_model(name: str, agent: Agent, value: Any, reached: frozenset[str] | None) -> str:
    """Check a model that the agent's owner may use; empty: the server's, or no fallback. BadInput."""
    if not isinstance(value, str) or len(value) > LONGEST_MODEL:
        raise BadInput(f"{name} must be a text of at most {LONGEST_MODEL} characters", code=f"bad_{name}")
    if value and (why := refusal(agent.owner_id, value, reached)):
        raise BadInput(f"{name} {value[:100]!r} cannot be used: {why}", code=f"bad_{name}")
    return value


def _model_settings(merged: dict[str, Any]) -> dict[str, Any]:
    settings = {key: value for key, value in merged.items() if value is not None}
    problem = next((text for key, value in settings.items() if (text := _setting_problem(key, value))), "")
    if problem:
        raise BadInput(f"model_settings.{problem}", code="bad_model_settings")
    return settings


def _setting_problem(key: str, value: Any) -> str:
    if key == "temperature":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        good = is_number and 0 <= value <= LARGEST_TEMPERATURE
        return "" if good else f"temperature must be a number from 0 to {LARGEST_TEMPERATURE:g}"
    if key == "max_tokens":
        return _within("max_tokens", 1, MOST_TOKENS)(value)
    if key == "reasoning":
        good = isinstance(value, str) and value in EFFORTS
        return "" if good else f"reasoning must be one of {', '.join(EFFORTS)}"
    if key == "images":
        return "" if isinstance(value, bool) else "images must be true or false"
    return f"{key[:60]!r} is not known; known: temperature, max_tokens, reasoning, images"


def _events_url_problem(value: Any) -> str:
    if not isinstance(value, str):
        return "events_url must be a text"
    try:
        check_setting("events_url", value)
    except BadInput as error:
        return str(error)
    return ""


_MODELS = {"model", "fallback_model"}
# what decides whether a call fits into a cap
_OF_CALLS = {*_MODELS, "model_settings", "engine", "limits", "timezone", "mcp_servers", "allow_tools"}
# settings whose new value depends on the agent
_MERGED: dict[str, Callable[[Agent, Any], Any]] = {
    "heartbeat": lambda agent, value: _heartbeat(agent.heartbeat | dict(value)),
    "policy": lambda agent, value: _policy(agent.policy | dict(value)),
    "model_settings": lambda agent, value: _model_settings(agent.model_settings | dict(value)),
    "limits": lambda agent, value: merge_caps(agent.limits, value),
    "mcp_servers": lambda agent, value: mcp_settings.merge_servers(agent.mcp_servers, value),
    "allow_tools": lambda _agent, value: value,
}
_CHECKS: dict[str, Callable[[Any], str]] = {
    "timezone": zone_problem,
    "engine": lambda value: (
        "" if value in Engine.values else f"engine must be one of {', '.join(Engine.values)}"
    ),
    "unified_session": lambda value: (
        "" if isinstance(value, bool) else "unified_session must be true or false"
    ),
    "routine_limit": _within("routine_limit", 0, MOST_ROUTINES),
    "events_url": _events_url_problem,
}


def create_agent(owner: AbstractBaseUser, name: str, **fields: Any) -> Agent:
    """Create an agent with its primary session; `fields` are its columns. Without a time zone it has its owner's.

    AgentExists, BadInput, TooManyAgents.
    """
    if "timezone" not in fields and (zone := zone_of(int(owner.pk))):
        fields["timezone"] = zone
    agent = Agent(owner=owner, name=name, **fields)  # type: ignore[misc]
    try:
        agent.clean_fields()
    except ValidationError as error:
        raise BadInput("; ".join(error.messages)) from error
    try:
        with transaction.atomic():
            quotas.check_agents(agent.owner_id)
            agent.save(force_insert=True)
            Session.objects.create(
                agent=agent,
                owner_id=agent.owner_id,
                key=PRIMARY_KEY,
                type=SessionType.PRIMARY,
                title="Primary",
                title_given=True,
            )
            for dependent in _dependents:
                dependent.made(agent)
    except IntegrityError as error:
        raise AgentExists(f"you already have an agent named {name!r}") from error
    return agent
