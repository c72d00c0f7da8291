"""The session and the turn of a job's slot, by the job's category (rule 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from automations.firing.due_jobs import DueJob
from automations.heartbeats.readiness import InternalSession, heartbeat_skip_reason, read_sessions
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


def attach_sessions(rows: Sequence[DueJob]) -> list[DueJob]:
    """The rows with the internal sessions of their jobs, if they exist; routines with the job itself."""
    keys = {row.pk: _key(row) for row in rows if category(row) in INTERNAL}
    routines = [row.pk for row in rows if category(row) is Category.ROUTINE]
    sessions = read_sessions(keys.values())
    jobs: dict[str, CronJob] = _jobs().in_bulk(routines) if routines else {}
    placed = []
    for row in rows:
        if row.pk in jobs:  # each slot gets a new session
            row = row._replace(session_state=SessionState.OPEN, job=jobs[row.pk])  # noqa: PLW2901
        elif row.pk in keys:
            row = _placed(row, sessions.get(keys[row.pk]))  # noqa: PLW2901
        placed.append(row)
    return placed


def _key(row: DueJob) -> tuple[int, str]:
    return row.agent_id, internal_key(row.pk, row.system_event, row.agent_name)


def _jobs() -> QuerySet[CronJob]:
    return CronJob.objects.select_related("agent")


def _placed(row: DueJob, session: InternalSession | None) -> DueJob:
    if session is None:  # it is created with the first run
        return row._replace(session_id=None, session_state=SessionState.OPEN)
    return row._replace(session_id=str(session.id), session_state=session.state, internal=session)


def skip_reason(row: DueJob) -> GapReason | None:
    """Why a system job's due slot is skipped without a turn; None: it is run. NotRunnable."""
    if category(row) is not Category.SYSTEM:
        return None
    if row.system_event == HEARTBEAT:
        if row.internal is None:  # it has no session yet
            return None
        return heartbeat_skip_reason(row.internal, row.facts.next_run_at, row.facts.every_seconds or 0)
    if row.system_event != DREAM:
        raise NotRunnable(f"unknown system event {row.system_event!r}; this server knows dream and heartbeat")
    return None if has_news(row.agent_id) else GapReason.NOTHING_TO_DO


def turn_columns(row: DueJob, slot: datetime) -> dict[str, Any]:
    """The turn of a slot, as far as `insert_runs` does not take it from the job: `kind` and `metadata`; unless the
    job is bound `session_id`, and `content` unless it is the job's message.
    """
    marks = permits.marks(row.stranger, has_read=row.has_read)
    match category(row):
        case Category.BOUND:
            return {"kind": TurnKind.AUTOMATION} | ({"metadata": marks} if marks else {})
        case Category.LEGACY:
            return {
                "session_id": row.session_id or _open_internal_session(_jobs().get(pk=row.pk)),
                "kind": TurnKind.LEGACY,
                "metadata": marks | {"deliver_to": _address(row)},
            }
        case Category.SYSTEM:
            return {
                "session_id": row.session_id or _open_internal_session(_jobs().get(pk=row.pk)),
                "kind": TurnKind.HEARTBEAT if row.system_event == HEARTBEAT else TurnKind.SYSTEM,
                "content": row.name,
                "metadata": marks | {HOME_KEY: ""},
            }
        case Category.ROUTINE:
            job = row.job or _jobs().get(pk=row.pk)
            metrics.count(Counted.JOB_SESSION_CREATED)
            return {
                "session_id": _open_internal_session(job, f"job:{run_id(job.pk, slot)}"),
                "kind": TurnKind.JOB,
                "content": job.description.strip() or job.name,
                "metadata": marks | {HOME_KEY: str(job.home_id or "")},
            }


def _address(job: DueJob) -> dict[str, Any] | None:
    """Where a legacy job's answer is delivered; None: nowhere."""
    if not (job.deliver and job.channel and job.to):
        return None
    return {"channel": job.channel, "chat_id": job.to, "meta": job.channel_meta or {}}


def heartbeat_session(agent: Agent) -> Session:
    """The agent's heartbeat session; created when it does not exist."""
    key = heartbeat_key(agent.name)
    found = sole(Session.objects.filter(agent=agent, key=key))
    return found or _insert(agent, key, type=SessionType.HEARTBEAT, title="Heartbeat")


def _open_internal_session(job: CronJob, slot_key: str = "") -> str:
    """The job's internal session, or with `slot_key` the session of one slot. Created unless it exists."""
    if job.system_event == HEARTBEAT:
        return str(heartbeat_session(job.agent).pk)
    given: dict[str, Any] = {"type": SessionType.JOB, "chat_id": job.pk, "title": job.name}
    if slot_key and job.message:
        given["variables"] = {INSTRUCTIONS_KEY: job.message}
    key = slot_key or internal_key(job.pk, job.system_event, job.agent.name)
    return str(_insert(job.agent, key, **given).pk)


def _insert(agent: Agent, key: str, **given: Any) -> Session:
    row = Session(agent=agent, owner_id=agent.owner_id, key=key, channel=key.partition(":")[0], **given)
    Session.objects.bulk_create([row], ignore_conflicts=True)
    return Session.objects.get(agent=agent, key=key)
