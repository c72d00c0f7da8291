"""When a heartbeat must wait: while its session has an open turn; with backoff, while the model is down (5.1, 5.2).

Also here: the tasks that need no model (rule 5.5).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

import structlog
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Exists, OuterRef
from django.db.models.functions import JSONObject

from agent_core.exceptions import PASSING_CODES, Stale
from automations.models.job import heartbeat_key
from automations.runs.skips import GapReason
from automations.schedules.zone_files import load_zone
from sessions_app import metrics
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Session, SessionState, Turn, TurnInput, TurnKind, TurnState
from sessions_app.models.turn import OPEN_STATES

log = structlog.get_logger(__name__)

FIRST_BACKOFF, LONGEST_BACKOFF = timedelta(minutes=1), timedelta(hours=6)
_LOOKED_AT = 10  # turns


class InternalSession(NamedTuple):
    """The session of a system or legacy job, with what decides whether a heartbeat can start in it.

    `ended`: the last turns of a heartbeat's session that have called the model, newest first, each with its error code
    and its slot.
    """

    id: uuid.UUID
    agent_id: int
    key: str
    state: str
    has_open_turn: bool
    ended: list[dict[str, str]]

    def retry_at(self, first: timedelta) -> datetime | None:
        """When to try again after the last heartbeats found the model down; `first` doubles with each of them.

        None: the last heartbeat reached the model.
        """
        down = next(
            (n for n, turn in enumerate(self.ended) if turn["code"] not in PASSING_CODES), len(self.ended)
        )
        if not down:
            return None
        wait: timedelta = min(first * 2 ** (down - 1), max(first, LONGEST_BACKOFF))
        return datetime.fromisoformat(self.ended[0]["slot"]) + wait


def read_sessions(wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], InternalSession]:
    """The internal sessions with these agents and keys that exist, in one statement."""
    agents, keys = zip(*pairs, strict=True) if (pairs := set(wanted)) else ((), ())
    turns = Turn.objects.filter(session=OuterRef("pk"))
    heartbeats = turns.filter(kind=TurnKind.HEARTBEAT, finished_at__isnull=False).exclude(
        state=TurnState.CANCELLED
    )
    model_free = TurnInput(deterministic=True).to_json()
    with_model = heartbeats.exclude(metadata__contains=model_free).order_by("-pk")
    ended = with_model.values(pair=JSONObject(code="error_code", slot="due_at"))
    rows = Session.objects.filter(agent_id__in=agents, key__in=keys).annotate(
        has_open_turn=Exists(turns.filter(state__in=OPEN_STATES)), ended=ArraySubquery(ended[:_LOOKED_AT])
    )
    fields = InternalSession._fields
    found = (InternalSession(*row) for row in rows.values_list(*fields))
    return {pair: each for each in found if (pair := (each.agent_id, each.key)) in pairs}


def heartbeat_skip_reason(
    session: InternalSession, slot: datetime, interval_seconds: int
) -> GapReason | None:
    """Why a heartbeat's slot is skipped: an open turn in its own session, or the model is down; None: it is run."""
    if session.has_open_turn:
        log.info("HEARTBEAT_SKIPPED", session=str(session.id), reason="session_busy")
        metrics.count(Counted.HEARTBEAT_SKIPPED)
        return GapReason.SESSION_BUSY
    retry_at = session.retry_at(timedelta(seconds=interval_seconds))
    # after a single failure the next slot is the first retry
    if retry_at is not None and slot + timedelta(seconds=1) < retry_at:
        log.info("HEARTBEAT_SKIPPED", session=str(session.id), reason="model_down")
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


def why_routines_wait(agent: Agent, now: datetime, *, need_model: bool = True) -> Wait | None:
    """Why the agent's due routines cannot start now; None: they can. Reads only.

    Active hours are no reason: they limit the heartbeat's own interval only (rule 5.3).
    """
    if not agent.owner.is_active:
        return Wait(reason=WaitReason.OWNER_INACTIVE)
    key = agent.pk, heartbeat_key(agent.name)
    session = read_sessions([key]).get(key)
    if session is None:
        return None
    if session.state != SessionState.OPEN:
        return Wait(reason=WaitReason.SESSION_CLOSED)
    if session.has_open_turn:
        return Wait(reason=WaitReason.SESSION_BUSY)
    retry_at = session.retry_at(FIRST_BACKOFF) if need_model else None
    if retry_at is None or retry_at <= now:
        return None
    return Wait(reason=WaitReason.MODEL_DOWN, until=retry_at)


def answer_without_model(turn: Turn) -> str | None:
    """Return a JSON list with each task's result; None when the turn needs a model. Failures are stored. Stale."""
    if not turn.input.deterministic:
        return None
    try:
        given = [_time(task) | {"id": task["id"], "run": task["run"]} for task in turn.input.tasks]
    except Exception:
        log.exception("deterministic_task_failed", turn=turn.pk)
        warning = " A program that does them by itself has failed."
        if not Turn.objects.change_input(turn, deterministic=False, warning=warning):
            raise Stale from None
        return None
    return json.dumps(given, ensure_ascii=False)


def _time(task: dict[str, Any]) -> dict[str, Any]:
    now = datetime.now(UTC).astimezone(load_zone(task["timezone"]))
    return {
        "task_type": task["task_type"],
        "now_iso": now.isoformat(timespec="seconds"),
        "timezone": task["timezone"],
        "display": f"{task['title']}: it is {now.strftime('%Y-%m-%d %H:%M:%S')} ({task['timezone']}).",
    }
