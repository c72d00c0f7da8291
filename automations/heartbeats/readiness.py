"""When a heartbeat must wait: while its session has an open turn; with backoff, while the model is down (5.1, 5.2)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from agent_core.exceptions import PASSING_CODES
from automations.models.category import heartbeat_key
from automations.runs.skips import GapReason
from sessions_app import metrics
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Session, SessionState, Turn, TurnKind, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.rows import sole

log = structlog.get_logger(__name__)

FIRST_BACKOFF, LONGEST_BACKOFF = timedelta(minutes=1), timedelta(hours=6)
_LOOKED_AT = 10  # turns


def heartbeat_skip_reason(
    session_id: uuid.UUID | None, slot: datetime, interval_seconds: int
) -> GapReason | None:
    """Why a heartbeat's slot is skipped: an open turn in its own session, or the model is down; None: it is run."""
    if session_id is None:
        return None
    if has_open_turn(session_id):
        log.info("HEARTBEAT_SKIPPED", session=str(session_id), reason="session_busy")
        metrics.count(Counted.HEARTBEAT_SKIPPED)
        return GapReason.SESSION_BUSY
    retry_at = model_retry_at(session_id, timedelta(seconds=interval_seconds))
    # after a single failure the next slot is the first retry
    if retry_at is not None and slot + timedelta(seconds=1) < retry_at:
        log.info("HEARTBEAT_SKIPPED", session=str(session_id), reason="model_down")
        return GapReason.MODEL_DOWN
    return None


class WaitReason(StrEnum):
    """Why an inline routine that is due is not started."""

    SESSION_CLOSED = "session_closed"
    SESSION_BUSY = "session_busy"
    MODEL_DOWN = "model_down"
    OWNER_INACTIVE = "owner_inactive"


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Why an agent's due routines wait; `until`: when the wait is over, if known."""

    reason: WaitReason
    until: datetime | None = None


def why_routines_wait(agent: Agent, now: datetime) -> Wait | None:
    """Why the agent's due routines cannot start now; None: they can. Reads only.

    Active hours are no reason: they limit the heartbeat's own interval only (rule 5.3).
    """
    if not agent.owner.is_active:
        return Wait(reason=WaitReason.OWNER_INACTIVE)
    session = sole(Session.objects.filter(agent=agent, key=heartbeat_key(agent)))
    if session is None:
        return None
    if session.state != SessionState.OPEN:
        return Wait(reason=WaitReason.SESSION_CLOSED)
    if has_open_turn(session.pk):
        return Wait(reason=WaitReason.SESSION_BUSY)
    retry_at = model_retry_at(session.pk, FIRST_BACKOFF)
    if retry_at is None or retry_at <= now:
        return None
    return Wait(reason=WaitReason.MODEL_DOWN, until=retry_at)


def has_open_turn(session_id: uuid.UUID) -> bool:
    """Whether the session has a queued or running turn."""
    return Turn.objects.filter(session_id=session_id, state__in=OPEN_STATES).exists()


def model_retry_at(session_id: uuid.UUID, first: timedelta) -> datetime | None:
    """When to try again after the last heartbeats found the model down; `first` doubles with each of them.

    None: the last heartbeat reached the model.
    """
    ended = (
        Turn.objects.filter(session_id=session_id, kind=TurnKind.HEARTBEAT, finished_at__isnull=False)
        .exclude(state=TurnState.CANCELLED)
        .exclude(metadata__contains={"deterministic": True})  # these did not call the model
        .order_by("-id")
        .values_list("error_code", "due_at")[:_LOOKED_AT]
    )
    down = 0
    for code, _ in ended:
        if code not in PASSING_CODES:
            break
        down += 1
    if not down:
        return None
    return ended[0][1] + min(first * 2 ** (down - 1), max(first, LONGEST_BACKOFF))  # type: ignore[no-any-return]
