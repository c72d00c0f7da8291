"""The session and the turn of a job's slot, by the job's category (rule 4.1)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from automations.firing.due_jobs import DueJob
from automations.heartbeats.readiness import Readiness, heartbeat_skip_reason, read_readiness
from automations.jobs.system import DREAM, HEARTBEAT
from automations.models import CronJob
from automations.models.category import Category, category, heartbeat_key, internal_key
from automations.models.run import HOME_KEY
from automations.runs.skips import GapReason, run_id
from automations.turn_kinds.dream import has_news
from sessions_app import metrics, permits
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Session, SessionState, SessionType, TurnKind
from sessions_app.models.session import INSTRUCTIONS_KEY
from sessions_app.postgres.rows import sole

INTERNAL = frozenset({Category.LEGACY, Category.SYSTEM})  # these jobs have an internal session of their own


class NotRunnable(Exception):
    """No code runs this kind of job."""


def attach_jobs(rows: Sequence[DueJob]) -> list[DueJob]:
    """The rows with what a bound job does not need: the job itself, and its internal session if that exists."""
    others = [row.pk for row in rows if category(row) is not Category.BOUND]
    if not others:
        return list(rows)
    jobs: dict[str, Any] = CronJob.objects.select_related("agent", "session").in_bulk(others)
    inside = [job for job in jobs.values() if category(job) in INTERNAL]
    wanted = Session.objects.filter(
        agent_id__in={job.agent_id for job in inside}, key__in={internal_key(job) for job in inside}
    )
    found = {(session.agent_id, session.key): session for session in wanted} if inside else {}
    beating = [session.pk for session in found.values() if session.type == SessionType.HEARTBEAT]
    readiness = read_readiness(beating) if beating else {}
    return [_placed(row, jobs[row.pk], found, readiness) if row.pk in jobs else row for row in rows]


def _placed(
    row: DueJob,
    job: CronJob,
    found: dict[tuple[int, str], Session],
    readiness: dict[uuid.UUID, Readiness],
) -> DueJob:
    session = None
    if category(job) in INTERNAL:
        session = found.get((job.agent_id, internal_key(job)))
    if session is None:  # it is created with the run; a routine gets a new one for each slot
        return row._replace(job=job, session_id=None, session_state=SessionState.OPEN)
    return row._replace(
        job=job,
        session_id=str(session.pk),
        session_state=session.state,
        readiness=readiness.get(session.pk),
    )


def skip_reason(row: DueJob) -> GapReason | None:
    """Why a system job's due slot is skipped without a turn; None: it is run. NotRunnable."""
    job = row.job
    if job is None or category(job) is not Category.SYSTEM:
        return None
    if job.system_event == HEARTBEAT:
        if row.readiness is None:  # it has no session yet
            return None
        return heartbeat_skip_reason(row.readiness, row.facts.next_run_at, job.every_seconds or 0)
    if job.system_event != DREAM:
        raise NotRunnable(f"unknown system event {job.system_event!r}; this server knows dream and heartbeat")
    return None if has_news(job.agent_id) else GapReason.NOTHING_TO_DO


def turn_columns(row: DueJob, slot: datetime) -> dict[str, Any]:
    """The turn of a slot, as far as `insert_runs` does not take it from the job: `kind`, and with a job that is not
    bound `session_id`, `content` and `metadata`.
    """
    job, marks = row.job, permits.marks(row.stranger, has_read=row.has_read)
    if job is None:
        return {"kind": TurnKind.AUTOMATION, "metadata": marks}
    match category(job):
        case Category.SYSTEM:
            return {
                "session_id": row.session_id or str(_open_internal_session(job)),
                "kind": TurnKind.HEARTBEAT if job.system_event == HEARTBEAT else TurnKind.SYSTEM,
                "content": job.name,
                "metadata": marks | {HOME_KEY: ""},
            }
        case Category.ROUTINE:
            metrics.count(Counted.JOB_SESSION_CREATED)
            return {
                "session_id": str(_open_internal_session(job, f"job:{run_id(job.pk, slot)}")),
                "kind": TurnKind.JOB,
                "content": job.description.strip() or job.name,
                "metadata": marks | {HOME_KEY: str(job.home_id or "")},
            }
        case _:
            return {
                "session_id": row.session_id or str(_open_internal_session(job)),
                "kind": TurnKind.LEGACY,
                "metadata": marks | {"deliver_to": _address(job)},
            }


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
