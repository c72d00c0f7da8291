"""Read and store executions. Writes are behind the fence of the turn that works on them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from agent_core.execution import (
    ARROWS,
    AT_WORK,
    WAITING,
    ConsentRequest,
    Execution,
    Observation,
    PlanStep,
    Status,
)
from agent_core.turn.exchange import Cancelled
from agent_core.types import Ending, TurnResult
from sessions_app import permits
from sessions_app.journal import Journal
from sessions_app.models import ExecutionState, Turn, TurnKind
from sessions_app.questions import consent

_PLAIN = (
    *("request", "goal", "plans", "current_step", "iterations", "question", "question_id"),
    *("reply", "final_answer"),
    *("last_error", "catalogue", "revise", "heard"),
)
GONE = "The turn that worked on it ended."


def executions_of_session(turn: Turn) -> list[Execution]:
    """Return the executions a message may refer to: those that waited when it was written, newest first, and the last
    one that may be retried.

    A message that was sent before a question was asked does not answer it. A message that was sent as the answer to a
    question answers only that one, not the next question of the same execution.
    """
    rows = ExecutionState.objects.filter(session_id=turn.session_id)
    given = turn.input
    there = Q(asked_at__lt=turn.queued_at, asked_seq__lte=given.seen)
    if given.execution:
        there = Q(pk=given.execution, question_id=given.question)
    waiting = list(rows.filter(there, status__in=WAITING).order_by("-asked_at", "-created_at"))
    last = rows.filter(source=TurnKind.MESSAGE).exclude(status__in=WAITING).exclude(closed_by="clear").first()
    found = [*waiting, last] if last is not None else waiting
    return [execution_of(row) for row in found]


def take_execution(execution_id: str, journal: Journal) -> None:
    """Reserve a waiting execution for this turn: until the turn has ended, no other answer is accepted."""
    with transaction.atomic():
        journal.fence()
        rows = ExecutionState.objects.filter(session_id=journal.turn.session_id)
        rows.reserve(execution_id, journal.turn)


def execution_of_turn(turn: Turn) -> Execution | None:
    """Return the execution that an earlier attempt of this turn works on, if any."""
    row = ExecutionState.objects.filter(turn=turn, status__in=AT_WORK).first()
    return None if row is None else execution_of(row)


def execution_of(row: ExecutionState) -> Execution:
    """Convert a row to data."""
    return Execution(
        id=row.pk,
        status=Status(row.status),
        steps=tuple(PlanStep.from_json(step) for step in row.steps),
        observations=tuple(Observation(**each) for each in row.observations),
        origin=row.origin,
        has_read=row.has_read,
        **{name: getattr(row, name) for name in _PLAIN},
    )


def _values(execution: Execution) -> dict[str, Any]:
    values = {name: getattr(execution, name) for name in _PLAIN}
    values["status"] = execution.status
    values["steps"] = [step.to_json() for step in execution.steps]
    values["observations"] = [asdict(each) for each in execution.observations]
    return values


def store_execution(turn: Turn, execution: Execution, *, has_read: bool = False, seq: int = 0) -> None:
    """Store an execution in the current transaction. Cancelled if it was ended meanwhile.

    `has_read`: the turn has read text from outside; the execution keeps that mark. `seq`: the message that contains the
    question.
    """
    values = _values(execution)
    if has_read:
        values["has_read"] = True
    if execution.status in WAITING:
        values |= {"asked_at": Now(), "asked_seq": seq}
    if ExecutionState.objects.move(execution.id, turn, _states_before(execution.status), values):
        return
    if ExecutionState.objects.filter(pk=execution.id).exists():
        raise Cancelled
    ExecutionState.objects.begin(execution.id, turn, permits.execution_origin(turn), values)


def settle_executions(turn: Turn, result: TurnResult, seq: int = 0) -> None:
    """Store the turn's execution in its commit, and end whatever the turn still worked on.

    `seq`: the turn's last message, which contains the question.
    """
    execution = result.execution
    if execution is not None:
        store_execution(turn, execution, seq=seq)
        if execution.status in WAITING:
            _close_older(turn, execution.id)
        if execution.status in WAITING and execution.asks:
            consent.store_question(turn, _asked(execution), seq)
    if result.asks is not None and result.asks.execution:
        _ask_again(turn, result.asks, seq)
    ended = Status.CANCELLED if result.ending is Ending.CANCELLED else Status.FAILED
    ExecutionState.objects.end_with_turn(turn, ended, result.error_text or GONE)


def _asked(execution: Execution) -> ConsentRequest:
    return ConsentRequest(
        id=execution.question_id, text=execution.question, calls=execution.asks, execution=execution.id
    )


def _ask_again(turn: Turn, asked: ConsentRequest, seq: int) -> None:
    """Ask the same question again in a newer message. An execution that was cancelled just now stays cancelled."""
    if ExecutionState.objects.ask_again(asked, turn, seq):
        consent.store_question(turn, asked, seq)


def _close_older(turn: Turn, execution_id: str) -> None:
    """Keep only the newest question of a job that asks in each run."""
    origin = turn.input.automation_id
    if origin:
        rows = ExecutionState.objects.filter(session_id=turn.session_id, origin=origin)
        rows.exclude(pk=execution_id).close("newer")


def _states_before(status: Status) -> set[Status]:
    """Return the states from which the execution may change to this one."""
    before = {each for each, ways in ARROWS.items() if status in ways} | {status}
    if status is Status.RUNNING:  # a reply is stored once it has its plan: waiting → planning → running
        before |= {each for each, ways in ARROWS.items() if Status.PLANNING in ways}
    return before
