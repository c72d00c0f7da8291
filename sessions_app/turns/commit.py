"""The commit of a turn: history, acknowledgements, run outcome and events in one transaction.

It locks the session, then ends the turn and writes its messages and events in one statement, on the condition that the
claim is still its own; if it finds no such turn, this worker is stale and nothing is written. What hangs on the turn
follows: acknowledgements, questions, guests, deliveries, and the end of its run.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from agent_core.exceptions import Stale
from agent_core.execution import WAITING, Status
from agent_core.text import phrases
from agent_core.types import Ended, Ending, Entry, Role, TurnResult
from sessions_app import events, flags, metrics
from sessions_app.channels.personal import Told
from sessions_app.deliveries import outbox, system_events
from sessions_app.deliveries.notifications import notify_owner
from sessions_app.exceptions import OwnerInactive
from sessions_app.hints import wake
from sessions_app.limits import quotas
from sessions_app.mailbox import updates
from sessions_app.memory import task_state
from sessions_app.memory.files import without_note
from sessions_app.memory.history import REFUSED, parts_of
from sessions_app.models import (
    BACKGROUND,
    ConsentQuestion,
    Engine,
    Event,
    EventType,
    Message,
    Session,
    Turn,
    TurnKind,
    TurnState,
)
from sessions_app.models.message import ENDED_KEY
from sessions_app.models.session import WEB, rerouted
from sessions_app.models.turn_input import IMAGES, UNSEEN_IMAGES
from sessions_app.postgres.retry import retry_while_down
from sessions_app.questions import consent, executions
from sessions_app.queue.kinds import closure_text, is_persons
from sessions_app.single_line import shortened
from sessions_app.turns.commit_statements import end_turn
from sessions_app.turns.compression import CompressedHistory
from sessions_app.turns.context import Prepared

CANCEL_REASONS = {OwnerInactive.code: "The account is inactive."}  # what people see
UNATTENDED = (
    TurnKind.AUTOMATION,
    TurnKind.SCHEDULED_MESSAGE,
)  # kinds that nobody waits for in a conversation
LONGEST_REASON = 300  # characters of why the fallback model was asked
TITLE_LENGTH = 80
STATES = {
    Ending.SUCCEEDED: TurnState.SUCCEEDED,
    Ending.FAILED: TurnState.FAILED,
    Ending.CANCELLED: TurnState.CANCELLED,
}


@dataclass(frozen=True, kw_only=True)
class _End:
    """Everything that the commit of a turn writes. `route`: where its answer goes."""

    prepared: Prepared
    result: TurnResult
    closure: str
    messages: list[Message]
    route: dict[str, Any] | None

    @classmethod
    def of(cls, prepared: Prepared, result: TurnResult) -> _End:
        result = _with_cancel_reason(prepared.turn, result)
        closure = closure_text(result)
        messages = _new_messages(prepared, result, closure)
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
            _announce(prepared.session, [prepared.turn])
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
    session = prepared.session
    shown_id = _end_turn(end)
    _announce(session, [turn], shown_id)
    if end.acknowledges:
        updates.acknowledge(turn, prepared.event_ids)
    if result.error_code in metrics.POLICY_LIMITS:
        system_events.report_turn_limit(turn)
    _settle_questions(prepared, result, end.messages)
    if end.messages and prepared.kind.keeps is not None:
        _forget_older(session, end.messages[-1].seq - prepared.kind.keeps)
    guests = _settle_guests(turn, result)
    prepared.kind.prompted(turn, prepared.trigger)
    is_no_news = prepared.kind.closed(turn, result, end.said)
    if not is_no_news:
        _enqueue_answer(prepared, end.messages, [end.route, *(guest.input.route for guest in guests)])
        _notify_owner(end)
    if guests:
        Event.objects.bulk_create([each for guest in guests for each in _turn_end_events(guest, session)])
        _announce(session, guests)


def _end_turn(end: _End) -> uuid.UUID | None:
    """End the turn and write its last response, messages and events. Stale if the claim is not its own.

    Returns the primary session that shows this thread, if the agent is unified.
    """
    turn, result, session = end.prepared.turn, end.result, end.prepared.session
    turn.state = STATES[result.ending]
    turn.error_code = result.error_code or ""
    turn.error = (result.error_text or "")[:300]
    turn.provider_message = result.provider_message[:300]
    turn.error_detail = (result.error_detail or "").replace("\x00", "")
    turn.usage = result.usage.to_json()
    turn.model = result.model
    turn.ended_by = str(result.ended_by or "")
    response = None
    if result.ending is Ending.SUCCEEDED and result.entries:
        response = {"entry": result.entries[-1].to_json(), "usage": result.usage.to_json()}
    for number, message in enumerate(end.messages, 1):
        message.session, message.turn, message.seq = session, turn, number
    texts = ((each.content, each.model_content, each.parts, each.metadata) for each in end.messages)
    stored = sum(len(json.dumps(each)) for each in texts)
    written = end_turn(
        turn,
        response=response,
        messages=end.messages,
        stored=stored,
        title=_title(turn) if is_persons(turn) and not _answers(turn) else None,
        route=end.route if is_persons(turn) else None,
        events=_new_events(end),
    )
    if written is None:
        raise Stale
    quotas.count_stored(session.owner_id, stored)
    metrics.count_turn_limit(turn.error_code)
    return written.shown_id  # type: ignore[no-any-return]


def _title(turn: Turn) -> str:
    """The title that the message would give its session: what it says, else a note of its files."""
    return shortened(without_note(turn.content, turn.input.message) or turn.content, TITLE_LENGTH)


def _answers(turn: Turn) -> bool:
    """Whether the message answers a question, or is a bare yes or no: so it is no title."""
    given = turn.input
    is_named = bool(given.question or given.execution)
    return is_named or any(phrases.is_exactly(kind, turn.content) for kind in ("yes", "no"))


def _settle_questions(prepared: Prepared, result: TurnResult, messages: list[Message]) -> None:
    """Store the questions that were asked and answered. A question is in the last message."""
    seq = messages[-1].seq if messages else 0
    if _may_have_planned(prepared, result):
        executions.settle_executions(prepared.turn, result, seq)
    if result.answered is not None:
        consent.settle_question(*result.answered, prepared.turn)
    if result.needs_consent and seq:
        ConsentQuestion.objects.place(prepared.turn, seq)
    elif result.asks is not None and not result.asks.execution:
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


def _notify_owner(end: _End) -> None:
    """Tell the owner of an answer that nobody waits for, and of a question, unless a channel brings it to them."""
    turn, session, result = end.prepared.turn, end.prepared.session, end.result
    is_outside = end.route is not None and end.route["channel"] != WEB
    if is_outside or not end.messages or session.type in BACKGROUND or result.ending is Ending.CANCELLED:
        return
    plan = result.execution
    asks = bool(result.asks or result.needs_consent or (plan is not None and plan.status in WAITING))
    if asks or turn.kind in UNATTENDED:
        told = Told.FAILURE if result.ending is Ending.FAILED else Told.QUESTION if asks else Told.ANSWER
        notify_owner(session, told, of=f"turn_{turn.pk}", seq=end.messages[-1].seq)


def _route(prepared: Prepared) -> dict[str, Any] | None:
    """Return where the turn's answer goes. If the session's address was changed meanwhile, to the new one."""
    turn, session = prepared.turn, prepared.session
    route: dict[str, Any] | None = prepared.trigger.route or turn.input.route
    if route is None and prepared.kind.uses_standing_route:  # its trigger could not be read
        route = session.standing_route
    if route and route["channel"] == session.channel != WEB and route["chat_id"] == session.chat_id:
        now = Session.objects.only("channel", "chat_id", "channel_meta").get(pk=session.pk)
        return rerouted(route, session.own_route, now.own_route)
    return route


def _forget_older(session: Session, seq: int) -> None:
    """Start the window with the first user message after this seq, so that no result is without its call."""
    later = Message.objects.filter(session=session, role=Role.USER, seq__gt=seq)
    first = later.order_by("seq").values_list("seq", flat=True).first()
    if first is not None:
        Session.objects.filter(pk=session.pk).update(window_from_seq=Greatest("window_from_seq", first))


def _settle_guests(turn: Turn, result: TurnResult) -> list[Turn]:
    """Merge the guests if their host succeeded; else release them to run by themselves. Returns the merged ones."""
    if not turn.has_taken_guests and turn.attempt == 1:
        return []
    if result.ending is Ending.SUCCEEDED:
        guests = Turn.objects.filter(host=turn, state=TurnState.QUEUED)
        return [guest for guest in list(guests) if Turn.objects.merge(guest)]
    if Turn.objects.release_guests(turn):
        wake(turn.session_id, turn.lane)
    return []


def _may_have_planned(prepared: Prepared, result: TurnResult) -> bool:
    """Whether the turn may have an execution. A chat's turn saves the statement; a broken turn may have had one."""
    is_broken = not prepared.request.model
    plans = prepared.agent.engine == Engine.PLANNER
    return plans or is_broken or prepared.turn.attempt > 1 or result.execution is not None


# the messages that the turn adds to the history


def _new_messages(prepared: Prepared, result: TurnResult, closure: str) -> list[Message]:
    """Make the messages that the turn adds to the history: its input, the entries of the result, and the closure."""
    messages: list[Message] = []

    def add(role: Role, content: str, **more: Any) -> None:
        messages.append(Message(role=str(role), content=content.replace("\x00", ""), **more))

    trigger = prepared.trigger
    # later turns see a message as the model saw it, but not the prompt of a task
    replays = prepared.kind.is_message and result.was_shown
    shown = prepared.request.message if replays else trigger.content
    if trigger.content:
        add(
            Role.USER,
            trigger.content,
            model_content=shown.replace("\x00", "") if shown != trigger.content else None,
            metadata=_of_input(trigger.metadata, result),
        )
    for entry in _stored_entries(result):
        add(entry.role, entry.content, parts=parts_of(entry), metadata=_metadata_of(prepared, entry))
    if result.refused:
        for message in messages:
            message.metadata = message.metadata | {REFUSED: True}
    if closure:
        metadata = _metadata_of(prepared, None) | {"closure": str(result.ending)} | _end_of(result.ended_by)
        add(Role.ASSISTANT, closure, metadata=metadata)
    if result.fell_back and messages:
        messages[-1].metadata = messages[-1].metadata | {
            "model": result.model,
            "fell_back": result.fell_back[:LONGEST_REASON],
        }
    consent.mark_question(messages[-1:], result)
    return messages


def _of_input(metadata: dict[str, Any], result: TurnResult) -> dict[str, Any]:
    """Return the input's metadata, for a failed turn with images unseen: a model may refuse them in each later turn."""
    if result.ending is not Ending.FAILED:
        return metadata
    return {UNSEEN_IMAGES if name == IMAGES else name: value for name, value in metadata.items()}


def _stored_entries(result: TurnResult) -> Iterable[Entry]:
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
    return metadata | (_end_of(entry.ended_by) if entry is not None else {})


def _end_of(ended_by: Ended | None) -> dict[str, Any]:
    """Metadata of an answer that is not whole: how it ended."""
    return {} if ended_by in (None, Ended.STOP) else {ENDED_KEY: str(ended_by)}


# the events, which are stored in the same transaction


def _new_events(end: _End) -> list[Event]:
    """Make the events of a commit: its messages, the state of a plan, the end of the turn.

    A thread of a unified agent has one more, for the windows of the session that shows it.
    """
    session, turn = end.prepared.session, end.prepared.turn
    said = [
        events.event(
            turn,
            session.agent_id,
            EventType.MESSAGE,
            {"role": each.role, "text": each.content, "metadata": each.metadata, "seq": each.seq},
        )
        for each in end.messages
        if each.content
    ]
    return [
        *said,
        *_of_execution(session, turn, end.result),
        *_turn_end_events(turn, session),
        *([_of_thread(turn, session.agent_id)] if session.is_thread else []),
    ]


def _of_thread(turn: Turn, agent_id: int) -> Event:
    """Make an event, without text, for windows of the session that a thread shows: the thread has new messages.

    The event names no turn, because the thread's turn may be deleted while the shown session is kept.
    """
    thread = events.event(turn, agent_id, EventType.STATUS, {"thread": str(turn.session_id)})
    thread.session_id = None  # type: ignore[assignment]  # the statement that stores it finds the session
    thread.turn_id = None
    return thread


def _turn_end_events(turn: Turn, session: Session) -> list[Event]:
    """Return the event of a turn's end and, for a background turn, the one for every window of the agent."""
    if not _is_broadcast(session):
        return [events.turn_end(turn, session.agent_id)]
    about = {"kind": turn.kind, "state": turn.state}
    everywhere = events.background_event(turn, session.agent_id, EventType.TURN_END, about)
    return [events.turn_end(turn, session.agent_id), everywhere]


def _announce(session: Session, ended: list[Turn], shown: uuid.UUID | None = None) -> None:
    """After the commit, notify the windows that there are new events, and that these turns have ended."""
    events.announce(session.pk, session.agent_id if _is_broadcast(session) else None, ended)
    if shown is not None:
        events.announce(shown)


def _is_broadcast(session: Session) -> bool:
    return session.type in BACKGROUND and flags.tells_every_window()


def _of_execution(session: Session, turn: Turn, result: TurnResult) -> list[Event]:
    """The event of a question that waits, or of the end of a plan."""
    execution, asked = result.execution, result.asks
    if asked is not None:
        content: dict[str, Any] = {
            "execution": asked.execution or None,
            "status": str(Status.WAITING_CONFIRMATION),
            "question_id": asked.id,
            "question": asked.text,
        }
        return [events.event(turn, session.agent_id, EventType.WAITING, content)]
    if execution is None:
        return []
    about: dict[str, Any] = {"execution": execution.id, "status": str(execution.status)}
    if execution.status in WAITING:
        about |= {"question_id": execution.question_id, "question": execution.question}
        return [events.event(turn, session.agent_id, EventType.WAITING, about)]
    return [events.event(turn, session.agent_id, EventType.DONE, about)]
