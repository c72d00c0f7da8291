"""The `cron` tool: how an agent keeps appointments for the person it talks with (rule 4.2).

The schema asks for `action` alone. What an action needs is checked here, with texts the model can act on.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet, Subquery

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from automations.edit import NewJob, create_job, delete_job
from automations.exceptions import BadJob, TooManyJobs
from automations.jobs import RESERVED_IDS, schedule_of
from automations.models import CronJob, JobKind, RunRecord, RunState, Source
from automations.schedule import ScheduleError
from automations.schedule_words import describe
from automations.zone_files import zone_or_utc
from sessions_app.clock_tool import HINT
from sessions_app.exceptions import SessionsError
from sessions_app.models import SessionType
from sessions_app.tools import ToolContext

DESCRIPTION = f"""\
Keeps appointments for the person of this conversation. An automation runs later as a normal turn of this same
conversation. Actions: add (needs message and exactly one of every_seconds, cron_expr, at), list, remove (needs job_id).
{HINT}
"""
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["add", "list", "remove"]},
        "message": {"type": "string", "description": "add: what is to be done then, in the person's words"},
        "name": {"type": "string", "description": "add: a short title; default: the start of the message"},
        "every_seconds": {"type": "integer", "description": "add: repeat at this interval, at least 1"},
        "cron_expr": {"type": "string", "description": "add: five cron fields, such as '0 9 * * *'"},
        "tz": {"type": "string", "description": "add, with cron_expr: an IANA zone; default: the agent's"},
        "at": {
            "type": "string",
            "description": "add: once, ISO time; without offset it is in the agent's zone",
        },
        "job_id": {"type": "string", "description": "remove: the id that list shows"},
    },
    "required": ["action"],
}
IGNORED = frozenset({"deliver"})  # what older prompts still pass
SCHEDULES = ("every_seconds", "cron_expr", "at")
PEOPLES = (SessionType.PRIMARY, SessionType.SUB)
PREFIXES = {"bad_interval": "every_seconds: ", "bad_cron": "cron_expr: ", "never_fires": "cron_expr: "}


def run(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Do one action; ToolFailed with a text for the model."""
    actions = {"add": _add, "list": _list, "remove": _remove}
    action = arguments.get("action")
    if not isinstance(action, str) or action not in actions:
        raise ToolFailed("action must be one of add, list, remove")
    unknown = sorted(arguments.keys() - PARAMETERS["properties"].keys() - IGNORED)
    if unknown:
        known = ", ".join(PARAMETERS["properties"])
        raise ToolFailed(f"{unknown[0]!r} is not known; the parameters are {known}")
    if context.session.type not in PEOPLES:
        raise ToolFailed("there is no person's conversation here; automations belong to one")
    try:
        return actions[action](context, arguments)
    except TooManyJobs as error:
        raise ToolFailed(f"{error}; remove one first") from error
    except BadJob as error:
        raise ToolFailed(_advice(error, context.agent.timezone)) from error
    except SessionsError as error:
        raise ToolFailed(str(error)) from error


def _advice(error: BadJob, zone: str) -> str:
    """The refusal in the words of this tool's parameters, with what the model needs to do better."""
    if error.code == "past_at":
        return f"{error} It is now {_instant(datetime.now(UTC), zone)} ({zone})."
    if error.code == "unknown_timezone":
        return f"{error} tz takes an IANA name such as Europe/Berlin."
    return PREFIXES.get(error.code, "") + str(error)


def _add(context: ToolContext, arguments: dict[str, Any]) -> str:
    if not context.interactive:
        raise ToolFailed("an automation cannot create automations; only a person's message can")
    message = arguments.get("message")
    if not isinstance(message, str) or not message.strip():
        raise ToolFailed("message is missing: say what is to be done when the time comes")
    job = create_job(
        NewJob(
            session_id=context.session.pk,
            message=message,
            schedule=_schedule(arguments),
            name=_text(arguments, "name"),
            source=Source.CHAT,
            turn_id=context.turn.pk,
        )
    )
    next_run = _instant(job.clock.next_run_at, job.timezone)
    return f"Added automation {job.pk} {job.name!r}: {_words(job)}. Next run: {next_run}."


def _text(arguments: dict[str, Any], name: str) -> str:
    """An optional text; empty when it was not given."""
    value = arguments.get(name) or ""
    if not isinstance(value, str):
        raise ToolFailed(f"{name} must be text")
    if "\x00" in value:
        raise ToolFailed(f"{name} holds a NUL character")
    return value.strip()


def _schedule(arguments: dict[str, Any]) -> dict[str, Any]:
    """The schedule as the API spells it; what names no zone is read in the agent's."""
    given = [name for name in SCHEDULES if arguments.get(name) not in (None, "")]
    if len(given) != 1:
        got = f"; got {', '.join(given)}" if given else ""
        raise ToolFailed(f"give exactly one of {', '.join(SCHEDULES)}{got}")
    zone = _text(arguments, "tz")
    if zone and given != ["cron_expr"]:
        raise ToolFailed("tz goes with cron_expr only; an at may carry an offset instead")
    value = arguments[given[0]]
    if given == ["every_seconds"]:
        whole = isinstance(value, float) and value.is_integer()  # the schema calls 5.0 an integer
        return {"kind": "every", "seconds": int(value) if whole else value}
    if given == ["at"]:
        return {"kind": "at", "at": value.strip() if isinstance(value, str) else value}
    return {"kind": "cron", "expr": value} | ({"timezone": zone} if zone else {})


def _jobs(context: ToolContext) -> QuerySet[CronJob]:
    """This conversation's jobs, the oldest first, each with its last run and whether one is open."""
    runs = RunRecord.objects.filter(job=OuterRef("pk"))
    last = runs.exclude(state=RunState.SKIPPED).order_by("-scheduled_for")
    return (
        CronJob.objects.filter(session=context.session)
        .select_related("clock")
        .annotate(
            last_slot=Subquery(last.values("scheduled_for")[:1]),
            last_state=Subquery(last.values("state")[:1]),
            is_open=Exists(runs.filter(state__in=(RunState.QUEUED, RunState.RUNNING))),
        )
        .order_by("created_at", "id")
    )


def _list(context: ToolContext, _arguments: dict[str, Any]) -> str:
    return listed(context)


def listed(context: ToolContext) -> str:
    """The automations of the conversation, one line each."""
    return "\n".join(_line(job) for job in _jobs(context)) or "This conversation has no automations."


def _line(job: Any) -> str:
    ran = (
        f"last run {_instant(job.last_slot, job.timezone)} ({job.last_state})"
        if job.last_state
        else "not run yet"
    )
    return f"- {job.pk} {job.name!r}: {_words(job)}; {ran}; {_following(job)}"


def _following(job: Any) -> str:
    if job.fault:
        return "set aside after a fault"
    if not job.enabled:
        return "paused"
    if job.clock.next_run_at is not None:
        return f"next run {_instant(job.clock.next_run_at, job.timezone)}"
    return "no further run" if job.is_open else "done"


def _remove(context: ToolContext, arguments: dict[str, Any]) -> str:
    job_id = _text(arguments, "job_id")
    if not job_id:
        raise ToolFailed("job_id is missing: list shows the ids")
    if _is_protected(context, job_id):
        raise ToolFailed(f"{job_id!r} is a system job; it is protected and cannot be removed")
    job = _jobs(context).filter(pk=job_id).first()
    if job is None:
        raise ToolFailed(f"this conversation has no automation {job_id!r}; list shows the ids")
    delete_job(job.pk)
    return f"Removed automation {job.pk} {job.name!r}."


def _is_protected(context: ToolContext, job_id: str) -> bool:
    """A reserved id, or a system job of this agent. No session has these, and there is no secret in their names."""
    own = CronJob.objects.filter(pk=job_id, agent=context.agent, kind=JobKind.SYSTEM_EVENT)
    return job_id in RESERVED_IDS or own.exists()


def _words(job: CronJob) -> str:
    try:
        return describe(schedule_of(job), zone=job.timezone)
    except ScheduleError as error:  # it was set aside for it
        return f"unreadable ({error})"


def _instant(instant: datetime | None, zone: str) -> str:
    """`2027-01-01 09:00:00+01:00`, in the zone."""
    return "none" if instant is None else instant.astimezone(zone_or_utc(zone)).isoformat(" ", "seconds")


def register() -> None:
    """Make the tool known."""
    tools.register(
        Tool(
            name="cron",
            description=DESCRIPTION,
            parameters=PARAMETERS,
            effect=Effect.WRITE,
            transactional=True,
            run=run,
        )
    )
