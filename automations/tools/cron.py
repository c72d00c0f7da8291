"""The tool `cron`: the appointments of the conversation, as the person speaks of them (rule 4.2).

The schema requires `action` only. The other parameters are checked here, with error texts that the model can act on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from agent_core.exceptions import ToolFailed
from agent_core.tool_spec import ToolSpec
from agent_core.tools import CallInWords, Effect, Tool
from agent_core.turn.consent import quoted
from automations.appointments.jobs import MOST_JOBS, job_rows
from automations.appointments.pause_all import KINDS, change_all, pause_all
from automations.exceptions import BadJob
from automations.jobs.edit import NewJob, create_job, delete_job, update_job
from automations.jobs.explain import undeliverable
from automations.jobs.move import move_slot
from automations.jobs.provenance import record_provenance
from automations.jobs.skip import skip_slots, unskip
from automations.models import CronJob, Source
from automations.schedules.describe import describe_job
from automations.selectors import schedule_json
from automations.tools.cron_reads import (
    ALL,
    at_text,
    explain_automation,
    is_everywhere,
    list_automations,
    list_upcoming,
    one_job,
    pause_text,
    reached,
    text_of,
)
from automations.tools.given_schedule import PARTS, SCHEDULES, given_schedule
from automations.tools.refusals import advice, failed, refuse_unknown
from sessions_app.exceptions import SessionsError
from sessions_app.models import SessionType
from sessions_app.tools.clock import HINT
from sessions_app.turns.tool_calls import ToolContext

Action = Callable[[ToolContext, dict[str, Any]], str]
READS = ("list", "upcoming", "explain")
WRITES = ("add", "change", "pause", "resume", "skip", "unskip", "move")
NAMES = ("add", *READS, *WRITES[1:], "remove")
VERBS = {name: name.capitalize() for name in NAMES}
VERBS |= {"skip": "Skip runs of", "move": "Move a run of", "unskip": "Take back the skipped runs of"}
_ONLY_PEOPLE = "an automation cannot create or change automations; only a person's message can"
_NO_ACTION = f"action must be one of {', '.join(NAMES)}"

DESCRIPTION = f"""\
Automations of this conversation: at its time each runs as a turn of it, knows what was said here, may use tools, and
answers here. Use it for reminders and work that belong to this conversation; for a text that is fixed now,
schedule_private_message; for background work that needs nothing of this conversation, add_routine.
Actions: add (needs message and exactly one of every_seconds, cron_expr, rrule, at), list, upcoming (what is due from
since to until), explain (why it ran or did not), change (only what is given: name, message, a new schedule, or the days
on which it does not run), pause (from since until until; default: now, until it is resumed), resume, skip (the next
run), unskip (takes that back), move (one run, from slot to another time; the same way back undoes it), remove (for
good, with the person's yes). From explain on they need job_id.
{HINT}"""
RRULE = """\
what cron cannot say, as a rule of RFC 5545 with starts_at: 'FREQ=WEEKLY;INTERVAL=2;BYDAY=MO' (every two weeks),
'FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1' (the last working day of the month),
'FREQ=DAILY;BYHOUR=9,12;BYMINUTE=0,30;BYSETPOS=1,4' (at 09:00 and 12:30); COUNT or UNTIL ends it"""
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": list(NAMES)},
        "message": {"type": "string", "description": "what is to be done then, in the person's words"},
        "name": {"type": "string", "description": "a short title; default: the start of the message"},
        "every_seconds": {"type": "integer", "description": "repeat at this interval, at least 1"},
        "cron_expr": {
            "type": "string",
            "description": "five cron fields, such as '0 9 * * *', '0 9,12,18 * * 1-5' (three times on weekdays) or"
            " '0 9 * * L5' (the last Friday of the month)",
        },
        "rrule": {"type": "string", "description": RRULE},
        "starts_at": {
            "type": "string",
            "description": "needed with rrule: the local ISO time from which it counts, with its time of day",
        },
        "tz": {
            "type": "string",
            "description": "with cron_expr or rrule: an IANA zone; default: the agent's",
        },
        "except_dates": {
            "type": "array",
            "items": {"type": "string"},
            "description": "with cron_expr or rrule: all days without a run, such as ['2026-12-24']",
        },
        "except_holidays": {
            "type": "string",
            "description": "with cron_expr or rrule: no run on the public holidays of a country or a part of it, such"
            " as 'DE' or 'DE-BY'",
        },
        "at": {"type": "string", "description": "once, ISO time; without offset it is in the agent's zone"},
        "allow_duplicate": {
            "type": "boolean",
            "description": "add: true only if the person wants a second one with the same message and schedule",
        },
        "job_id": {"type": "string", "description": "the id that list shows, in brackets"},
        "since": {"type": "string", "description": "upcoming, pause: ISO time; default: now"},
        "slot": {"type": "string", "description": "move: ISO time of the run, as upcoming shows it"},
        "to": {"type": "string", "description": "move: ISO time at which it is to run instead"},
        "until": {
            "type": "string",
            "description": "upcoming (default: a week), pause, skip: ISO time, not included",
        },
        "slots": {"type": "integer", "description": "skip: how many of the next runs; default: 1"},
        "scope": {
            "type": "string",
            "enum": ["conversation", ALL],
            "description": "all: also the person's other conversations, such as for 'what do I have next week?'. pause,"
            " resume: in place of job_id, for all automations of the scope",
        },
    },
    "required": ["action"],
}
IN_AUTOMATIONS = """\
Automations of this conversation: list, upcoming (what is due from since to until), explain (why it ran or did not,
needs job_id), remove (needs job_id). Unless your owner allows it by name, a remove is refused in an automation's turn,
and the person is told that you asked for it."""
_IN_AUTOMATIONS = ("action", "job_id", "since", "until")  # parameters in an automation's turn
IGNORED = frozenset({"deliver"})  # older prompts pass it
PEOPLES = (SessionType.PRIMARY, SessionType.SUB)
PREFIXES = {
    "bad_interval": "every_seconds: ",
    "bad_cron": "cron_expr: ",
    "bad_rule": "rrule: ",
    "bad_except": "except_dates: ",
    "bad_except_holidays": "except_holidays: ",
}
_SAID = frozenset({"action", "job_id", "scope"})  # parameters that the words of a call say


def effect_of(arguments: dict[str, Any]) -> Effect:
    """The effect of an action. What is lost needs a yes: an automation with its runs, and by a change elsewhere a
    message that another conversation has written.
    """
    action = str(arguments.get("action"))
    if action in READS:
        return Effect.READ
    is_elsewhere = action == "change" and is_everywhere(arguments)
    return Effect.WRITE if action in WRITES and not is_elsewhere else Effect.DANGEROUS


def told(context: ToolContext, spec: ToolSpec) -> ToolSpec:
    """The tool as a turn is shown it: an automation's turn is told what it may do."""
    if context.interactive:
        return spec
    properties = {name: PARAMETERS["properties"][name] for name in _IN_AUTOMATIONS}
    properties["action"] = {"type": "string", "description": "list, upcoming, explain or remove"}
    return replace(spec, description=IN_AUTOMATIONS, parameters=PARAMETERS | {"properties": properties})


def in_words(context: ToolContext, arguments: dict[str, Any]) -> CallInWords:
    """A call about automations that exist, with the name and the schedule that are stored (rule 3.5)."""
    action = str(arguments.get("action"))
    if action not in NAMES:
        return CallInWords(problem=_NO_ACTION)
    if action == "add" or action in READS:
        return CallInWords()
    if action in WRITES and not context.interactive:
        return CallInWords(problem=_ONLY_PEOPLE)
    says_all = not any(value for name, value in arguments.items() if name not in _SAID | IGNORED)
    try:
        if _is_of_several(arguments):
            reached(context, arguments)
            where = "all conversations" if is_everywhere(arguments) else "this conversation"
            return CallInWords(words=f"{VERBS[action]} every automation of {where}?", says_all=says_all)
        job = one_job(context, arguments)
    except ToolFailed as problem:
        return CallInWords(problem=str(problem))
    described = describe_job(job, job.timezone)
    schedule, has_zone, zone = described.removesuffix(")").rpartition(" (")
    there = f", {zone}" if has_zone and zone != context.agent.timezone else ""
    words = f"{VERBS[action]} {quoted(job.name)} ({schedule if has_zone else described}{there})?"
    return CallInWords(words=words, says_all=says_all, state=str(job.revision))


def run_cron(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Do one action. ToolFailed with a text for the model."""
    action = arguments.get("action")
    if not isinstance(action, str) or action not in ACTIONS:
        raise ToolFailed(_NO_ACTION)
    refuse_unknown(arguments, PARAMETERS["properties"], ignored=IGNORED)
    if context.session.type not in PEOPLES:
        raise ToolFailed("automations belong to a person's conversation; this session is not one")
    if action in WRITES and not context.interactive:
        raise ToolFailed(_ONLY_PEOPLE)
    try:
        return ACTIONS[action](context, arguments)
    except SessionsError as error:
        prefix = PREFIXES.get(error.code, "") if isinstance(error, BadJob) else ""
        text = prefix + advice(error, context.agent.timezone, zone_parameter="tz")
        raise failed(error, text) from error


def _add(context: ToolContext, arguments: dict[str, Any]) -> str:
    message = arguments.get("message")
    if not isinstance(message, str) or not message.strip():
        raise ToolFailed("message is missing: say what is to be done when the time comes")
    job = create_job(
        NewJob(
            session_id=context.session.pk,
            message=message,
            schedule=given_schedule(arguments),
            name=text_of(arguments, "name"),
            allow_duplicate=arguments.get("allow_duplicate") is True,
            source=Source.CHAT,
            turn_id=context.turn.pk,
        )
    )
    record_provenance(job.pk, context)
    return _done("Added", job, *(f"Warning: {each}" for each in undeliverable(job.session)))


def _done(what: str, job: CronJob, *more: str) -> str:
    """What was done with an automation, and its schedule and next run as they are now."""
    next_run = at_text(job.clock.next_run_at, job.timezone)
    pause = pause_text([job], job.timezone)
    paused = f" Paused{pause}." if pause else ""
    said = f"{what} {quoted(job.name)}: {describe_job(job, job.timezone)}.{paused} Next run: {next_run}."
    return " ".join((said, *more, f"[{job.pk}]"))


def _change(context: ToolContext, arguments: dict[str, Any]) -> str:
    job = one_job(context, arguments)
    changes: dict[str, Any] = {
        name: text for name in ("name", "message") if (text := text_of(arguments, name))
    }
    if any(arguments.get(name) not in (None, "", []) for name in PARTS):
        changes["schedule"] = given_schedule(arguments, schedule_json(job))
    if not changes:
        raise ToolFailed(f"give what to change: name, message or one of {', '.join(SCHEDULES)}")
    changed = update_job(job.pk, changes)
    record_provenance(job.pk, context)
    return _done("Changed", changed, *([] if changed.enabled else ["It is paused."]))


def _pause_or_resume(context: ToolContext, arguments: dict[str, Any]) -> str:
    # a resume also ends a pause of a time, and that a failing one is slowed down
    changes: dict[str, Any] = {"enabled": True}
    if arguments["action"] == "pause":
        since, until = text_of(arguments, "since") or None, text_of(arguments, "until") or None
        changes = {"enabled": False}
        if since or until:
            changes = {"paused_from": since, "paused_until": until}
    if _is_of_several(arguments):
        return _change_several(context, arguments, changes)
    return _done(f"{VERBS[arguments['action']]}d", update_job(one_job(context, arguments).pk, changes))


def _is_of_several(arguments: dict[str, Any]) -> bool:
    """Whether the call pauses or resumes all automations of a scope."""
    has_scope = bool(arguments.get("scope")) and not arguments.get("job_id")
    return has_scope and arguments.get("action") in ("pause", "resume")


def _change_several(context: ToolContext, arguments: dict[str, Any], changes: dict[str, Any]) -> str:
    """Pause or resume those that can be; the answer names the others with the reason."""
    user, zone = reached(context, arguments), context.agent.timezone
    if arguments["action"] == "pause":
        found = pause_all(user, zone, begin=changes.get("paused_from"), until=changes.get("paused_until"))
    else:
        paused = Q(enabled=False, fault="") | Q(clock__paused_until__gt=Now())
        rows = job_rows(user, KINDS).filter(paused).values_list("pk", flat=True)[:MOST_JOBS]
        found = change_all({pk: changes | {"paused_until": None} for pk in rows})
    left = [f"{quoted(job.name)} was left as it is: {why}." for job, why in found.left]
    if left and not found.done:
        raise ToolFailed(" ".join(left))
    if len(found.done) + len(left) == MOST_JOBS:
        left.append(f"These are the first {MOST_JOBS}; there may be more.")
    done = sorted(f"{quoted(job.name)} [{job.pk}]" for job in found.done)
    names = ", ".join(done) or "none, there was nothing to do"
    return " ".join((f"{VERBS[arguments['action']]}d{pause_text(found.done, zone)}: {names}.", *left))


def _skip(context: ToolContext, arguments: dict[str, Any]) -> str:
    job, until, slots = one_job(context, arguments), text_of(arguments, "until"), arguments.get("slots")
    if slots is not None and (not isinstance(slots, int) or isinstance(slots, bool)):
        raise ToolFailed("slots must be a whole number")
    if slots is None and not until:
        slots = 1
    gap = skip_slots(job.pk, slots=slots, until=until or None)
    to = f"Skipped to {at_text(gap.slots_to, job.timezone)}."
    return _done("Skipped runs of", one_job(context, arguments), to)


def _unskip(context: ToolContext, arguments: dict[str, Any]) -> str:
    return _done("Took the skip back of", unskip(one_job(context, arguments).pk))


def _move(context: ToolContext, arguments: dict[str, Any]) -> str:
    job = one_job(context, arguments)
    moved = move_slot(job.pk, slot=text_of(arguments, "slot"), to=text_of(arguments, "to"))
    return _done("Moved a run of", moved)


def _remove(context: ToolContext, arguments: dict[str, Any]) -> str:
    job = one_job(context, arguments)
    delete_job(job.pk)
    return f"Removed {quoted(job.name)}."


ACTIONS: dict[str, Action] = {
    "add": _add,
    "list": list_automations,
    "upcoming": list_upcoming,
    "explain": explain_automation,
    "change": _change,
    "pause": _pause_or_resume,
    "resume": _pause_or_resume,
    "skip": _skip,
    "unskip": _unskip,
    "move": _move,
    "remove": _remove,
}
CRON = Tool(
    name="cron",
    description=DESCRIPTION,
    parameters=PARAMETERS,
    effect=Effect.DANGEROUS,
    effect_of=effect_of,
    transactional=True,
    run=run_cron,
    offered=lambda context: context.session.type in PEOPLES,
    told=told,
    says=in_words,
)
