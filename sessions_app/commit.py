"""Commit: a turn's history, acknowledgements, run outcome and events, together or not at all.

The first statement moves the session's revision and hands out the seqs; the second ends the turn on the
condition that the claim still holds. No row there: this worker is stale, and nothing of it stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest
from sqlalchemy.dialects.postgresql import JSONB

from agent_core.exceptions import Stale
from agent_core.types import Ending, Entry, Role, StepKind, TurnResult
from sessions_app import commit_events, deliver, executions, mailbox, memory, metrics
from sessions_app.channels.base import WEB
from sessions_app.compress import Shortened
from sessions_app.context import Prepared
from sessions_app.history import parts_of
from sessions_app.journal import Journal
from sessions_app.kinds import closure_text, is_persons, kind_of
from sessions_app.lines import one_line
from sessions_app.models import (
    Engine,
    Event,
    Message,
    Session,
    Turn,
    TurnKind,
    TurnState,
)
from sessions_app.patience import patiently
from sessions_app.sql import Statement, table
from sessions_app.wake import wake

TITLE_LENGTH = 80
STATES = {
    Ending.SUCCEEDED: TurnState.SUCCEEDED,
    Ending.FAILED: TurnState.FAILED,
    Ending.CANCELLED: TurnState.CANCELLED,
}


@dataclass(kw_only=True)
class _Draft:
    """What a commit is about to append."""

    messages: list[Message] = field(default_factory=list)

    def add(self, role: Role, content: str, **more: Any) -> None:
        self.messages.append(Message(role=str(role), content=content.replace("\x00", ""), **more))


def commit(prepared: Prepared, result: TurnResult, short: Shortened | None = None) -> None:
    """End the turn with its result; `short`: what its compression came to. Stale if it is not ours any more.

    A connection lost inside COMMIT leaves the outcome open, so every further try begins with a look at the turn.
    """
    tries = 0

    def once() -> None:
        nonlocal tries
        tries += 1
        if tries > 1 and _stands(prepared.turn):
            # committed after all; only what follows a commit was lost
            commit_events.announce(prepared.session)
            return
        with transaction.atomic():
            _write(prepared, result)
            if short is not None:
                _shorten(prepared.session, short)

    patiently(once)


def _shorten(session: Session, short: Shortened) -> None:
    """Move the window, unless somebody changed the task state meanwhile: their words hold, and nothing is lost."""
    if memory.replace_state(session.pk, short.held, instead_of=short.instead_of):
        Session.objects.filter(pk=session.pk).update(
            window_from_seq=Greatest(F("window_from_seq"), short.window_from_seq)
        )


def _stands(turn: Turn) -> bool:
    """Whether a commit of unknown outcome took place; Stale if somebody else has the turn now."""
    state = Turn.objects.filter(pk=turn.pk, claim=turn.claim).values_list("state", flat=True).first()
    if state is None:
        raise Stale
    return state != TurnState.RUNNING


def _write(prepared: Prepared, result: TurnResult) -> None:
    turn, session = prepared.turn, prepared.session
    closure = closure_text(result)
    draft = _draft(prepared, result, closure)
    route = _route(prepared)
    first_seq, has_guests = _advance(turn, len(draft.messages), route)
    _journal_answer(prepared.journal, result)
    if not Turn.objects.finish(turn, STATES[result.ending], result):
        raise Stale
    for seq, message in enumerate(draft.messages, first_seq):
        message.session, message.turn, message.seq = session, turn, seq
    Message.objects.bulk_create(draft.messages)
    if result.ending is Ending.SUCCEEDED and prepared.event_ids:
        mailbox.acknowledge(turn, prepared.event_ids)
    if _may_have_planned(prepared, result):
        executions.settle(turn, result)
    metrics.turn_failed(turn.error_code)
    ended = [turn, *(_settle_guests(turn, result) if has_guests else ())]
    _hand_over(prepared, draft.messages, [route, *(guest.metadata.get("route") for guest in ended[1:])])
    prepared.kind.closed(turn, result, closure or result.reply)
    Event.objects.bulk_create(commit_events.of(session, draft.messages, ended, result))
    commit_events.announce(session)


_session, _guest = table(Session), table(Turn)
ADVANCE = Statement(
    sa.update(_session)
    .where(_session.c.id == sa.bindparam("session_id", type_=sa.Uuid()))
    .values(
        revision=_session.c.revision + 1,
        last_seq=_session.c.last_seq + sa.bindparam("count", type_=sa.BigInteger()),
        updated_at=sa.func.now(),
        title=sa.case(
            (_session.c.title == "", sa.bindparam("title", type_=sa.Text())), else_=_session.c.title
        ),
        last_route=sa.func.coalesce(
            sa.cast(sa.bindparam("route", type_=sa.Text()), JSONB), _session.c.last_route
        ),
    )
    .returning(
        _session.c.last_seq,
        # asked here, because most turns have none; nobody but the turn's own worker takes any along
        sa.exists()
        .where(
            _guest.c.session_id == _session.c.id,
            _guest.c.host_id == sa.bindparam("turn_id", type_=sa.BigInteger()),
            _guest.c.state == sa.literal_column(f"'{TurnState.QUEUED}'"),
        )
        .correlate(_session)
        .label("has_guests"),
    )
)


def _advance(turn: Turn, count: int, route: dict[str, Any] | None) -> tuple[int, bool]:
    """Move the session on by one revision and `count` messages; the seq of the first, whether there are guests."""
    by_person = is_persons(turn)
    row = ADVANCE.first(
        session_id=turn.session_id,
        turn_id=turn.pk,
        count=count,
        title=one_line(turn.content, TITLE_LENGTH) if by_person else "",
        route=json.dumps(route) if by_person and route is not None else None,
    )
    if row is None:
        raise Stale  # the session is gone, and the turn with it
    return int(row.last_seq) - count + 1, row.has_guests


def _draft(prepared: Prepared, result: TurnResult, closure: str) -> _Draft:
    draft, trigger = _Draft(), prepared.trigger
    shown = prepared.request.message if prepared.kind.replays_model_content else trigger.content
    if trigger.content:
        draft.add(
            Role.USER,
            trigger.content,
            model_content=shown.replace("\x00", "") if shown != trigger.content else None,
            metadata=trigger.metadata,
        )
    for entry in _kept(result):
        draft.add(entry.role, entry.content, parts=parts_of(entry), metadata=_marks(prepared, entry))
    if closure:
        marks = _marks(prepared, None) | {"closure": str(result.ending)}
        draft.add(Role.ASSISTANT, closure, metadata=marks)
    return draft


def _kept(result: TurnResult) -> Iterable[Entry]:
    """The entries that stay: all but empty ones, and, unless the turn succeeded, what was injected.

    A guest of a turn that failed is free again and will be asked anew, so its text must not stand twice.
    """
    for entry in result.entries:
        if entry.role is Role.USER and result.ending is not Ending.SUCCEEDED:
            continue
        if entry.content.strip() or entry.calls or entry.results:
            yield entry


def _marks(prepared: Prepared, entry: Entry | None) -> dict[str, Any]:
    marks: dict[str, Any] = {}
    if entry is not None and entry.role is Role.USER:
        return {"injected": True}
    if not prepared.trigger.content:  # nobody said anything: what is known of it stands with the answer
        marks |= prepared.trigger.metadata
    if prepared.trigger.source and (entry is None or entry.role is Role.ASSISTANT):
        marks["source"] = prepared.trigger.source
    if prepared.trigger.route and (entry is None or entry.role is Role.ASSISTANT):
        marks["route"] = prepared.trigger.route
    if entry is not None and entry.partial:
        marks["partial"] = True
    return marks


def _journal_answer(journal: Journal, result: TurnResult) -> None:
    """The last response joins the journal with the commit itself: nothing can come between."""
    if result.ending is Ending.SUCCEEDED and result.entries:
        answer = {"entry": result.entries[-1].to_json(), "usage": result.usage.to_json()}
        journal.record(StepKind.RESPONSE, answer)


def _hand_over(prepared: Prepared, messages: list[Message], routes: list[dict[str, Any] | None]) -> None:
    """The last words leave by the turn's route, and by those of the messages that it took along."""
    said = [message for message in messages if message.role == Role.ASSISTANT and message.content]
    if said and prepared.kind.hands_over:
        deliver.hand_over(prepared.session, said[-1], routes)


def _route(prepared: Prepared) -> dict[str, Any] | None:
    """Where the turn's answer goes; a session that has moved since is answered at its new address."""
    turn, session = prepared.turn, prepared.session
    route: dict[str, Any] | None = prepared.trigger.route or turn.metadata.get("route")
    if route is None and turn.kind == TurnKind.AUTOMATION:  # its trigger is what broke
        route = session.last_route
    if route and route["channel"] == session.channel != WEB and route["chat_id"] == session.chat_id:
        return route | {"chat_id": Session.objects.values_list("chat_id", flat=True).get(pk=session.pk)}
    return route


def _settle_guests(turn: Turn, result: TurnResult) -> list[Turn]:
    """Messages that were taken along: merged when their host succeeded, else free to run by themselves."""
    guests = Turn.objects.filter(session_id=turn.session_id, host_id=turn.pk, state=TurnState.QUEUED)
    if result.ending is Ending.SUCCEEDED:
        return [guest for guest in list(guests) if Turn.objects.merge(guest)]
    Turn.objects.release_guests(turn)
    wake(turn.session_id, turn.lane)
    return []


def _may_have_planned(prepared: Prepared, result: TurnResult) -> bool:
    """A chat's turn has no execution, and is spared the statement. Of a broken one nothing is known for sure."""
    is_broken = not prepared.request.model
    plans = prepared.agent.engine == Engine.PLANNER
    return plans or is_broken or prepared.turn.attempt > 1 or result.execution is not None


def close_without_history(turn: Turn) -> None:
    """The last resort for a turn whose commit fails whatever it holds: ended, its run too, nothing appended."""
    result = TurnResult(
        ending=Ending.FAILED, error_code="commit_failed", error_text="It could not be stored."
    )
    with transaction.atomic():
        if not Turn.objects.finish(turn, TurnState.FAILED, result):
            raise Stale
        Turn.objects.release_guests(turn)
        executions.settle(turn, result)
        kind_of(turn).closed(turn, result, "")
        session = Session.objects.get(pk=turn.session_id)
        Event.objects.bulk_create(commit_events.ends(turn, session))
        commit_events.announce(session)
