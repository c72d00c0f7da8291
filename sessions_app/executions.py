"""Executions as rows: read, stored behind the fence of their turn, ended with it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from django.db.models.functions import Now

from agent_core.exchange import Cancelled
from agent_core.execution import ARROWS, AT_WORK, WAITING, Execution, Observation, PlanStep, Status
from agent_core.types import Ending, TurnResult
from sessions_app.models import ExecutionState, Turn, TurnKind

_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
_PLAIN = (
    *("request", "goal", "plans", "current_step", "iterations", "question", "reply", "final_answer"),
    *("last_error", "catalogue", "revise", "heard"),
)
GONE = "The turn that worked on it ended."


def new_id() -> str:
    """A short public id that people can type."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(8))


def of_session(turn: Turn) -> list[Execution]:
    """What a message may be about, the newest first: what waited when it was written, and what may be tried again.

    A message that was on its way already when a question was asked is no answer to it.
    """
    rows = ExecutionState.objects.filter(session_id=turn.session_id)
    waiting = list(rows.filter(status__in=WAITING, asked_at__lt=turn.queued_at))
    last = rows.filter(source=TurnKind.MESSAGE).exclude(status__in=WAITING).exclude(closed_by="clear").first()
    found = [*waiting, last] if last is not None else waiting
    return [execution_of(row) for row in sorted(found, key=lambda row: row.created_at, reverse=True)]


def of_turn(turn: Turn) -> Execution | None:
    """What an earlier attempt of this turn works on."""
    row = ExecutionState.objects.filter(turn=turn, status__in=AT_WORK).first()
    return None if row is None else execution_of(row)


def execution_of(row: ExecutionState) -> Execution:
    """The row as data."""
    return Execution(
        id=row.pk,
        status=Status(row.status),
        steps=tuple(PlanStep.from_json(step) for step in row.steps),
        observations=tuple(Observation(**each) for each in row.observations),
        **{name: getattr(row, name) for name in _PLAIN},
    )


def _values(execution: Execution) -> dict[str, Any]:
    values = {name: getattr(execution, name) for name in _PLAIN}
    values["status"] = execution.status
    values["steps"] = [step.to_json() for step in execution.steps]
    values["observations"] = [each.to_json() for each in execution.observations]
    return values


def store(turn: Turn, execution: Execution, *, instead_of: str = "") -> None:
    """Store it, in the transaction under way; Cancelled when somebody ended it meanwhile.

    `instead_of`: the one that waits and is given up for this one, once this one has its plan.
    """
    values = _values(execution)
    if execution.status in WAITING:
        values["asked_at"] = Now()
    if instead_of and execution.status is Status.RUNNING:
        ExecutionState.objects.filter(pk=instead_of, session_id=turn.session_id).close("reset")
    if ExecutionState.objects.move(execution.id, turn, _before(execution.status), values):
        return
    if ExecutionState.objects.filter(pk=execution.id).exists():
        raise Cancelled
    origin = str(turn.metadata.get("automation_id", ""))
    ExecutionState.objects.create(
        id=execution.id, session_id=turn.session_id, turn=turn, source=turn.kind, origin=origin, **values
    )


def settle(turn: Turn, result: TurnResult) -> None:
    """With the turn's end: what it came to. Whatever this turn still had at work ends with it."""
    if result.execution is not None:
        store(turn, result.execution)
        if result.execution.status in WAITING:
            _close_older(turn, result.execution.id)
    ended = Status.CANCELLED if result.ending is Ending.CANCELLED else Status.FAILED
    ExecutionState.objects.leave(turn, ended, result.error_text or GONE)


def _close_older(turn: Turn, execution_id: str) -> None:
    """A job that asks at each slot has one question, the newest: no pile of them takes up what people say."""
    origin = turn.metadata.get("automation_id")
    if origin:
        rows = ExecutionState.objects.filter(session_id=turn.session_id, origin=origin)
        rows.exclude(pk=execution_id).close("newer")


def _before(status: Status) -> Iterable[Status]:
    """The states from which it may be stored as this one: one arrow, or the two that a turn takes at once."""
    one = {each for each, ways in ARROWS.items() if status in ways} | {status}
    # a reply is planned for before anything of it is stored: waiting → planning → running
    return one | (
        {each for each in ARROWS if Status.PLANNING in ARROWS[each]} if status is Status.RUNNING else set()
    )
