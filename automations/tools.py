"""The `cron` tool: how an agent keeps appointments for the person it talks with (rule 4.2).

The schema asks for `action` alone. What an action needs is checked here, with texts the model can act on.
"""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from automations.edit import NewJob, create_job, delete_job
from automations.jobs import Category, category, schedule_of
from automations.models import CronJob, RunRecord, Source
from automations.schedule_words import describe
from sessions_app.exceptions import SessionsError
from sessions_app.tools import ToolContext

DESCRIPTION = """\
Keeps appointments for the person of this conversation. An automation runs later as a normal turn of this same
conversation. Actions: add (needs message and exactly one of every_seconds, cron_expr, at), list, remove (needs job_id).
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


def run(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Do one action; ToolFailed with a text for the model."""
    action = arguments.get("action")
    actions = {"add": _add, "list": _list, "remove": _remove}
    if action not in actions:
        raise ToolFailed("action must be one of add, list, remove")
    try:
        return actions[action](context, arguments)
    except SessionsError as error:
        raise ToolFailed(str(error)) from error


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
            schedule=_schedule(arguments, context.agent.timezone),
            name=_name(arguments),
            source=Source.CHAT,
            turn_id=context.turn.pk,
        )
    )
    next_run = _instant(job.clock.next_run_at, job.timezone)
    return f"Added automation {job.pk} {job.name!r}: {_words(job)}. Next run: {next_run}."


def _name(arguments: dict[str, Any]) -> str:
    name = arguments.get("name") or ""
    if not isinstance(name, str):
        raise ToolFailed("name must be text")
    return name


def _schedule(arguments: dict[str, Any], zone: str) -> dict[str, Any]:
    given = [name for name in ("every_seconds", "cron_expr", "at") if arguments.get(name) not in (None, "")]
    if len(given) != 1:
        raise ToolFailed(
            "give exactly one of every_seconds, cron_expr, at" + (f"; got {', '.join(given)}" * bool(given))
        )
    if arguments.get("tz") and given != ["cron_expr"]:
        raise ToolFailed("tz goes with cron_expr only")
    if given == ["every_seconds"]:
        return {"kind": "every", "seconds": arguments["every_seconds"]}
    if given == ["at"]:
        return {"kind": "at", "at": arguments["at"]}
    return {"kind": "cron", "expr": arguments["cron_expr"], "timezone": arguments.get("tz") or zone}


def _list(context: ToolContext, _arguments: dict[str, Any]) -> str:
    jobs = (
        CronJob.objects.filter(session=context.session).select_related("clock").order_by("created_at", "id")
    )
    return "\n".join(_line(job) for job in jobs) or "This conversation has no automations."


def _line(job: CronJob) -> str:
    last = RunRecord.objects.filter(job=job).exclude(state="skipped").order_by("-scheduled_for").first()
    ran = f"last run {_instant(last.scheduled_for, job.timezone)} ({last.state})" if last else "not run yet"
    following = f"next run {_instant(job.clock.next_run_at, job.timezone)}" if job.enabled else "paused"
    return f"- {job.pk} {job.name!r}: {_words(job)}; {ran}; {following}"


def _remove(context: ToolContext, arguments: dict[str, Any]) -> str:
    job_id = arguments.get("job_id")
    if not isinstance(job_id, str) or not job_id:
        raise ToolFailed("job_id is missing: list shows the ids")
    job = CronJob.objects.filter(pk=job_id, session=context.session).first()
    if job is None:
        raise ToolFailed(f"this conversation has no automation {job_id!r}; list shows the ids")
    if category(job) is Category.SYSTEM:
        raise ToolFailed("this is a system job; it cannot be removed")
    delete_job(job.pk)
    return f"Removed automation {job.pk} {job.name!r}."


def _words(job: CronJob) -> str:
    return describe(schedule_of(job), zone=job.timezone)


def _instant(instant: Any, zone: str) -> str:
    return "none" if instant is None else instant.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")


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
