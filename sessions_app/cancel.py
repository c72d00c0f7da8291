"""Cancel: a waiting turn ends at once, a running one is asked to end itself.

The holder of a running turn commits CANCELLED with what was said so far. Taking the state away from outside would
make the holder stale, and the partial answer, the run's outcome and the closure would be lost.
"""

from __future__ import annotations

import uuid

from django.db import transaction

from agent_core.types import Ending, TurnResult
from sessions_app import events
from sessions_app.commit_events import turn_end
from sessions_app.exceptions import NotFound, TurnEnded
from sessions_app.kinds import kind_of
from sessions_app.models import Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.patience import through_deadlocks
from sessions_app.publish import CONTROL, publisher
from sessions_app.wake import wake


def cancel_turn(turn_id: int, reason: str = "cancelled") -> Turn:
    """End a waiting turn, or ask a running one to end. NotFound; TurnEnded: there is nothing left to cancel."""
    return through_deadlocks(lambda: _cancel(turn_id, reason))


@transaction.atomic
def _cancel(turn_id: int, reason: str) -> Turn:
    if cancel_waiting(turn_id, reason):
        return Turn.objects.get(pk=turn_id)
    asked = Turn.objects.request_cancel(turn_id)
    try:
        turn = Turn.objects.get(pk=turn_id)
    except Turn.DoesNotExist:
        raise NotFound("there is no such turn") from None
    if not asked and turn.state not in OPEN_STATES:
        raise TurnEnded(f"the turn has ended: {turn.state}")
    _tell(turn)
    return turn


@transaction.atomic
def cancel_waiting(turn_id: int, reason: str) -> bool:
    """End a turn that waits, with its run; False, and nothing changed, when it does not wait any more."""
    # the session before the turn, as everybody locks: the event refers to it
    session = Session.objects.select_for_update(no_key=True).filter(turns=turn_id).first()
    if session is None or not Turn.objects.cancel_queued(turn_id, reason):
        return False
    turn = Turn.objects.get(pk=turn_id)
    kind_of(turn).closed(turn, TurnResult(ending=Ending.CANCELLED, error_code=reason), "")
    turn_end(turn, session.agent_id).save(force_insert=True)
    events.announce(turn.session_id)
    return True


def interrupt(session_id: uuid.UUID) -> None:
    """Ask the running turn of a session, if there is one, to end for a person's message."""
    running = Turn.objects.filter(session_id=session_id, state=TurnState.RUNNING).first()
    if running is not None and Turn.objects.request_cancel(running.pk):
        _tell(running)


def _tell(turn: Turn) -> None:
    # the worker that runs it listens; if nobody does, a hint brings somebody who looks
    transaction.on_commit(lambda: publisher().notify(CONTROL, {"cancel": turn.pk}), robust=True)
    wake(turn.session_id, turn.lane)
