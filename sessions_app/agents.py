"""Making and changing agents and their documents. An edit is live with the next turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zoneinfo import available_timezones

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from agent_core.exceptions import PolicyError
from agent_core.policy import TurnPolicy
from sessions_app import belongings, documents, mcp_settings
from sessions_app.documents import Taken
from sessions_app.events import announce_change
from sessions_app.exceptions import BadInput, NotFound, RevisionConflict
from sessions_app.models import Agent, Document, Engine
from sessions_app.models.agent import heartbeat_defaults
from sessions_app.open import create_agent
from sessions_app.patience import through_deadlocks

LONGEST_DOCUMENT = 200_000  # characters
LONGEST_LISTING = 5_000_000  # of one that lists more than text
MOST_ROUTINES = 1_000
LONGEST_INTERVAL = 7 * 86_400  # seconds between two heartbeats
LONGEST_ACKNOWLEDGEMENT = 10_000  # characters
_NAME = re.compile(r"\w[\w .-]{0,63}")
_MODEL = re.compile(r"offline|[a-z0-9][a-z0-9_-]*:\S+")
_NO_ZONES = {"Factory", "localtime"}  # files of the zone folder that are no zones


def new_agent(owner: AbstractBaseUser, name: str, given: Mapping[str, Any]) -> Agent:
    """Make an agent with its primary session; `given` as `update_agent` takes it. AgentExists, BadInput."""
    if not _NAME.fullmatch(name) or name != name.strip():
        raise BadInput(
            "a name has 1 to 64 letters, digits, spaces, dots, dashes and underscores, and begins with a letter"
            " or digit",
            code="bad_name",
        )
    return create_agent(owner, name, **_columns(given, Agent(heartbeat=heartbeat_defaults())))


def update_agent(agent_id: int, changes: Mapping[str, Any], *, revision: int | None = None) -> Agent:
    """Change named settings; `heartbeat`, `policy` and `mcp_servers` are merged, null removes a key of the last two.

    BadInput, NotFound; RevisionConflict when `revision` is not the agent's.
    """
    with transaction.atomic():
        if changes.keys() & {"timezone", "heartbeat"}:
            belongings.lock(agent_id)
        agent = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()
        if agent is None:
            raise NotFound("there is no such agent")
        zone, heartbeat = agent.timezone, agent.heartbeat
        if revision is not None and revision != agent.revision:
            raise RevisionConflict
        columns = _columns(changes, agent)
        toggled = columns.get("unified_session", agent.unified_session) != agent.unified_session
        for name, value in columns.items():
            setattr(agent, name, value)
        agent.revision += 1
        agent.save(update_fields=[*columns, "revision", "updated_at"])
        if toggled:
            announce_change()
        if agent.timezone != zone:
            belongings.zone_changed(agent, zone)
        if agent.heartbeat != heartbeat:
            belongings.heartbeat_changed(agent)
    return agent


def put_document(agent_id: int, name: str, content: str, *, revision: int | None = None) -> Document:
    """Write a document whole; revision 0 is the one that was never written.

    BadInput, NotFound, RevisionConflict, and what stands behind the document may refuse it.
    """
    return write_document(agent_id, name, content, revision=revision).document


@dataclass(frozen=True, kw_only=True)
class Written:
    """A document that was written; `taken`: what it came to, of one that is more than text."""

    document: Document
    taken: Taken | None


def write_document(
    agent_id: int, name: str, content: str, *, revision: int | None = None, basis: str | None = None
) -> Written:
    """`put_document` with what came of it. `basis`: what its writer has seen, of one that is more than text."""
    if _too_long(name, content):
        raise BadInput(f"the document is longer than {LONGEST_DOCUMENT} characters", code="document_too_long")
    if "\x00" in content:
        raise BadInput("the document holds a NUL character", code="bad_document")
    try:
        return through_deadlocks(lambda: _write(agent_id, name, content, revision, basis))
    except IntegrityError:
        if not Agent.objects.filter(pk=agent_id).exists():
            raise NotFound("there is no such agent") from None
        raise RevisionConflict from None  # somebody else wrote the first one just now


def _too_long(name: str, content: str) -> bool:
    """What can be read can be written: of a document that lists more than text only its own words are counted."""
    meaning = documents.meaning_of(name)
    if len(content) <= LONGEST_DOCUMENT or len(content) > LONGEST_LISTING or meaning is None:
        return len(content) > LONGEST_DOCUMENT
    return meaning.written(content) > LONGEST_DOCUMENT


@transaction.atomic
def _write(agent_id: int, name: str, content: str, revision: int | None, basis: str | None) -> Written:
    meaning = documents.meaning_of(name)
    if meaning is not None:
        meaning.lock(agent_id)
    rows = Document.objects.select_for_update(no_key=True)
    document = rows.filter(agent_id=agent_id, name=name).first()
    document = document or Document(agent_id=agent_id, name=name, revision=0)
    if revision is not None and revision != document.revision:
        raise RevisionConflict
    taken = None
    if meaning is not None:
        if basis is not None and basis != meaning.shown(document).basis:
            raise RevisionConflict
        taken = meaning.take(document, content)
        content = taken.content
    document.content, document.revision = content, document.revision + 1
    document.save()
    return Written(document=document, taken=taken)


def _columns(given: Mapping[str, Any], agent: Agent) -> dict[str, Any]:
    """The plain settings, each checked; the merged ones laid over what the agent has. BadInput."""
    columns: dict[str, Any] = {}
    for name, value in given.items():
        if name == "heartbeat":
            columns[name] = _heartbeat(agent.heartbeat | dict(value))
        elif name == "policy":
            columns[name] = _policy(agent.policy | dict(value))
        elif name == "mcp_servers":
            columns[name] = mcp_settings.changed(agent.mcp_servers, value)
        elif name not in _CHECKS:
            raise BadInput(f"{name!r} cannot be changed", code="not_editable")
        elif problem := _CHECKS[name](value):
            code = "unknown_timezone" if name == "timezone" else f"bad_{name}"
            raise BadInput(problem, code=code)
        else:
            columns[name] = value
    return columns


def _policy(merged: dict[str, Any]) -> dict[str, Any]:
    policy = {key: value for key, value in merged.items() if value is not None}
    try:
        TurnPolicy().merged(policy)
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
        return "heartbeat.active_hours must differ; [0, 24] is the whole day"
    return ""


def _within(name: str, least: int, most: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            return f"{name} must be a whole number from {least} to {most}"
        return ""

    return check


def _model(value: Any) -> str:
    if value == "":
        return ""  # the server's
    if isinstance(value, str) and len(value) <= 200 and "\x00" not in value and _MODEL.fullmatch(value):
        return ""
    return (
        "model must be `offline` or `provider:name`, such as `openai-chat:gpt-5`, of at most 200 characters"
    )


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones() - _NO_ZONES)


_CHECKS: dict[str, Callable[[Any], str]] = {
    "model": _model,
    "timezone": lambda value: "" if value in _zones() else f"there is no time zone {str(value)[:64]!r}",
    "engine": lambda value: (
        "" if value in Engine.values else f"engine must be one of {', '.join(Engine.values)}"
    ),
    "unified_session": lambda value: (
        "" if isinstance(value, bool) else "unified_session must be true or false"
    ),
    "routine_limit": _within("routine_limit", 0, MOST_ROUTINES),
}
