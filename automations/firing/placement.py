"""The session and the turn of a job's slot, by the job's category (rule 4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from automations.heartbeats.readiness import InternalSession, heartbeat_skip_reason, read_sessions
from automations.jobs.system import DREAM, HEARTBEAT
from automations.jobs.validate import turn_choices
from automations.models import CronJob
from automations.models.job import Category, category, heartbeat_key, internal_key, is_of_people
from automations.runs.skips import GapReason, run_id
from automations.turn_kinds.dream import has_news
from sessions_app import metrics
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Session, SessionState, SessionType, TurnInput, TurnKind
from sessions_app.models.session import INSTRUCTIONS_KEY


class NotRunnable(Exception):
    """No code runs this kind of job."""


def internal_sessions(jobs: Iterable[Any]) -> dict[str, InternalSession]:
    """The sessions of system and legacy jobs that exist, by the ids of the jobs."""
    internal = [job for job in jobs if not is_of_people(job)]
    keys = {
        job.pk: (job.agent_id, internal_key(job.pk, job.system_event, job.agent.name)) for job in internal
    }
    sessions = read_sessions(keys.values())
    return {job_id: sessions[key] for job_id, key in keys.items() if key in sessions}


def skip_reason(job: Any, session: InternalSession | None) -> GapReason | None:
    """Why a due slot is skipped whatever the job's other runs do; None: it is not. NotRunnable.

    `job`: a CronJob as firing reads it. `session`: its internal session; one that is missing is created with the
    first run.
    """
    reasons = (
        (not job.owner_is_active, GapReason.OWNER_INACTIVE),
        (job.owner_is_full, GapReason.STORAGE_FULL),
        (job.is_stopped, GapReason.BUDGET),
    )
    if reason := next((reason for applies, reason in reasons if applies), None):
        return reason
    state = job.session_state if session is None else session.state
    if state not in (None, SessionState.OPEN):
        # the job stays enabled: a delete may fail and open the session again
        return GapReason.SESSION_CLOSED
    if category(job) is not Category.SYSTEM:
        return None
    if job.system_event == HEARTBEAT:
        if session is None:
            return None
        return heartbeat_skip_reason(session, job.clock.next_run_at, job.every_seconds or 0)
    if job.system_event != DREAM:
        raise NotRunnable(f"unknown system event {job.system_event!r}; this server knows dream and heartbeat")
    return None if has_news(job.agent_id) else GapReason.NOTHING_TO_DO


def turn_columns(job: CronJob, slot: datetime, session: InternalSession | None) -> dict[str, Any]:
    """The columns of a slot's turn. A routine's slot gets a new session, an internal session is created if needed."""
    given = TurnInput(
        automation_id=job.pk,
        automation_name=job.name,
        timezone=job.timezone,
        policy=turn_limits(job),
        caps={job.pk: job.limits} if job.limits else {},
        pings=bool(job.ping_url),
        stranger=job.stranger,
        read_before=job.has_read,
        **turn_choices(job),
    )
    session_id: Any = job.session_id or (session and session.id)
    content = job.message
    match category(job):
        case Category.BOUND:
            kind = TurnKind.AUTOMATION
        case Category.LEGACY:
            kind = TurnKind.LEGACY
            given = replace(given, deliver_to=_address(job))
        case Category.SYSTEM:
            kind = TurnKind.HEARTBEAT if job.system_event == HEARTBEAT else TurnKind.SYSTEM
            content = job.name
            given = replace(given, home="")
        case _:
            kind = TurnKind.JOB
            metrics.count(Counted.JOB_SESSION_CREATED)
            session_id = _open_internal_session(job, f"job:{run_id(job.pk, slot)}")
            content = job.description.strip() or job.name
            given = replace(given, home=str(job.home_id or ""))
    return {
        "session_id": str(session_id or _open_internal_session(job)),
        "kind": kind,
        "content": content,
        "metadata": given.to_json(),
    }


def turn_limits(job: Any) -> dict[str, Any]:
    """The limits of a slot's turn that override the agent's."""
    limits = {} if job.timeout_seconds is None else {"timeout_seconds": job.timeout_seconds}
    return {**job.policy, **limits}


def _address(job: CronJob) -> dict[str, Any] | None:
    """Where a legacy job's answer is delivered; None: nowhere."""
    if not (job.deliver and job.channel and job.to):
        return None
    return {"channel": job.channel, "chat_id": job.to, "meta": job.channel_meta or {}}


def heartbeat_session(agent: Agent) -> Session:
    """The agent's heartbeat session; created when it does not exist."""
    return _open(agent, heartbeat_key(agent.name), type=SessionType.HEARTBEAT, title="Heartbeat")


def _open_internal_session(job: CronJob, slot_key: str = "") -> str:
    """The job's internal session, or with `slot_key` the session of one slot. Created unless it exists."""
    if job.system_event == HEARTBEAT:
        return str(heartbeat_session(job.agent).pk)
    given: dict[str, Any] = {"type": SessionType.JOB, "chat_id": job.pk, "title": job.name}
    if slot_key and job.message:
        given["variables"] = {INSTRUCTIONS_KEY: job.message}
    key = slot_key or internal_key(job.pk, job.system_event, job.agent.name)
    return str(_open(job.agent, key, **given).pk)


def _open(agent: Agent, key: str, **given: Any) -> Session:
    new = {"owner_id": agent.owner_id, "channel": key.partition(":")[0], **given}
    return Session.objects.get_or_create(agent=agent, key=key, defaults=new)[0]
