"""The session and the turn of a job's slot, by the job's category (rule 4.1)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import prefetch_related_objects

from automations.firing.due_jobs import DueJob
from automations.heartbeats.readiness import heartbeat_skip_reason
from automations.jobs.provenance import provenance_marks
from automations.jobs.system import DREAM, HEARTBEAT
from automations.models import CronJob
from automations.models.category import Category, category, heartbeat_key, internal_key
from automations.models.run import HOME_KEY
from automations.runs.skips import GapReason, run_id
from automations.turn_kinds.dream import has_news
from sessions_app import metrics
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Session, SessionState, SessionType, TurnKind
from sessions_app.models.session import INSTRUCTIONS_KEY
from sessions_app.models.turn import JOB_KEY
from sessions_app.postgres.rows import sole

INTERNAL = frozenset({Category.LEGACY, Category.SYSTEM})  # these jobs have an internal session of their own


class NotRunnable(Exception):
    """No code runs this kind of job."""


def attach_sessions(rows: Iterable[DueJob]) -> list[DueJob]:
    """The rows with their sessions: a bound job's session, or the job's internal session if it exists."""
    rows = list(rows)
    prefetch_related_objects([row.job for row in rows if category(row.job) is not Category.BOUND], "agent")
    inside = [row.job for row in rows if category(row.job) in INTERNAL]
    wanted = Session.objects.filter(
        agent_id__in={job.agent_id for job in inside}, key__in={internal_key(job) for job in inside}
    )
    found = {(session.agent_id, session.key): session for session in wanted} if inside else {}
    return [_placed(row, found) for row in rows]


def _placed(row: DueJob, found: dict[tuple[int, str], Session]) -> DueJob:
    if category(row.job) is Category.ROUTINE:  # each slot gets a new session
        return replace(row, session_state=SessionState.OPEN)
    if category(row.job) not in INTERNAL:
        return row
    key = internal_key(row.job)
    session = found.get((row.job.agent_id, key))
    if session is None:  # it is created with the first run
        return replace(row, session_id=None, session_key=key, session_state=SessionState.OPEN)
    return replace(row, session_id=session.pk, session_key=key, session_state=session.state)


def skip_reason(row: DueJob) -> GapReason | None:
    """Why a system job's due slot is skipped without a turn; None: it is run. NotRunnable."""
    job = row.job
    if category(job) is not Category.SYSTEM:
        return None
    if job.system_event == HEARTBEAT:
        return heartbeat_skip_reason(row.session_id, row.next_run_at, job.every_seconds or 0)
    if job.system_event != DREAM:
        raise NotRunnable(f"unknown system event {job.system_event!r}; this server knows dream and heartbeat")
    return None if has_news(job.agent_id) else GapReason.NOTHING_TO_DO


def turn_columns(row: DueJob, slot: datetime) -> dict[str, Any]:
    """The turn of a slot: `session_id`, `kind`, `content`, `metadata`, and a routine's `session_key`."""
    job = row.job
    match category(job):
        case Category.BOUND:
            return {
                "session_id": str(job.session_id),
                "kind": TurnKind.AUTOMATION,
                "content": job.message,
                "metadata": _about(job),
            }
        case Category.LEGACY:
            return {
                "session_id": str(row.session_id or _open_internal_session(job)),
                "kind": TurnKind.LEGACY,
                "content": job.message,
                "metadata": _about(job) | {"deliver_to": _address(job)},
            }
        case Category.SYSTEM:
            return {
                "session_id": str(row.session_id or _open_internal_session(job)),
                "kind": TurnKind.HEARTBEAT if job.system_event == HEARTBEAT else TurnKind.SYSTEM,
                "content": job.name,
                "metadata": _about(job) | {HOME_KEY: ""},
            }
        case Category.ROUTINE:
            key = f"job:{run_id(job.pk, slot)}"
            metrics.count(Counted.JOB_SESSION_CREATED)
            return {
                "session_id": str(_open_internal_session(job, key)),
                "session_key": key,
                "kind": TurnKind.JOB,
                "content": job.description.strip() or job.name,
                "metadata": _about(job) | {HOME_KEY: str(job.home_id or "")},
            }


def _about(job: CronJob) -> dict[str, Any]:
    about = {JOB_KEY: job.pk, "automation_name": job.name, "timezone": job.timezone}
    return about | provenance_marks([job])


def _address(job: CronJob) -> dict[str, Any] | None:
    """Where a legacy job's answer is delivered; None: nowhere."""
    if not (job.deliver and job.channel and job.to):
        return None
    return {"channel": job.channel, "chat_id": job.to, "meta": job.channel_meta or {}}


def heartbeat_session(agent: Agent) -> Session:
    """The agent's heartbeat session; created when it does not exist."""
    key = heartbeat_key(agent)
    found = sole(Session.objects.filter(agent=agent, key=key))
    return found or _insert(agent, key, type=SessionType.HEARTBEAT, title="Heartbeat")


def _open_internal_session(job: CronJob, slot_key: str = "") -> uuid.UUID:
    """The job's internal session, or with `slot_key` the session of one slot. Created unless it exists."""
    if job.system_event == HEARTBEAT:
        return heartbeat_session(job.agent).pk
    given: dict[str, Any] = {"type": SessionType.JOB, "chat_id": job.pk, "title": job.name}
    if slot_key and job.message:
        given["variables"] = {INSTRUCTIONS_KEY: job.message}
    return _insert(job.agent, slot_key or internal_key(job), **given).pk


def _insert(agent: Agent, key: str, **given: Any) -> Session:
    row = Session(agent=agent, owner_id=agent.owner_id, key=key, channel=key.partition(":")[0], **given)
    Session.objects.bulk_create([row], ignore_conflicts=True)
    return Session.objects.get(agent=agent, key=key)
