"""The tool `cron`: add, list and remove automations of the conversation (rule 4.2).

The schema requires `action` only. The other parameters are checked here, with error texts that the model can act on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from agent_core.exceptions import ToolFailed
from agent_core.tool_spec import ToolSpec
from agent_core.tools import Effect, Tool
from automations.exceptions import BadJob
from automations.jobs.edit import NewJob, create_job, delete_job
from automations.jobs.explain import undeliverable, why_paused
from automations.jobs.provenance import record_provenance
from automations.jobs.validate import choices_of
from automations.models import CronJob, JobKind, RunRecord, RunState, ScheduleKind, Source
from automations.models.job import RESERVED_IDS
from automations.schedules.describe import describe_job, instant_text
from automations.selectors import held_until, paused_until, problems_of, with_runs
from automations.tools.refusals import advice, failed, refuse_unknown
from sessions_app.exceptions import SessionsError
from sessions_app.models import SessionType
from sessions_app.spending.caps import caps_text
from sessions_app.tools.clock import HINT
from sessions_app.turns.tool_calls import ToolContext

DESCRIPTION = f"""\
Automations of this conversation: at its time each runs as a turn of it, knows what was said here, may use tools, and
answers here. Use it for reminders and work that belong to this conversation; for a text that is fixed now,
schedule_private_message; for background work that needs nothing of this conversation, add_routine.
Actions: add (needs message and exactly one of every_seconds, cron_expr, at; in a person's turn only), list, remove
(needs job_id, and the person's yes).
{HINT}"""
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
        "allow_duplicate": {
            "type": "boolean",
            "description": "add: true only if the person wants a second one with the same message and schedule",
        },
        "job_id": {"type": "string", "description": "remove: the id that list shows"},
    },
    "required": ["action"],
}
IN_AUTOMATIONS = """\
Automations of this conversation: lists them, or removes one (needs job_id). Unless your owner allows it by name, a
remove is refused in an automation's turn, and the person is told that you asked for it."""
_IN_AUTOMATIONS = ("action", "job_id")  # parameters in an automation's turn
IGNORED = frozenset({"deliver"})  # older prompts pass it
SCHEDULES = ("every_seconds", "cron_expr", "at")  # one parameter for each ScheduleKind
EFFECTS = {"list": Effect.READ, "add": Effect.WRITE}
PEOPLES = (SessionType.PRIMARY, SessionType.SUB)
PREFIXES = {"bad_interval": "every_seconds: ", "bad_cron": "cron_expr: ", "never_fires": "cron_expr: "}


Action = Callable[[ToolContext, dict[str, Any]], str]
_OF_LAST_RUN = ("scheduled_for", "attention")


def effect_of(arguments: dict[str, Any]) -> Effect:
    """The effect of an action: `list` reads, `add` writes, `remove` deletes an automation with its runs."""
    return EFFECTS.get(str(arguments.get("action")), Effect.DANGEROUS)


def told(context: ToolContext, spec: ToolSpec) -> ToolSpec:
    """The tool as a turn is shown it: without `add` in an automation's turn."""
    if context.interactive:
        return spec
    properties = {name: PARAMETERS["properties"][name] for name in _IN_AUTOMATIONS}
    properties["action"] = {"type": "string", "description": "list or remove"}
    return replace(spec, description=IN_AUTOMATIONS, parameters=PARAMETERS | {"properties": properties})


def run_cron(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Do one action. ToolFailed with a text for the model."""
    actions: dict[str, Action] = {"add": _add, "list": list_automations, "remove": _remove}
    action = arguments.get("action")
    if not isinstance(action, str) or action not in actions:
        raise ToolFailed("action must be one of add, list, remove")
    refuse_unknown(arguments, PARAMETERS["properties"], ignored=IGNORED)
    if context.session.type not in PEOPLES:
        raise ToolFailed("automations belong to a person's conversation; this session is not one")
    try:
        return actions[action](context, arguments)
    except SessionsError as error:
        prefix = PREFIXES.get(error.code, "") if isinstance(error, BadJob) else ""
        text = prefix + advice(error, context.agent.timezone, zone_parameter="tz")
        raise failed(error, text) from error


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
            allow_duplicate=arguments.get("allow_duplicate") is True,
            source=Source.CHAT,
            turn_id=context.turn.pk,
        )
    )
    record_provenance(job.pk, context)
    next_run = instant_text(job.clock.next_run_at, job.timezone)
    added = (
        f"Added automation {job.pk} {job.name!r}: {describe_job(job, job.timezone)}. Next run: {next_run}."
    )
    return " ".join((added, *(f"Warning: {each}" for each in undeliverable(job.session))))


def _text(arguments: dict[str, Any], name: str) -> str:
    """An optional text parameter; empty when it was not given."""
    value = arguments.get(name) or ""
    if not isinstance(value, str):
        raise ToolFailed(f"{name} must be text")
    if "\x00" in value:
        raise ToolFailed(f"{name} holds a NUL character")
    return value.strip()


def _schedule(arguments: dict[str, Any]) -> dict[str, Any]:
    """The schedule as the API's JSON."""
    given = [name for name in SCHEDULES if arguments.get(name) not in (None, "")]
    if len(given) != 1:
        got = f"; got {', '.join(given)}" if given else ""
        raise ToolFailed(f"give exactly one of {', '.join(SCHEDULES)}{got}")
    zone = _text(arguments, "tz")
    if zone and given != ["cron_expr"]:
        raise ToolFailed("tz can only be given with cron_expr; give at with an offset instead")
    value = arguments[given[0]]
    if given == ["every_seconds"]:
        whole = isinstance(value, float) and value.is_integer()  # the schema calls 5.0 an integer
        return {"kind": ScheduleKind.EVERY, "seconds": int(value) if whole else value}
    if given == ["at"]:
        return {"kind": ScheduleKind.AT, "at": value.strip() if isinstance(value, str) else value}
    return {"kind": ScheduleKind.CRON, "expr": value} | ({"timezone": zone} if zone else {})


def _jobs(context: ToolContext) -> QuerySet[Any]:
    """This conversation's jobs, the oldest first, each with its last slot that ran."""
    runs = RunRecord.objects.filter(job=OuterRef("pk")).exclude(state=RunState.SKIPPED)
    last = {name: Subquery(runs.order_by("-scheduled_for").values(name)[:1]) for name in _OF_LAST_RUN}
    jobs = with_runs(CronJob.objects.filter(session=context.session))
    rows: QuerySet[Any] = jobs.annotate(last_slot=last["scheduled_for"], lacks=last["attention"])
    return rows.order_by("created_at", "id")


def list_automations(context: ToolContext, _arguments: object = None) -> str:
    """The automations of the conversation, one line each."""
    return "\n".join(_line(job) for job in _jobs(context)) or "This conversation has no automations."


def _line(job: Any) -> str:
    ran = "not run yet"
    if job.last_status:
        became = f"{job.last_status}, {job.lacks}" if job.lacks else job.last_status
        ran = f"last run {instant_text(job.last_slot, job.timezone)} ({became})"
    more = "".join(f"; {each}" for each in (*_of_its_own(job), *(each["text"] for each in problems_of(job))))
    return f"- {job.pk} {job.name!r}: {describe_job(job, job.timezone)}; {ran}; {_following(job)}{more}"


def _of_its_own(job: Any) -> Iterator[str]:
    """What people have set for this automation alone. Of a gate only its kind: its address may hold a secret."""
    for name, value in choices_of(job).items():
        shown = value.get("kind") if isinstance(value, dict) else value
        yield f"{name} {(', '.join(shown) or 'none') if isinstance(shown, list) else shown}"
    if job.limits:
        yield f"limits {caps_text(job.limits)}"


def _following(job: Any) -> str:
    if job.fault:
        return "set aside after a fault"
    if not job.enabled:
        return f"paused{why_paused(job)}"
    if until := paused_until(job):
        return f"paused until {instant_text(until, job.timezone)}"
    if job.clock.next_run_at is not None:
        held = held_until(job)
        if held is None or held <= job.clock.next_run_at:
            return f"next run {instant_text(job.clock.next_run_at, job.timezone)}"
        why = "stopped by a cap" if held == job.stopped_until else "slowed down, its runs keep failing"
        return f"{why}: no run before {instant_text(held, job.timezone)}"
    is_open = job.runs_now or job.pending
    return "no further run" if is_open else str(job.state)


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
    """Whether the id is reserved or of a system job of this agent. Such ids are no secret."""
    own = CronJob.objects.filter(pk=job_id, agent=context.agent, kind=JobKind.SYSTEM_EVENT)
    return job_id in RESERVED_IDS or own.exists()


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
)
