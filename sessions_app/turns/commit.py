"""The commit of a turn: history, acknowledgements, run outcome and events in one transaction.

One statement locks the session, ends the turn on the condition that the claim is still its own, and writes its messages
and events. If it finds no such turn, this worker is stale and nothing is written. What hangs on the turn follows in the
same transaction: acknowledgements, questions, guests, deliveries, and the end of its run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from agent_core.exceptions import Stale
from agent_core.types import Ending, Role, TurnResult
from sessions_app import events, metrics
from sessions_app.deliveries import outbox, system_events
from sessions_app.exceptions import OwnerInactive
from sessions_app.hints import wake
from sessions_app.limits import quotas
from sessions_app.mailbox import updates
from sessions_app.memory import task_state
from sessions_app.models import Engine, Event, Message, Session, Turn, TurnState
from sessions_app.models.session import WEB, rerouted
from sessions_app.postgres.retry import retry_while_down
from sessions_app.postgres.statements import recordset_of
from sessions_app.questions import consent, executions
from sessions_app.queue import commit_events
from sessions_app.queue.kinds import closure_text, is_persons
from sessions_app.single_line import one_line
from sessions_app.turns.commit_messages import new_messages
from sessions_app.turns.commit_statement import COMMIT, MESSAGE
from sessions_app.turns.compression import CompressedHistory
from sessions_app.turns.context import Prepared

CANCEL_REASONS = {OwnerInactive.code: "The account is inactive."}  # what people see
TITLE_LENGTH = 80
STATES = {
    Ending.SUCCEEDED: TurnState.SUCCEEDED,
    Ending.FAILED: TurnState.FAILED,
    Ending.CANCELLED: TurnState.CANCELLED,
}


@dataclass(frozen=True, kw_only=True)
class _End:
    """What the commit of a turn writes. `route`: where its answer goes."""

    prepared: Prepared
    result: TurnResult
    closure: str
    messages: list[Message]
    route: dict[str, Any] | None

    @classmethod
    def of(cls, prepared: Prepared, result: TurnResult) -> _End:
        result = _with_cancel_reason(prepared.turn, result)
        closure = closure_text(result)
        messages = new_messages(prepared, result, closure)
        return cls(
            prepared=prepared, result=result, closure=closure, messages=messages, route=_route(prepared)
        )

    @property
    def said(self) -> str:
        """The last text people see."""
        return self.closure or self.result.reply

    @property
    def acknowledges(self) -> bool:
        """Whether the mailbox updates shown with the turn are acknowledged."""
        is_shown = self.result.ending is Ending.SUCCEEDED and self.result.was_shown
        return is_shown and bool(self.prepared.event_ids)


def commit(prepared: Prepared, result: TurnResult, short: CompressedHistory | None = None) -> None:
    """End the turn with its result; `short` is the result of its compression. Stale if the claim is not its own.

    If the connection is lost during COMMIT the outcome is unknown, so every retry first reads the turn's state.
    """
    tries = 0

    def once() -> None:
        nonlocal tries
        tries += 1
        if tries > 1 and _was_committed(prepared.turn):
            # it was committed; only what follows the commit is missing
            commit_events.announce_commit(prepared.session, [prepared.turn])
            return
        end = _End.of(prepared, result)
        with transaction.atomic():
            _write(end)
            if short is not None:
                _store_compression(prepared.session, short)

    retry_while_down(once)


def _store_compression(session: Session, short: CompressedHistory) -> None:
    """Store the new task state and move the window, unless the task state was edited meanwhile."""
    if task_state.replace_state(session.pk, short.held, instead_of=short.instead_of):
        Session.objects.filter(pk=session.pk).update(
            window_from_seq=Greatest(F("window_from_seq"), short.window_from_seq)
        )


def _was_committed(turn: Turn) -> bool:
    """Whether a commit of unknown outcome succeeded. Stale if another worker has claimed the turn."""
    state = Turn.objects.filter(pk=turn.pk, claim=turn.claim).values_list("state", flat=True).first()
    if state is None:
        raise Stale
    return state != TurnState.RUNNING


def _write(end: _End) -> None:
    """Write a commit with everything that it needs, in the caller's transaction. Stale."""
    prepared, turn, result = end.prepared, end.prepared.turn, end.result
    row = _execute(end)
    if row is None:
        raise Stale
    if end.acknowledges:
        updates.acknowledge(turn, prepared.event_ids)
    if result.error_code in metrics.BUDGETS:
        system_events.report_budget(turn)
    _settle_questions(prepared, result, end.messages)
    guests = _settle_guests(turn, result) if row.has_guests else []
    _enqueue_answer(prepared, end.messages, [end.route, *(guest.metadata.get("route") for guest in guests)])
    prepared.kind.closed(turn, result, end.said)
    if guests:
        ends = [each for guest in guests for each in commit_events.turn_end_events(guest, prepared.session)]
        Event.objects.bulk_create(ends)
        commit_events.announce_commit(prepared.session, guests)


def _execute(end: _End) -> Any | None:
    """Execute the statement. None, and nothing is written: the turn is not its own."""
    prepared, turn, result, messages = end.prepared, end.prepared.turn, end.result, end.messages
    said = recordset_of("messages", [_row(message, n) for n, message in enumerate(messages, 1)])
    stored = len(said["messages"])
    by_person = is_persons(turn)
    row = COMMIT.first(
        session_id=turn.session_id,
        turn_id=turn.pk,
        claim=turn.claim,
        **_end_turn(turn, result),
        count=len(messages),
        **_kept(messages, prepared.kind.keeps),
        title=one_line(turn.content, TITLE_LENGTH) if by_person else "",
        route=json.dumps(end.route) if by_person and end.route is not None else None,
        **said,
        stored=stored,
        answer=_last_response(result),
        **recordset_of("events", commit_events.events_of_commit(prepared.session, messages, turn, result)),
        kind=turn.kind,
        run_id=turn.origin_run,
        shared_runs=json.dumps(events.shared_runs(turn)),
    )
    if row is None:
        return None
    quotas.count_stored(prepared.session.owner_id, stored)
    metrics.count_turn_limit(turn.error_code)
    for number, message in enumerate(messages, 1):
        message.session, message.turn, message.seq = prepared.session, turn, row.seq_before + number
        message.pk = row.message_ids[number - 1]
    commit_events.announce_commit(prepared.session, [turn], row.shown_in)
    return row


def _end_turn(turn: Turn, result: TurnResult) -> dict[str, Any]:
    """Set the columns that end the turn; returns them as parameters."""
    ended = {
        "state": STATES[result.ending],
        "error_code": result.error_code or "",
        "error": (result.error_text or "")[:300],
        "provider_message": result.provider_message[:300],
        "error_detail": (result.error_detail or "").replace("\x00", ""),
        "usage": result.usage.to_json(),
        "model": result.model,
        "ended_by": str(result.ended_by or ""),
    }
    for name, value in ended.items():
        setattr(turn, name, value)
    return ended | {"usage": json.dumps(ended["usage"])}


def _kept(messages: list[Message], keep: int | None) -> dict[str, int | None]:
    """Return how many messages stay in the window, and which of these is the first user message among them."""
    beyond = 0 if keep is None else len(messages) - keep
    users = (n for n, each in enumerate(messages, 1) if each.role == Role.USER and n > beyond)
    return {"keep": keep, "first_user": next(users, None) if keep is not None else None}


def _row(message: Message, n: int) -> dict[str, Any]:
    return {name: getattr(message, name) for name in MESSAGE} | {"n": n}


def _last_response(result: TurnResult) -> str | None:
    """Return the last response for the journal, if the turn has one."""
    if result.ending is not Ending.SUCCEEDED or not result.entries:
        return None
    return json.dumps({"entry": result.entries[-1].to_json(), "usage": result.usage.to_json()})


def _settle_questions(prepared: Prepared, result: TurnResult, messages: list[Message]) -> None:
    """Store the questions that were asked and answered. A question is in the last message."""
    seq = messages[-1].seq if messages else 0
    if _may_have_planned(prepared, result):
        executions.settle_executions(prepared.turn, result, seq)
    if result.answered is not None:
        consent.settle_question(*result.answered, prepared.turn)
    if result.asks is not None and not result.asks.execution:
        consent.store_question(prepared.turn, result.asks, seq)


def _with_cancel_reason(turn: Turn, result: TurnResult) -> TurnResult:
    """Add the reason to the result of a turn that the server cancelled."""
    if result.ending is not Ending.CANCELLED or result.error_code:
        return result
    reason = Turn.objects.filter(pk=turn.pk).values_list("cancel_reason", flat=True).first()
    return replace(result, error_code=reason, error_text=CANCEL_REASONS.get(reason)) if reason else result


def _enqueue_answer(prepared: Prepared, messages: list[Message], routes: list[dict[str, Any] | None]) -> None:
    """Enqueue deliveries of the last answer to the turn's route and to those of its guests."""
    said = [message for message in messages if message.role == Role.ASSISTANT and message.content]
    if said and prepared.kind.delivers_answer:
        outbox.enqueue_deliveries(prepared.session, said[-1], routes)


def _route(prepared: Prepared) -> dict[str, Any] | None:
    """Return where the turn's answer goes. If the session's address was changed meanwhile, to the new one."""
    turn, session = prepared.turn, prepared.session
    route: dict[str, Any] | None = prepared.trigger.route or turn.metadata.get("route")
    if route is None and prepared.kind.uses_standing_route:  # its trigger could not be read
        route = session.standing_route
    if route and route["channel"] == session.channel != WEB and route["chat_id"] == session.chat_id:
        now = Session.objects.only("channel", "chat_id", "channel_meta").get(pk=session.pk)
        return rerouted(route, session.own_route, now.own_route)
    return route


def _settle_guests(turn: Turn, result: TurnResult) -> list[Turn]:
    """Merge the guests if their host succeeded; else release them to run by themselves. Returns the merged ones."""
    guests = Turn.objects.filter(session_id=turn.session_id, host_id=turn.pk, state=TurnState.QUEUED)
    if result.ending is Ending.SUCCEEDED:
        return [guest for guest in list(guests) if Turn.objects.merge(guest)]
    Turn.objects.release_guests(turn)
    wake(turn.session_id, turn.lane)
    return []


def _may_have_planned(prepared: Prepared, result: TurnResult) -> bool:
    """Whether the turn may have an execution. A chat's turn saves the statement; a broken turn may have had one."""
    is_broken = not prepared.request.model
    plans = prepared.agent.engine == Engine.PLANNER
    return plans or is_broken or prepared.turn.attempt > 1 or result.execution is not None
