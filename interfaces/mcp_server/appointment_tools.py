"""The tools about appointments. Schedules have the words of the agents' own tool `cron`."""

from __future__ import annotations

import uuid
from typing import Any

from automations import selectors
from automations.appointments.panel import appointments_of, why
from automations.jobs import explain as explanations
from automations.jobs.edit import NewJob, bind_job, delete_job, update_job
from automations.jobs.failing import try_again, try_last_again
from automations.jobs.skip import skip_slots
from automations.jobs.validate import CHOICES
from automations.routines import reads
from automations.tools.given_schedule import PARTS, given_schedule
from interfaces.http.auth import READ, SCHEDULE
from interfaces.mcp_server import arguments, results
from interfaces.mcp_server.conversation_tools import agent_of, once, session_of
from interfaces.mcp_server.tools import ADDS, DELETES, READS, SETS, SKIPS, Caller, tool
from sessions_app.exceptions import BadInput
from sessions_app.reads.selectors import session as own_session
from sessions_app.spending.caps import budget_of, shown_caps
from sessions_app.tokens.reach import limit_of

CLEARED = frozenset({"max_output_tokens", "allow_tools", "gate"})  # by null


@tool(SCHEDULE, ADDS)
def schedule(caller: Caller, given: arguments.Schedule) -> results.Appointment:
    """Create an automation of a conversation: at its time it runs as a turn there, knows what was said, and answers
    there. Give exactly one of every_seconds, cron_expr, rrule, at.
    """
    plan = given_schedule(vars(given))
    session = session_of(caller, given)
    chosen = {name: getattr(given, name) for name in (*CHOICES, "limits") if getattr(given, name) is not None}
    new = NewJob(
        session_id=session,
        message=given.message,
        name=given.name,
        schedule=plan,
        allow_duplicate=given.allow_duplicate,
        **chosen,
    )
    is_limited = bool(limit_of(caller.user))
    made = lambda: _shown(caller, bind_job(new, is_limited=is_limited).pk)  # noqa: E731
    return once(caller, "schedule", given, results.Appointment, made)


@tool(READ, READS)
def list_appointments(caller: Caller, given: arguments.Place) -> results.AppointmentList:
    """List a conversation's automations, routines, heartbeats and scheduled messages."""
    session = session_of(caller, given)
    found = appointments_of(caller.user, session)
    items = [results.AppointmentItem.model_validate(each) for each in found]
    return results.AppointmentList(session=str(session), appointments=items)


@tool(READ, READS)
def explain(caller: Caller, given: arguments.Explain) -> results.Explanation:
    """Explain why an appointment's last runs did or did not happen, its state, and its next runs."""
    found = results.Explanation.model_validate(why(caller.user, given.kind, given.job_id))
    if given.kind != "message":
        found.usage = results.RunsUsage.model_validate(selectors.usage_of_runs(given.job_id))
    if given.kind == "automation":
        found.settings = _settings(selectors.automation(caller.user, given.job_id))
    if given.kind == "routine":
        found.settings = _settings(reads.routine(caller.user, given.job_id))
    return found


def _settings(found: selectors.Automation | reads.Routine) -> results.Settings:
    shown = results.Settings.model_validate(found)
    shown.limits = _caps(found)
    return shown


def _caps(found: selectors.Automation | reads.Routine) -> dict[str, Any]:
    """The caps with what is spent."""
    return shown_caps([budget_of("automation", found.id, found.limits, zone=found.zone)])[0]


@tool(SCHEDULE, SETS)
def change(caller: Caller, given: arguments.Change) -> results.Appointment:
    """Change the given fields of an automation. A schedule is replaced as a whole; limits are merged, and null removes
    one.
    """
    selectors.automation_to_change(caller.user, given.job_id)
    names = given.model_fields_set & {"message", "name", *CHOICES, "limits"}
    changes = {name: getattr(given, name) for name in names}
    changes = {name: value for name, value in changes.items() if value is not None or name in CLEARED}
    if given.model_fields_set & set(PARTS):
        stored = selectors.automation(caller.user, given.job_id).schedule
        changes["schedule"] = given_schedule(vars(given), stored)
    update_job(given.job_id, changes, is_limited=bool(limit_of(caller.user)))
    return _shown(caller, given.job_id)


@tool(READ, READS)
def list_runs(caller: Caller, given: arguments.ListRuns) -> results.RunList:
    """List the newest runs of automations, routines and scheduled messages: what each did, used and cost."""
    wanted: dict[str, Any] = given.model_dump(include={"state", "attention"}, exclude_none=True)
    if given.agent is not None:
        wanted["agent_name"] = agent_of(caller, given.agent).name
    if given.session is not None:
        wanted["session_id"] = own_session(caller.user, uuid.UUID(given.session)).pk
    rows = selectors.runs_of_user(caller.user, wanted).newest(given.limit)
    return results.RunList(runs=[results.RunItem.model_validate(each) for each in rows])


@tool(SCHEDULE, SKIPS)
def skip_next(caller: Caller, given: arguments.Skip) -> results.Appointment:
    """Skip the next runs of an automation."""
    selectors.automation_to_change(caller.user, given.job_id)
    slots = 1 if given.slots is None and given.until is None else given.slots

    def skipped() -> results.Appointment:
        skip_slots(given.job_id, slots=slots, until=given.until)
        return _shown(caller, given.job_id)

    return once(caller, "skip_next", given, results.Appointment, skipped)


@tool(SCHEDULE, ADDS)
def retry(caller: Caller, given: arguments.Retry) -> results.RunItem:
    """Try a failed run again, or the last run of an automation: another attempt of its slot."""
    if (given.job_id is None) == (given.run_id is None):
        raise BadInput("give exactly one of job_id, run_id")
    if given.run_id is not None:
        run = try_again(selectors.run_record(caller.user, given.run_id).pk)
    else:
        run = try_last_again(selectors.automation_to_change(caller.user, given.job_id or "").id)
    return results.RunItem.model_validate(selectors.run_record(caller.user, run.pk))


@tool(SCHEDULE, SETS)
def pause(caller: Caller, given: arguments.Pause) -> results.Appointment:
    """Pause an automation, from since until until; if it begins now, its waiting runs are cancelled."""
    if given.since is None and given.until is None:
        return _switched(caller, given.job_id, enabled=False)
    selectors.automation_to_change(caller.user, given.job_id)
    update_job(given.job_id, {"paused_from": given.since, "paused_until": given.until})
    return _shown(caller, given.job_id)


@tool(SCHEDULE, SETS)
def resume(caller: Caller, given: arguments.OneAutomation) -> results.Appointment:
    """Resume an automation."""
    return _switched(caller, given.job_id, enabled=True)


def _switched(caller: Caller, job_id: str, *, enabled: bool) -> results.Appointment:
    # a resume also ends a pause of a time, and the slowing down of a failing automation
    if selectors.automation_to_change(caller.user, job_id).enabled or enabled:
        update_job(job_id, {"enabled": enabled})
    return _shown(caller, job_id)


@tool(SCHEDULE, DELETES)
def cancel_appointment(caller: Caller, given: arguments.OneAutomation) -> results.Deleted:
    """Delete an automation with the record of its runs."""
    selectors.automation_to_change(caller.user, given.job_id)
    delete_job(given.job_id)
    return results.Deleted(deleted=given.job_id)


def _shown(caller: Caller, job_id: str) -> results.Appointment:
    found, explained = selectors.automation(caller.user, job_id), explanations.explain(caller.user, job_id)
    changed = {"schedule": explained.words, "limits": _caps(found), "warnings": explained.warnings}
    return results.Appointment.model_validate(vars(found) | changed)
