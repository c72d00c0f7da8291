"""The agent's tools for its routines: in people's conversations and in heartbeats (rules 6.4, 6.5, 5.6).

Offered nowhere else, and refused where they are called all the same: what runs by schedule must not make more of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from automations.exceptions import BadJob, DuplicateRoutine, RoutineNotFound, TooManyRoutines
from automations.heartbeat_apply import mend
from automations.intents import register_intent
from automations.models import CronJob, Source
from automations.routine_reads import Routine, routine_of, shown_routines
from automations.routine_schedule import written
from automations.routines import EDITABLE, NewRoutine, add_routine, remove_routine, update_routine
from automations.told import tell_of_first
from automations.zone_files import zone_or_utc
from sessions_app import flags
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.models import SessionType, TurnKind
from sessions_app.tools import ToolContext

log = structlog.get_logger(__name__)

PEOPLES = (SessionType.PRIMARY, SessionType.SUB)
MOST_SHOWN = 100  # routines of one list
FIELDS: dict[str, dict[str, Any]] = {
    "title": {"type": "string", "description": "a short title"},
    "description": {"type": "string", "description": "what is to be done, with all that is needed to do it"},
    "instructions": {
        "type": "string",
        "description": "standing instructions of its own: how it is to be done, in which language or form",
    },
    "schedule": {
        "type": "string",
        "description": "an interval such as '30m', '1h', '2d', or five cron fields such as '0 9 * * *'",
    },
    "next_run_at": {
        "type": "string",
        "description": "ISO time of the first run; without a schedule of the only one. Without offset: in the zone",
    },
    "execution_mode": {
        "type": "string",
        "enum": ["inline", "isolated"],
        "description": "inline: light, within a heartbeat; isolated: by itself, with tools and several steps",
    },
    "timezone": {"type": "string", "description": "an IANA zone; default: the agent's"},
    "timeout_seconds": {"type": "integer", "description": "how long one run may take"},
    "task_type": {
        "type": "string",
        "enum": ["", "time_reminder"],
        "description": "time_reminder: only tells the time",
    },
}
ADDED = {
    "allow_duplicate": {
        "type": "boolean",
        "description": "add it although one of the same title and schedule is there",
    },
    "memory_line": {
        "type": "integer",
        "description": "the line of MEMORY.md, marked [to be registered], which this routine is for",
    },
    "memory_revision": {"type": "integer", "description": "with memory_line: the revision of MEMORY.md"},
}
ROUTINE_ID = {"routine_id": {"type": "string", "description": "the id that list_routines shows"}}
Action = Callable[[ToolContext, dict[str, Any]], str]


def offered(context: ToolContext) -> bool:
    """In people's conversations and in heartbeats."""
    return _refusal(context) is None


def _offered_to_add(context: ToolContext) -> bool:
    return offered(context) and not _may_not_reflect(context)


def _may_not_reflect(context: ToolContext) -> bool:
    return context.turn.kind == TurnKind.HEARTBEAT and not flags.reflects()


def _refusal(context: ToolContext) -> str | None:
    kind = context.turn.kind
    if kind == TurnKind.HEARTBEAT or (kind == TurnKind.MESSAGE and context.session.type in PEOPLES):
        return None
    if kind == TurnKind.JOB or context.session.type == SessionType.JOB:
        return "a background job cannot manage routines; say in your answer what should be changed"
    return "an automation cannot manage routines; only a person's message and a heartbeat can"


def _guarded(action: Action, properties: dict[str, Any]) -> Action:
    """The action where it may be done, with refusals in words that the model can act on."""

    def run(context: ToolContext, arguments: dict[str, Any]) -> str:
        refusal = _refusal(context)
        if refusal:
            raise ToolFailed(refusal)
        unknown = sorted(arguments.keys() - properties.keys())
        if unknown:
            raise ToolFailed(f"{unknown[0]!r} is not known; the parameters are {', '.join(properties)}")
        try:
            said = action(context, arguments)
            if context.turn.kind == TurnKind.HEARTBEAT and action is not _list:
                _mend(context.agent.pk)
            return said
        except SessionsError as error:
            raise ToolFailed(_advice(error, context.agent.timezone)) from error

    return run


def _mend(agent_id: int) -> None:
    """It was told of a corrupted HEARTBEAT.md, and this is how it repairs it. What fails undoes no routine."""
    try:
        mend(agent_id)  # behind a savepoint of its own
    except SessionsError as error:
        log.warning("heartbeat_md_not_mended", agent=agent_id, code=error.code)


def _advice(error: SessionsError, zone: str) -> str:
    if isinstance(error, TooManyRoutines):
        return f"{error}; remove one first"
    if isinstance(error, DuplicateRoutine):
        return f"{error}; update that one, or pass allow_duplicate if a second one is really wanted"
    if isinstance(error, RoutineNotFound):
        return "this agent has no such routine; list_routines shows the ids"
    if isinstance(error, RevisionConflict):
        return "MEMORY.md was changed meanwhile: read it again, and pass its line and revision of now"
    if isinstance(error, BadJob) and error.code == "past_at":
        return f"{error} It is now {_instant(datetime.now(UTC), zone)} ({zone})."
    if isinstance(error, BadJob) and error.code == "unknown_timezone":
        return f"{error} timezone takes an IANA name such as Europe/Berlin."
    return str(error)


def _add(context: ToolContext, arguments: dict[str, Any]) -> str:
    heartbeat = context.turn.kind == TurnKind.HEARTBEAT
    if _may_not_reflect(context):
        raise ToolFailed("heartbeats register no routines on this server; a person's conversation can")
    given = _given(arguments, FIELDS.keys())
    if not isinstance(given.get("title"), str) or not given["title"].strip():
        raise ToolFailed("title is missing: name what is to be done")
    routine = NewRoutine(
        agent_id=context.agent.pk,
        source=Source.HEARTBEAT_REFLECT if heartbeat else Source.CHAT,
        session_id=None if heartbeat else context.session.pk,
        turn_id=context.turn.pk,
        allow_duplicate=arguments.get("allow_duplicate") is True,
        **given,
    )
    line, revision = arguments.get("memory_line"), arguments.get("memory_revision")
    if line is None:
        job = add_routine(routine)
    elif isinstance(line, int) and isinstance(revision, int):
        job = register_intent(line, revision, routine)
    else:
        raise ToolFailed("memory_line goes with memory_revision; both are whole numbers")
    if heartbeat:
        tell_of_first(job, context.session.key)
    first = _instant(job.clock.next_run_at, job.timezone)
    return f"Added routine {job.pk} {job.name!r}: {_words(job)}, {job.execution_mode}. First run: {first}."


def _list(context: ToolContext, arguments: dict[str, Any]) -> str:
    return listed(context, disabled_too=arguments.get("include_disabled") is True)


def listed(context: ToolContext, *, disabled_too: bool) -> str:
    """The agent's routines, one line each."""
    rows = shown_routines(agent=context.agent)
    if not disabled_too:
        rows = rows.filter(enabled=True)
    return "\n".join(_line(routine_of(row)) for row in rows[:MOST_SHOWN]) or "There are no routines."


def _update(context: ToolContext, arguments: dict[str, Any]) -> str:
    routine_id = _own(context, arguments)
    job = update_routine(routine_id, _given(arguments, EDITABLE))
    following = _instant(job.clock.next_run_at, job.timezone)
    return (
        f"Updated routine {job.pk} {job.name!r}: {_words(job)}, {job.execution_mode}. Next run: {following}."
    )


def _remove(context: ToolContext, arguments: dict[str, Any]) -> str:
    routine_id = _own(context, arguments)
    hard = arguments.get("hard") is True
    remove_routine(routine_id, hard=hard)
    return f"{'Deleted' if hard else 'Disabled'} routine {routine_id}."


def _own(context: ToolContext, arguments: dict[str, Any]) -> str:
    """The id of a routine of this agent."""
    routine_id = arguments.get("routine_id")
    if not isinstance(routine_id, str) or not routine_id.strip():
        raise ToolFailed("routine_id is missing: list_routines shows the ids")
    known = "\x00" not in routine_id and shown_routines(agent=context.agent, pk=routine_id.strip()).exists()
    if not known:
        raise RoutineNotFound
    return routine_id.strip()


def _given(arguments: dict[str, Any], names: Any) -> dict[str, Any]:
    """What was said of a routine. Models send empty texts for what they leave out."""
    texts = {"schedule", "next_run_at", "execution_mode", "timezone"}
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in arguments.items()
        if name in names and value is not None and not (name in texts and value == "")
    }


def _line(routine: Routine) -> str:
    when = routine.schedule or "once"
    state = routine.state if routine.enabled else "disabled"
    following = _instant(routine.next_run_at, routine.timezone)
    about = f": {' '.join(routine.description.split())[:200]}" if routine.description else ""
    return (
        f"- {routine.id} {routine.title!r}{about} ({when}, {routine.timezone}, {routine.execution_mode}, {state};"
        f" next run {following})"
    )


def _words(job: CronJob) -> str:
    text = written(job)
    return "once" if text is None else f"{text} ({job.timezone})"


def _instant(instant: datetime | None, zone: str) -> str:
    return "none" if instant is None else instant.astimezone(zone_or_utc(zone)).isoformat(" ", "seconds")


_ENABLED = {"enabled": {"type": "boolean", "description": "false pauses it"}}


def _tool(
    name: str, action: Action, description: str, properties: dict[str, Any], required: list[str]
) -> Tool:
    return Tool(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": required},
        effect=Effect.WRITE,
        transactional=True,
        run=_guarded(action, properties),
        offered=_offered_to_add if action is _add else offered,
    )


TOOLS = (
    _tool(
        "add_routine",
        _add,
        "Registers something to be done in the background, once or repeatedly; the person is told what came of it."
        " Without schedule and next_run_at it is done once, at once.",
        {**FIELDS, **ADDED},
        ["title"],
    ),
    _tool(
        "list_routines",
        _list,
        "Lists the agent's routines with their ids. Look here before you add one.",
        {"include_disabled": {"type": "boolean", "description": "disabled ones too"}},
        [],
    ),
    _tool(
        "update_routine",
        _update,
        "Changes the named parts of a routine.",
        {**ROUTINE_ID, **FIELDS, **_ENABLED},
        ["routine_id"],
    ),
    _tool(
        "remove_routine",
        _remove,
        "Disables a routine, or deletes it with its history.",
        {**ROUTINE_ID, "hard": {"type": "boolean", "description": "delete it for good"}},
        ["routine_id"],
    ),
)


def register() -> None:
    """Make the tools known."""
    for tool in TOOLS:
        tools.register(tool)
