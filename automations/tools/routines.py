"""The agent's tools for its routines, in people's conversations and in heartbeats (rules 6.4, 6.5, 5.6).

Elsewhere they are not offered, and calls are refused: scheduled work must not create more scheduled work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent_core.exceptions import ToolFailed
from agent_core.tool_spec import ToolSpec
from agent_core.tools import Effect, Tool
from automations.exceptions import DuplicateRoutine, RoutineNotFound
from automations.jobs.provenance import record_provenance
from automations.models import CronJob, Source
from automations.routines.edit import EDITABLE, NewRoutine, add_routine, remove_routine, update_routine
from automations.routines.plan import routine_schedule_text
from automations.routines.reads import Routine, routine_of, shown_routines
from automations.routines.reflection import register_intent, register_reflected_routine
from automations.schedules.describe import instant_text
from automations.tools.refusals import advice, refuse_unknown
from sessions_app import flags
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.models import SessionType, TurnKind
from sessions_app.spending.caps import caps_text
from sessions_app.turns.tool_calls import ToolContext

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
    "task_type": {  # no enum: some providers refuse one with an empty text, which takes it back
        "type": "string",
        "description": "time_reminder: only tells the time; else empty",
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
REFUSED = frozenset({"allow_duplicate"})  # in a heartbeat
REFLECTS = (
    "Routines: registers work or a reminder that the agent does by itself in the background, once or repeatedly,"
    " without the words of any conversation; the person is told of it, and of what comes of it. It does not run before"
    " this heartbeat has ended; without schedule and next_run_at it is done once, right after it."
)
ROUTINE_ID = {"routine_id": {"type": "string", "description": "the id that list_routines shows"}}

PEOPLES = (SessionType.PRIMARY, SessionType.SUB)
MOST_SHOWN = 100  # routines of one list
Action = Callable[[ToolContext, dict[str, Any]], str]


def offered(context: ToolContext) -> bool:
    """Whether the tools are offered: in people's conversations and in heartbeats."""
    return _refusal(context) is None


def _offered_to_add(context: ToolContext) -> bool:
    return offered(context) and not _reflection_is_off(context)


def _reflection_is_off(context: ToolContext) -> bool:
    return _is_heartbeat(context) and not flags.reflects()


def _is_heartbeat(context: ToolContext) -> bool:
    return context.turn.kind == TurnKind.HEARTBEAT


def _refusal(context: ToolContext) -> str | None:
    kind = context.turn.kind
    if kind == TurnKind.HEARTBEAT or (kind == TurnKind.MESSAGE and context.session.type in PEOPLES):
        return None
    if kind == TurnKind.JOB or context.session.type == SessionType.JOB:
        return "a background job cannot manage routines; say in your answer what should be changed"
    return "an automation cannot manage routines; only a person's message and a heartbeat can"


def _told(context: ToolContext, spec: ToolSpec) -> ToolSpec:
    """`add_routine` as a turn is shown it: in a heartbeat without `allow_duplicate` and without a hint at `cron`."""
    if not _is_heartbeat(context):
        return spec
    properties = {name: each for name, each in spec.parameters["properties"].items() if name not in REFUSED}
    return replace(spec, description=REFLECTS, parameters=spec.parameters | {"properties": properties})


def _guarded(action: Action, properties: dict[str, Any]) -> Action:
    """Check where the action is called and its parameters, and turn errors into texts for the model."""

    def run(context: ToolContext, arguments: dict[str, Any]) -> str:
        refusal = _refusal(context)
        if refusal:
            raise ToolFailed(refusal)
        refuse_unknown(arguments, properties)
        try:
            return action(context, arguments)
        except SessionsError as error:
            raise ToolFailed(_advice(error, context)) from error

    return run


def _advice(error: SessionsError, context: ToolContext) -> str:
    if isinstance(error, DuplicateRoutine):
        more = "" if _is_heartbeat(context) else ", or pass allow_duplicate if a second one is really wanted"
        return f"{error}; update that one{more}"
    if isinstance(error, RoutineNotFound):
        return "this agent has no such routine; list_routines shows the ids"
    if isinstance(error, RevisionConflict):
        return "MEMORY.md was changed meanwhile: read it again, and pass its line and revision of now"
    return advice(error, context.agent.timezone, zone_parameter="timezone")


def _add(context: ToolContext, arguments: dict[str, Any]) -> str:
    if _reflection_is_off(context):
        raise ToolFailed("heartbeats register no routines on this server; a person's conversation can")
    given = _given(arguments, FIELDS.keys())
    if not isinstance(given.get("title"), str) or not given["title"].strip():
        raise ToolFailed("title is missing: name what is to be done")
    routine = NewRoutine(
        agent_id=context.agent.pk,
        source=Source.CHAT,
        session_id=context.session.pk,
        turn_id=context.turn.pk,
        allow_duplicate=arguments.get("allow_duplicate") is True,
        **given,
    )
    intended = _intended(arguments)
    if _is_heartbeat(context):
        return _reflect(context, routine, intended)
    job = add_routine(routine) if intended is None else register_intent(*intended, routine)
    record_provenance(job.pk, context)
    return added_text(job)


def _intended(arguments: dict[str, Any]) -> tuple[int, int] | None:
    """The line of MEMORY.md that the routine is for, with the document's revision."""
    line, revision = arguments.get("memory_line"), arguments.get("memory_revision")
    if line is None:
        return None
    if not isinstance(line, int) or not isinstance(revision, int):
        raise ToolFailed("give memory_line and memory_revision together, as whole numbers")
    return line, revision


def _reflect(context: ToolContext, routine: NewRoutine, intended: tuple[int, int] | None) -> str:
    if routine.allow_duplicate:
        raise ToolFailed("a heartbeat cannot register duplicates; leave allow_duplicate out")
    job, is_new = register_reflected_routine(context.turn, routine, intended)
    if is_new:
        record_provenance(job.pk, context)
        return f"{added_text(job)} It does not run before this heartbeat has ended."
    state = "exists already" if job.enabled else "is disabled; only a person can enable it again"
    return f"Routine {job.pk} {job.name!r} {state}. MEMORY.md names it now."


def _list(context: ToolContext, arguments: dict[str, Any]) -> str:
    return list_routines(context, disabled_too=arguments.get("include_disabled") is True)


def list_routines(context: ToolContext, *, disabled_too: bool) -> str:
    """The agent's routines, one line each."""
    rows = shown_routines(agent=context.agent)
    if not disabled_too:
        rows = rows.filter(enabled=True)
    return "\n".join(routine_line(routine_of(row)) for row in rows[:MOST_SHOWN]) or "There are no routines."


def _update(context: ToolContext, arguments: dict[str, Any]) -> str:
    routine_id = _own(context, arguments)
    given = _given(arguments, EDITABLE)
    is_disabled = not CronJob.objects.filter(pk=routine_id, enabled=True).exists()
    if given.get("enabled") is True and is_disabled and _is_heartbeat(context):
        raise ToolFailed("this routine is disabled; only a person can enable it again")
    job = update_routine(routine_id, given)
    record_provenance(job.pk, context)
    following = instant_text(job.clock.next_run_at, job.timezone)
    return f"Updated routine {job.pk} {job.name!r}: {schedule_text(job)}, {job.execution_mode}. Next run: {following}."


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
    if "\x00" in routine_id or not shown_routines(agent=context.agent, pk=routine_id.strip()).exists():
        raise RoutineNotFound
    return routine_id.strip()


def _given(arguments: dict[str, Any], names: Any) -> dict[str, Any]:
    """The given fields of a routine. Models send empty texts for parameters that they leave out."""
    texts = {"schedule", "next_run_at", "execution_mode", "timezone"}
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in arguments.items()
        if name in names and value is not None and not (name in texts and value == "")
    }


_ENABLED = {"enabled": {"type": "boolean", "description": "false pauses it"}}
_EFFECTS: dict[Action, Effect] = {_list: Effect.READ, _remove: Effect.DANGEROUS}  # the others write


def _tool(
    name: str, action: Action, description: str, properties: dict[str, Any], required: list[str]
) -> Tool:
    return Tool(
        name=name,
        description=description,
        parameters={"type": "object", "properties": properties, "required": required},
        effect=_EFFECTS.get(action, Effect.WRITE),
        transactional=True,
        run=_guarded(action, properties),
        offered=_offered_to_add if action is _add else offered,
        told=_told if action is _add else None,
    )


ROUTINE_TOOLS = (
    _tool(
        "add_routine",
        _add,
        "Routines: registers work that the agent does by itself in the background, once or repeatedly, without the"
        " words of any conversation; its home is told what came of it. For a reminder, or work that belongs to a"
        " conversation, use cron there. Without schedule and next_run_at it is done once, at once.",
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
        "Disables a routine, or deletes it with its history; needs the person's yes. To pause one, update it.",
        {**ROUTINE_ID, "hard": {"type": "boolean", "description": "delete it for good"}},
        ["routine_id"],
    ),
)


def added_text(job: CronJob) -> str:
    """The answer for an added routine, with its first run."""
    first = instant_text(job.clock.next_run_at, job.timezone)
    return f"Added routine {job.pk} {job.name!r}: {schedule_text(job)}, {job.execution_mode}. First run: {first}."


def routine_line(routine: Routine) -> str:
    """One line of the list."""
    when = routine.schedule or "once"
    state = routine.state if routine.enabled else "disabled"
    following = instant_text(routine.next_run_at, routine.timezone)
    about = f": {' '.join(routine.description.split())[:200]}" if routine.description else ""
    caps = f"; limits {caps_text(routine.limits)}" if routine.limits else ""
    gate = f"; gate {routine.gate.get('kind')}" if routine.gate else ""
    return (
        f"- {routine.id} {routine.title!r}{about} ({when}, {routine.timezone}, {routine.execution_mode}, {state};"
        f" next run {following}{_trouble(routine)}{caps}{gate})"
    )


def _trouble(routine: Routine) -> str:
    """Why its next run may not happen."""
    health = routine.health
    found = [each["text"] for each in health.preflight]
    if health.paused_reason:
        found.append("paused, because its runs kept failing")
    if health.backoff_until:
        found.append(
            f"slowed down until {instant_text(health.backoff_until, routine.timezone)}, its runs keep failing"
        )
    return "".join(f"; {each}" for each in found)


def schedule_text(job: CronJob) -> str:
    """The routine's schedule with its zone, or `once`."""
    text = routine_schedule_text(job)
    return "once" if text is None else f"{text} ({job.timezone})"
