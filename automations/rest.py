"""When a heartbeat rests: while its session is at work, and ever longer while the model is down (rules 5.1, 5.2)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from agent_core.exceptions import ModelUnavailable
from automations.active_hours import ActiveHours
from automations.jobs import heartbeat_key
from automations.slots import GapReason
from sessions_app import metrics
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Session, SessionState, Turn, TurnKind, TurnState
from sessions_app.models.turn import OPEN_STATES

log = structlog.get_logger(__name__)

SHORTEST_REST, LONGEST_REST = timedelta(minutes=1), timedelta(hours=6)
_LOOKED_AT = 10  # turns


def why_no_heartbeat(session_id: uuid.UUID | None, slot: datetime, interval_seconds: int) -> GapReason | None:
    """Why a heartbeat's slot is not run: its own session is at work, or the model was down. A chat is no reason."""
    if session_id is None:
        return None
    if at_work(session_id):
        log.info("HEARTBEAT_SKIPPED", session=str(session_id), reason="session_busy")
        metrics.count(Counted.HEARTBEAT_SKIPPED)
        return GapReason.SESSION_BUSY
    rested = rests_until(session_id, timedelta(seconds=interval_seconds))
    # the slot right after a single failure is the first try again
    if rested is not None and slot + timedelta(seconds=1) < rested:
        log.info("HEARTBEAT_SKIPPED", session=str(session_id), reason="model_down")
        return GapReason.MODEL_DOWN
    return None


class WaitReason(StrEnum):
    """Why an inline routine that is due is not started."""

    ACTIVE_HOURS = "active_hours"
    SESSION_CLOSED = "session_closed"
    SESSION_BUSY = "session_busy"
    MODEL_DOWN = "model_down"


@dataclass(frozen=True, kw_only=True)
class Held:
    """What an agent's due routines wait for; `until`: when that is over, where it is known."""

    reason: WaitReason
    until: datetime | None = None


def held(agent: Agent, now: datetime) -> Held | None:
    """What keeps a heartbeat from doing the agent's routines now; None: nothing. Reads only."""
    first, end = agent.heartbeat["active_hours"]
    opening = ActiveHours(first=first, end=end, timezone=agent.timezone).next_opening(now)
    if opening > now:
        return Held(reason=WaitReason.ACTIVE_HOURS, until=opening)
    session = Session.objects.filter(agent=agent, key=heartbeat_key(agent)).first()
    if session is None:
        return None
    if session.state != SessionState.OPEN:
        return Held(reason=WaitReason.SESSION_CLOSED)
    if at_work(session.pk):
        return Held(reason=WaitReason.SESSION_BUSY)
    rested = rests_until(session.pk, SHORTEST_REST)
    return Held(reason=WaitReason.MODEL_DOWN, until=rested) if rested is not None and rested > now else None


def at_work(session_id: uuid.UUID) -> bool:
    """Whether a turn of the heartbeat's session waits or runs."""
    return Turn.objects.filter(session_id=session_id, state__in=OPEN_STATES).exists()


def rests_until(session_id: uuid.UUID, first: timedelta) -> datetime | None:
    """Until when nothing is tried because the last heartbeats found no model; `first` doubles with each of them."""
    ended = (
        Turn.objects.filter(session_id=session_id, kind=TurnKind.HEARTBEAT, finished_at__isnull=False)
        .exclude(state=TurnState.CANCELLED)
        .exclude(metadata__contains={"deterministic": True})  # it asked no model
        .order_by("-id")
        .values_list("error_code", "due_at")[:_LOOKED_AT]
    )
    down = 0
    for code, _ in ended:
        if code != ModelUnavailable.code:
            break
        down += 1
    if not down:
        return None
    return ended[0][1] + min(first * 2 ** (down - 1), max(first, LONGEST_REST))  # type: ignore[no-any-return]
