"""The story of a turn: lock, claim, context, agent (or words that need none), judge, shorten, commit, release.

After the release it looks again. Whatever dies on the way leaves rows that the next worker can go on from: a RUNNING
turn with a journal.
"""

from __future__ import annotations

import uuid

import structlog
from django.db import InterfaceError, OperationalError, connection

from agent_core.control import Signal
from agent_core.evaluate import evaluate_response
from agent_core.exceptions import Stale
from agent_core.journal import said_so_far
from agent_core.types import Ending, Entry, EventType, Role, TurnResult
from sessions_app.claim import MAX_RESCUES, claim_next, look
from sessions_app.commit import close_without_history, commit
from sessions_app.compress import shortened
from sessions_app.context import Prepared, broken, prepare
from sessions_app.journal import Journal
from sessions_app.kinds import Unkept
from sessions_app.lock import Handle
from sessions_app.models import Lane, Turn
from sessions_app.planning import story_of
from sessions_app.publish import publisher
from sessions_app.wake import wake
from sessions_app.worker import WorkerProcess

log = structlog.get_logger(__name__)


def run_next_turn(worker: WorkerProcess, session_id: uuid.UUID, lane: str) -> None:
    """Run the session's next turn, if there is one and nobody else is at it."""
    handle = worker.locks.try_hold(session_id)
    if handle is None:
        return  # whoever holds it looks again after its release
    try:
        turn = claim_next(session_id, worker.id, auto_allowed=lane == Lane.AUTO)
        if turn is not None:
            _run(worker, handle, turn)
    finally:
        worker.locks.release(handle)
    # only now: a message that came while the lock was held found it taken
    waiting = look(session_id)
    if waiting is not None:
        wake(session_id, waiting)


def _run(worker: WorkerProcess, handle: Handle, turn: Turn) -> None:
    handle.turn_id, handle.claim = turn.pk, turn.claim
    with structlog.contextvars.bound_contextvars(
        session=str(turn.session_id), turn=turn.pk, run=turn.origin_run or None, worker=str(worker.id)
    ):
        log.info("turn_start", kind=turn.kind, attempt=turn.attempt)
        worker.follow(handle)
        try:
            _finish(handle, turn)
        except Stale:
            log.warning("turn_stale")
        except (OperationalError, InterfaceError):
            log.exception("turn_left")  # RUNNING with our name on it: the sweep brings it back to us


def _finish(handle: Handle, turn: Turn) -> None:
    journal = Journal(turn)
    try:
        prepared = prepare(turn, journal)
        result = _ended_before_it_began(prepared) or _said(handle, prepared) or _talk(handle, prepared)
        result = _judged(handle, prepared, result)
        if result.ending is Ending.HANDED_BACK:
            _hand_back(turn)
            return
        result, short = shortened(prepared, result, handle.control)
        commit(prepared, result, short)
    except (Stale, OperationalError, InterfaceError):
        raise
    except Unkept as refusal:
        log.warning("result_not_kept", code=refusal.code)
        _fail(turn, journal, refusal)
    except Exception as error:  # a bug must end this turn visibly, not come again for ever
        log.exception("turn_broke")
        _fail(turn, journal, error)
    log.info("turn_end", state=turn.state, code=turn.error_code)


def _fail(turn: Turn, journal: Journal, error: Exception) -> None:
    try:
        commit(*broken(turn, journal, error))
    except (Stale, OperationalError, InterfaceError):
        raise
    except Exception:  # not even its failure can be stored
        log.exception("failure_broke")
        close_without_history(turn)


def _hand_back(turn: Turn) -> None:
    if Turn.objects.hand_back(turn):
        log.info("turn_handed_back")


def _ended_before_it_began(prepared: Prepared) -> TurnResult | None:
    """A turn that was rescued too often without getting on fails where people see it."""
    turn = prepared.turn
    if turn.rescues <= MAX_RESCUES:
        return None
    entries, usage = said_so_far(prepared.request.steps)
    return TurnResult(
        ending=Ending.FAILED,
        entries=entries,
        usage=usage,
        error_code="max_rescues",
        error_text="It was interrupted too often.",
        error_detail=f"rescued {turn.rescues} times without a new journal step",
    )


def _said(handle: Handle, prepared: Prepared) -> TurnResult | None:
    """Some turns need no model: their kind knows what they say. One that was cancelled says nothing (rule 1.11)."""
    text = prepared.kind.said(prepared.turn)
    if text is None:
        return None
    if prepared.turn.cancel_requested_at is not None or handle.control.signal is Signal.CANCEL:
        return TurnResult(ending=Ending.CANCELLED)
    return TurnResult(ending=Ending.SUCCEEDED, entries=(Entry(role=Role.ASSISTANT, content=text),))


def _talk(handle: Handle, prepared: Prepared) -> TurnResult:
    turn, control = prepared.turn, handle.control
    story = story_of(prepared, control)
    session_id, deltas = str(turn.session_id), publisher()
    connection.close()  # back to the pool: nothing is open while the model thinks
    while True:
        if turn.cancel_requested_at is not None and control.signal is not Signal.CANCEL:
            control.cancel()
        try:
            event = next(story)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if event.type is EventType.LLM_DELTA:
            deltas.delta(session_id, turn.pk, turn.attempt, event.content["text"])


def _judged(handle: Handle, prepared: Prepared, result: TurnResult) -> TurnResult:
    """Where the turn's kind asks for it, one more model call says whether the reply is worth telling."""
    task = prepared.kind.to_judge(prepared.turn, result)
    if task is None:
        return result
    connection.close()  # the journal may have opened it again during the talk
    return evaluate_response(result, task=task, request=prepared.request, control=handle.control)
