"""Cancel turns: a queued turn ends at once, a running one is asked to end.

The worker of a running turn commits it as CANCELLED, with the answer so far. If the state were changed from outside,
the worker would be stale, and the partial answer, the run's outcome and the closure would be lost.
"""

from __future__ import annotations

import uuid

from django.db import transaction

from agent_core.types import Ending, TurnResult
from sessions_app import events
from sessions_app.exceptions import TurnEnded
from sessions_app.hints import wake
from sessions_app.models import Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.notify import CONTROL, publisher
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.postgres.rows import existing
from sessions_app.queue.kinds import kind_of


def cancel_turn(turn_id: int, reason: str = "cancelled") -> Turn:
    """End a queued turn, or ask a running one to end. NotFound; TurnEnded if it has already ended."""
    return retry_deadlocks(lambda: _cancel(turn_id, reason))


@transaction.atomic
def _cancel(turn_id: int, reason: str) -> Turn:
    if cancel_waiting(turn_id, reason):
        return Turn.objects.get(pk=turn_id)
    asked = Turn.objects.request_cancel(turn_id)
    turn = existing(Turn.objects.filter(pk=turn_id))
    if not asked and turn.state not in OPEN_STATES:
        raise TurnEnded(f"the turn has already ended ({turn.state})")
    _notify_worker(turn)
    return turn


@transaction.atomic
def cancel_waiting(turn_id: int, reason: str) -> bool:
    """End a queued turn and its run. False if it is not queued any more; then nothing is changed."""
    # lock order: the session before the turn
    session = Session.objects.select_for_update(no_key=True).filter(turns=turn_id).first()
    if session is None or not Turn.objects.cancel_queued(turn_id, reason):
        return False
    turn = Turn.objects.get(pk=turn_id)
    kind_of(turn).closed(turn, TurnResult(ending=Ending.CANCELLED, error_code=reason), "")
    events.turn_end(turn, session.agent_id).save(force_insert=True)
    events.announce(turn.session_id, ended=[turn])
    return True


def interrupt(session_id: uuid.UUID) -> None:
    """Ask the running turn of a session, if any, to end because of a person's message."""
    running = Turn.objects.filter(session_id=session_id, state=TurnState.RUNNING).first()
    if running is not None and Turn.objects.request_cancel(running.pk):
        _notify_worker(running)


def _notify_worker(turn: Turn) -> None:
    # the worker that runs it listens; without one, the hint brings a worker that claims and cancels it
    transaction.on_commit(lambda: publisher().notify(CONTROL, {"cancel": turn.pk}), robust=True)
    wake(turn.session_id, turn.lane)
