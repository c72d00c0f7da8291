"""The commit of a turn: history, acknowledgements, run outcome and events in one transaction.

The first statement increases the session's revision and assigns the seqs. The second ends the turn, on the condition
that the claim is still its own. If it finds no row, this worker is stale and the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from agent_core.exceptions import Stale
from agent_core.types import Ending, Entry, Role, StepKind, TurnResult
from sessions_app import metrics
from sessions_app.deliveries import outbox
from sessions_app.exceptions import OwnerInactive
from sessions_app.hints import wake
from sessions_app.mailbox import updates
from sessions_app.memory import task_state
from sessions_app.memory.history import parts_of
from sessions_app.models import (
    Engine,
    Event,
    Message,
    Session,
    Turn,
    TurnState,
)
from sessions_app.models.session import WEB, rerouted
from sessions_app.postgres.retry import retry_while_down
from sessions_app.turns import commit_events, consent, executions
from sessions_app.turns.advance import advance_session
from sessions_app.turns.compression import CompressedHistory
from sessions_app.turns.context import Prepared
from sessions_app.turns.journal import Journal
from sessions_app.turns.kinds import closure_text

CANCEL_REASONS = {OwnerInactive.code: "The account is inactive."}  # what people see
STATES = {
    Ending.SUCCEEDED: TurnState.SUCCEEDED,
    Ending.FAILED: TurnState.FAILED,
    Ending.CANCELLED: TurnState.CANCELLED,
}


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
        with transaction.atomic():
            _write(prepared, result)
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


def _write(prepared: Prepared, result: TurnResult) -> None:
    turn, session = prepared.turn, prepared.session
    result = _with_cancel_reason(turn, result)
    closure = closure_text(result)
    messages = _new_messages(prepared, result, closure)
    route = _route(prepared)
    moved = advance_session(turn, len(messages), route)
    _journal_answer(prepared.journal, result)
    if not Turn.objects.finish(turn, STATES[result.ending], result):
        raise Stale
    for seq, message in enumerate(messages, moved.first_seq):
        message.session, message.turn, message.seq = session, turn, seq
        message.shown_after_seq = moved.shown_after_seq
    Message.objects.bulk_create(messages)
    if result.ending is Ending.SUCCEEDED and prepared.event_ids and result.was_shown:
        updates.acknowledge(turn, prepared.event_ids)
    _settle_questions(prepared, result, messages)
    metrics.count_turn_limit(turn.error_code)
    ended = [turn, *(_settle_guests(turn, result) if moved.has_guests else ())]
    _enqueue_answer(prepared, messages, [route, *(guest.metadata.get("route") for guest in ended[1:])])
    prepared.kind.closed(turn, result, closure or result.reply)
    events = commit_events.events_of_commit(session, messages, ended, result)
    if moved.shown_in is not None:
        events.append(commit_events.thread_event(turn, session, moved.shown_in))
    Event.objects.bulk_create(events)
    commit_events.announce_commit(session, ended)


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


def _new_messages(prepared: Prepared, result: TurnResult, closure: str) -> list[Message]:
    """Make the messages that the turn adds to the history: its input, the entries of the result, and the closure."""
    messages: list[Message] = []

    def add(role: Role, content: str, **more: Any) -> None:
        messages.append(Message(role=str(role), content=content.replace("\x00", ""), **more))

    trigger = prepared.trigger
    replays = prepared.kind.replays_model_content and result.was_shown
    shown = prepared.request.message if replays else trigger.content
    if trigger.content:
        add(
            Role.USER,
            trigger.content,
            model_content=shown.replace("\x00", "") if shown != trigger.content else None,
            metadata=trigger.metadata,
        )
    for entry in _kept(result):
        add(entry.role, entry.content, parts=parts_of(entry), metadata=_metadata_of(prepared, entry))
    if closure:
        metadata = _metadata_of(prepared, None) | {"closure": str(result.ending)}
        add(Role.ASSISTANT, closure, metadata=metadata)
    consent.mark_question(messages[-1:], result)
    return messages


def _kept(result: TurnResult) -> Iterable[Entry]:
    """Yield the entries to store: not empty ones and, unless the turn succeeded, not the injected ones.

    Guests of a failed turn run by themselves later, so their text must not be stored twice.
    """
    for entry in result.entries:
        if entry.role is Role.USER and result.ending is not Ending.SUCCEEDED:
            continue
        if entry.content.strip() or entry.calls or entry.results:
            yield entry


def _metadata_of(prepared: Prepared, entry: Entry | None) -> dict[str, Any]:
    """Return the metadata of a message; `entry` is None for the closure."""
    if entry is not None and entry.role is Role.USER:
        return {"injected": True}
    trigger = prepared.trigger
    # without a stored input its metadata go to the answer
    metadata: dict[str, Any] = {} if trigger.content else dict(trigger.metadata)
    if entry is None or entry.role is Role.ASSISTANT:
        if trigger.source:
            metadata["source"] = trigger.source
        if trigger.route:
            metadata["route"] = trigger.route
    if entry is not None and entry.partial:
        metadata["partial"] = True
    return metadata


def _journal_answer(journal: Journal, result: TurnResult) -> None:
    """Journal the last response in the commit's own transaction, so that nothing can come between."""
    if result.ending is Ending.SUCCEEDED and result.entries:
        answer = {"entry": result.entries[-1].to_json(), "usage": result.usage.to_json()}
        journal.record(StepKind.RESPONSE, answer)


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
