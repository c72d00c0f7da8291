"""Run the next turn of a session: lock, claim, prepare, engine (or an answer without one), judge, compress, commit.

After the lock is released it looks for the next turn. If the worker dies on the way, the turn is RUNNING and has a
journal, from which the next worker continues.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Protocol

import structlog
from django.db import InterfaceError, OperationalError, connection

from agent_core.exceptions import Stale
from agent_core.text.redact import hiding
from agent_core.turn.control import Signal
from agent_core.turn.judge import evaluate_response
from agent_core.turn.transcript import said_so_far, used_in
from agent_core.types import Ending, Entry, Role, TurnEvent, TurnEventType, TurnResult, Usage
from sessions_app import metrics
from sessions_app.hints import wake
from sessions_app.journal import Journal
from sessions_app.models import Lane, Turn
from sessions_app.postgres.notify import TEXT, THOUGHT, Try, publisher
from sessions_app.queue.kinds import CommitRefused, NothingToDo, kind_of
from sessions_app.tracing import turn_span
from sessions_app.turns.claim import MAX_RESCUES, MOST_ATTEMPTS, claim_next
from sessions_app.turns.commit import commit
from sessions_app.turns.compression import compress_history
from sessions_app.turns.context import Prepared, prepare_failure, prepare_skip, prepare_turn
from sessions_app.turns.engine import run_engine
from sessions_app.turns.lock import Handle, SessionLocks
from sessions_app.turns.next_lane import next_lane

log = structlog.get_logger(__name__)

LONGEST_REASON = 300  # characters of the reason why the model is asked again
PUBLISHED = {TurnEventType.LLM_DELTA, TurnEventType.LLM_THOUGHT, TurnEventType.STATUS}
UNSTORED, UNSTORED_TEXT = "commit_failed", "It could not be stored."


class Runner(Protocol):
    """A worker process, as it runs turns."""

    @property
    def id(self) -> uuid.UUID:
        """The worker's id, which its claims store."""

    @property
    def locks(self) -> SessionLocks:
        """The session locks of the process."""

    def follow(self, handle: Handle) -> None:
        """A turn begins under this handle. If the worker is already stopping, the turn is stopped too."""


def run_next_turn(runner: Runner, session_id: uuid.UUID, lane: str) -> None:
    """Run the session's next turn, if there is one and no other worker holds the session. Then hint at the next."""
    handle = runner.locks.try_hold(session_id, for_work=True)
    if handle is None:
        return  # there is nothing to do, or the holder looks for the next turn after its release
    try:
        turn = claim_next(session_id, runner.id, auto_allowed=lane == Lane.AUTO)
        if turn is not None:
            _run(runner, handle, turn)
    finally:
        runner.locks.release(handle)
    # after the release, because the hint of a message that came before found the lock taken
    for each in next_lane(session_id):
        wake(each.session_id, each.lane)


def _run(runner: Runner, handle: Handle, turn: Turn) -> None:
    """Run a claimed turn."""
    handle.turn_id, handle.claim = turn.pk, turn.claim
    with structlog.contextvars.bound_contextvars(
        session=str(turn.session_id),
        turn=turn.pk,
        run=turn.origin_run or None,
        worker=str(runner.id),
        **({"request": turn.input.request} if turn.input.request else {}),
    ):
        log.info("turn_start", kind=turn.kind, attempt=turn.attempt)
        runner.follow(handle)
        try:
            with turn_span(turn):
                _finish(handle, turn)
        except Stale:
            log.warning("turn_stale")
        except (OperationalError, InterfaceError):
            log.exception("turn_left")  # it stays RUNNING and claimed by this worker: the sweep hints again
            connection.close()  # the search for the next turn gets another one
        finally:
            publisher().forget(turn.pk)


def _finish(handle: Handle, turn: Turn) -> None:
    journal, began = Journal(turn), time.monotonic()
    handle.control.used = Usage.from_json(turn.usage) + used_in(journal.steps())  # by earlier attempts
    if turn.error_code == UNSTORED:  # an earlier attempt could not store its end
        _fail(handle, turn, journal, CommitRefused(UNSTORED, UNSTORED_TEXT))
        return
    try:
        kind_of(turn).before(turn, journal, handle.control)
        prepared = prepare_turn(turn, journal, handle.control.used)
        with hiding(secret for each in prepared.request.connections for secret in each.secrets):
            result = (
                _too_many_rescues(prepared)
                or _answer_without_model(handle, prepared)
                or _run_engine(handle, prepared)
            )
            result = _judged(handle, prepared, result)
            if result.ending is Ending.HANDED_BACK:
                _hand_back(handle, turn, journal)
                return
            if result.ending is Ending.FAILED and prepared.kind.repeats(turn, result):
                raise NothingToDo(result.error_code or "", result.error_text or "", result.cap)
            short = compress_history(prepared, result, handle.control)
        commit(prepared, replace(result, usage=handle.control.used), short)
    except (Stale, OperationalError, InterfaceError):
        raise
    except NothingToDo as skip:
        commit(*prepare_skip(turn, journal, skip))
    except CommitRefused as refusal:
        log.warning("result_not_kept", code=refusal.code)
        _fail(handle, turn, journal, refusal)
    except Exception as error:  # a bug must end this turn visibly, not be retried for ever
        log.exception("turn_broke")
        _fail(handle, turn, journal, error)
    log.info("turn_end", state=turn.state, code=turn.error_code)
    metrics.count_turn(turn.lane, turn.state, turn.error_code, time.monotonic() - began, turn.usage)


def _hand_back(handle: Handle, turn: Turn, journal: Journal) -> None:
    """Hand the turn back, with the usage of replies that no step of its journal tells of."""
    unwritten = handle.control.used - used_in(journal.steps(of_this_attempt=True))
    if Turn.objects.hand_back(turn, unwritten.to_json() if unwritten.requests else {}):
        log.info("turn_handed_back")


def _fail(handle: Handle, turn: Turn, journal: Journal, error: Exception) -> None:
    """End the turn as FAILED with its answer so far, or with its closure alone if that cannot be stored.

    If that fails too, the turn stays RUNNING and is marked; the sweep hints again until the closure is stored.
    """
    for plain, why in ((False, error), (True, CommitRefused(UNSTORED, UNSTORED_TEXT))):
        try:
            commit(*prepare_failure(turn, journal, why, plain=plain, used=handle.control.used))
        except (Stale, OperationalError, InterfaceError):
            raise
        except Exception:
            log.exception("failure_broke", plain=plain)
        else:
            return
    Turn.objects.mark_unstored(turn)


def _too_many_rescues(prepared: Prepared) -> TurnResult | None:
    """Fail a turn that was rescued too often without progress, so that people see it."""
    turn = prepared.turn
    if turn.rescues <= MAX_RESCUES and turn.attempt <= MOST_ATTEMPTS:
        return None
    entries, usage = said_so_far(prepared.request.steps)
    return TurnResult(
        ending=Ending.FAILED,
        entries=entries,
        usage=usage,
        error_code="max_rescues",
        error_text="It was interrupted too often.",
        error_detail=f"rescued {turn.rescues} times without a new journal step; begun {turn.attempt} times",
    )


def _answer_without_model(handle: Handle, prepared: Prepared) -> TurnResult | None:
    """Answer a turn that needs no model. A cancelled one has no answer (rule 1.11)."""
    if prepared.answer is None:
        return None
    if prepared.turn.cancel_requested_at is not None or handle.control.signal is Signal.CANCEL:
        return TurnResult(ending=Ending.CANCELLED)
    return TurnResult(ending=Ending.SUCCEEDED, entries=(Entry(role=Role.ASSISTANT, content=prepared.answer),))


def _run_engine(handle: Handle, prepared: Prepared) -> TurnResult:
    turn, control = prepared.turn, handle.control
    story = run_engine(prepared, control)
    connection.close()  # back to the pool during the model call
    while True:
        if turn.cancel_requested_at is not None and control.signal is not Signal.CANCEL:
            control.cancel()
        try:
            event = next(story)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        _publish(turn, event)


def _publish(turn: Turn, event: TurnEvent) -> None:
    """Send the answer's deltas and aborted tries to windows at once. The ports store all other events."""
    if event.type not in PUBLISHED:
        return
    of = Try(
        s=str(turn.session_id),
        turn=turn.pk,
        attempt=turn.attempt,
        step=event.content["step"],
        number=event.content["try"],
        source_type=turn.kind,
        run_id=turn.origin_run,
    )
    if event.type is TurnEventType.STATUS:
        # the size of a notification is limited, and a provider's reason may be long
        said = event.content | {"text": event.content["text"][:LONGEST_REASON]}
        publisher().retrying(of, said)
    else:
        kind = TEXT if event.type is TurnEventType.LLM_DELTA else THOUGHT
        publisher().delta(of, event.content["text"], kind)


def _judged(handle: Handle, prepared: Prepared, result: TurnResult) -> TurnResult:
    """If the turn's kind asks for it, have the model judge whether the reply is worth delivering."""
    task = prepared.kind.to_judge(prepared.turn, result)
    if task is None:
        return result
    connection.close()  # the journal may have opened it again
    return evaluate_response(result, task=task, request=prepared.request, control=handle.control)
