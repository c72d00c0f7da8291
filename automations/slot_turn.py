"""Where a job's slots run and what their turns begin with, by the job's category (rule 4.1)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import prefetch_related_objects

from automations.dream import has_news
from automations.due import Due
from automations.jobs import Category, category, heartbeat_key, internal_key
from automations.models import CronJob
from automations.rest import why_no_heartbeat
from automations.slots import GapReason, run_id
from automations.system import DREAM, HEARTBEAT
from sessions_app import metrics
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Session, SessionState, SessionType, TurnKind

INTERNAL = frozenset({Category.LEGACY, Category.SYSTEM})  # run in a session that is the job's


class NotRunnable(Exception):
    """The job asks for what nothing here does."""


def placed(rows: Iterable[Due]) -> list[Due]:
    """The rows with their sessions: a bound job's own; else the internal one, where there is one by now."""
    rows = list(rows)
    prefetch_related_objects([row.job for row in rows if category(row.job) is not Category.BOUND], "agent")
    inside = [row.job for row in rows if category(row.job) in INTERNAL]
    wanted = Session.objects.filter(
        agent_id__in={job.agent_id for job in inside}, key__in={internal_key(job) for job in inside}
    )
    found = {(session.agent_id, session.key): session for session in wanted} if inside else {}
    return [_placed(row, found) for row in rows]


def _placed(row: Due, found: dict[tuple[int, str], Session]) -> Due:
    if category(row.job) is Category.ROUTINE:  # a session of its own for each slot
        return replace(row, session_state=SessionState.OPEN)
    if category(row.job) not in INTERNAL:
        return row
    key = internal_key(row.job)
    session = found.get((row.job.agent_id, key))
    if session is None:  # it is opened when a slot runs
        return replace(row, session_id=None, session_key=key, session_state=SessionState.OPEN)
    return replace(row, session_id=session.pk, session_key=key, session_state=session.state)


def why_not(row: Due) -> GapReason | None:
    """Why a due slot is not run, so that no turn is needed to find out; None: it is. NotRunnable."""
    job = row.job
    if category(job) is not Category.SYSTEM:
        return None
    if job.system_event == HEARTBEAT:
        return why_no_heartbeat(row.session_id, row.next_run_at, job.every_seconds or 0)
    if job.system_event != DREAM:
        raise NotRunnable(f"nothing here does what the system event {job.system_event!r} asks for")
    return None if has_news(job.agent_id) else GapReason.NOTHING_TO_DO


def turn_of(row: Due, slot: datetime) -> dict[str, Any]:
    """The turn of a slot: `session_id`, `session_key`, `kind`, `content`, and the `metadata` of its category."""
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
                "session_id": str(row.session_id or _opened(job)),
                "kind": TurnKind.LEGACY,
                "content": job.message,
                "metadata": _about(job) | {"deliver_to": _address(job)},
            }
        case Category.SYSTEM:
            return {
                "session_id": str(row.session_id or _opened(job)),
                "kind": TurnKind.HEARTBEAT if job.system_event == HEARTBEAT else TurnKind.SYSTEM,
                "content": job.name,
                "metadata": _about(job),
            }
        case Category.ROUTINE:
            key = f"job:{run_id(job.pk, slot)}"
            metrics.count(Counted.JOB_SESSION_CREATED)
            return {
                "session_id": str(_opened(job, key)),
                "session_key": key,
                "kind": TurnKind.JOB,
                "content": job.description.strip() or job.name,
                "metadata": _about(job) | {"home": str(job.home_id or "")},
            }


def _about(job: CronJob) -> dict[str, Any]:
    return {"automation_id": job.pk, "automation_name": job.name, "timezone": job.timezone}


def _address(job: CronJob) -> dict[str, Any] | None:
    """Where a legacy job's answer is delivered; None: nowhere."""
    if not (job.deliver and job.channel and job.to):
        return None
    return {"channel": job.channel, "chat_id": job.to, "meta": job.channel_meta or {}}


def heartbeat_session(agent: Agent) -> Session:
    """The agent's heartbeat session, opened when it has none."""
    key = heartbeat_key(agent)
    found = Session.objects.filter(agent=agent, key=key).first()
    return found or _insert(agent, key, type=SessionType.HEARTBEAT, title="Heartbeat")


def _opened(job: CronJob, slots_own: str = "") -> uuid.UUID:
    """The job's internal session, made now unless another beat was faster; or that of one slot, by its key."""
    if job.system_event == HEARTBEAT:
        return heartbeat_session(job.agent).pk
    given: dict[str, Any] = {"type": SessionType.JOB, "chat_id": job.pk, "title": job.name}
    if slots_own and job.message:
        given["variables"] = {"job_instructions": job.message}
    return _insert(job.agent, slots_own or internal_key(job), **given).pk


def _insert(agent: Agent, key: str, **given: Any) -> Session:
    row = Session(agent=agent, owner_id=agent.owner_id, key=key, channel=key.partition(":")[0], **given)
    Session.objects.bulk_create([row], ignore_conflicts=True)
    return Session.objects.get(agent=agent, key=key)
