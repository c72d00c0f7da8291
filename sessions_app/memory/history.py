"""A session's stored messages as the model sees them, each with the deliveries of it that failed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by

from agent_core.llm import tokens
from agent_core.llm.valid_request import with_all_results
from agent_core.types import Entry, Image, Role, ToolCall, ToolResult
from sessions_app.memory.images import images_of
from sessions_app.models import Delivery, DeliveryState, Message, Turn
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.models.turn_input import FILES, shares
from sessions_app.permits import shown_post
from sessions_app.postgres.event_statements import object_of
from sessions_app.postgres.statements import Statement, table

WINDOW = 100  # messages that the model is shown at most; as many as fit in a request
REFUSED = (
    "refused"  # in Message.metadata: a model's provider rejected a request because of the turn's messages
)
FINDINGS = "findings"  # in Message.metadata: the turn was shown text from outside with this message
LEFT_OUT = "[A message stood here. The model provider rejected it, so it is left out.]"
NO_IMAGES: Mapping[str, Image] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredMessage:
    """A message as it was read for the model. `unsent`: `{channel, state}` of deliveries that failed (rule 9.3)."""

    role: str
    content: str
    model_content: str | None
    parts: dict[str, Any]
    metadata: dict[str, Any]
    unsent: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedMessage(StoredMessage):
    """A message with its place in the history."""

    seq: int
    created_at: datetime


_message, _delivery, _turn = table(Message), table(Delivery), table(Turn)
_READ = ("role", "content", "model_content", "parts", "metadata")
_UNSENT = (DeliveryState.FAILED, DeliveryState.CLOSED)


def _object(fields: dict[str, Any]) -> Any:
    return object_of(fields, sa.func.json_build_object)


def _array(objects: Any, *order: Any) -> Any:
    found = sa.func.json_agg(aggregate_order_by(objects, *order))
    return sa.func.coalesce(found, sa.literal_column("'[]'::json"))


def _unsent(message: Any) -> Any:
    """Select `{channel, state}` of the deliveries of a message that failed, or were sent again after that."""
    shown = _object({"channel": _delivery.c.channel, "state": _delivery.c.state})
    states: list[Any] = [sa.literal_column(f"'{state}'") for state in _UNSENT]
    return (
        sa.select(_array(shown, _delivery.c.id))
        .where(
            _delivery.c.message_id == message.c.id,
            sa.or_(_delivery.c.handed_over_at > _delivery.c.created_at, _delivery.c.state.in_(states)),
        )
        .scalar_subquery()
    )


_COLUMNS = (_message.c.seq, *(_message.c[name] for name in _READ), _unsent(_message).label("unsent"))


def newest_messages(session: Any) -> Any:
    """Select the newest `most` messages in the window of a session (a row of the query) as a JSON array, newest first.

    Parameter `of_turns`: the JSON of the input that a message's turn must share; null: every message counts.
    """
    of_turns = sa.cast(sa.bindparam("of_turns", type_=sa.Text()), JSONB)
    its_turn = sa.exists().where(_turn.c.id == _message.c.turn_id, shares(_turn.c.metadata, of_turns))
    rows = (
        sa.select(*_COLUMNS)
        .where(
            _message.c.session_id == session.c.id,
            _message.c.seq >= session.c.window_from_seq,
            sa.or_(of_turns.is_(None), its_turn),
        )
        .order_by(_message.c.seq.desc())
        .limit(sa.bindparam("most", type_=sa.Integer()))
        .correlate(session)
        .subquery("newest")
    )
    shown = _object({name: rows.c[name] for name in (*_READ, "unsent")})
    return sa.select(_array(shown, rows.c.seq.desc())).scalar_subquery()


MESSAGES_BETWEEN = Statement(
    sa.select(*_COLUMNS, _message.c.created_at)
    .where(
        _message.c.session_id == sa.bindparam("session_id", type_=sa.Uuid()),
        _message.c.seq.between(
            sa.bindparam("first", type_=sa.BigInteger()), sa.bindparam("last", type_=sa.BigInteger())
        ),
    )
    .order_by(_message.c.seq)
    .limit(sa.bindparam("most", type_=sa.Integer()))
)


def read_messages(session_id: uuid.UUID, first: int, last: int, *, most: int) -> list[PlacedMessage]:
    """Return at most `most` messages whose seq is from `first` to `last`, oldest first."""
    rows = MESSAGES_BETWEEN.all(session_id=session_id, first=first, last=last, most=most)
    as_json = ("parts", "metadata")
    return [
        PlacedMessage(**row._asdict() | {name: json.loads(getattr(row, name)) for name in as_json})
        for row in rows
    ]


def without_old_runs(newest_first: Iterable[StoredMessage], most: int | None) -> list[StoredMessage]:
    """Leave out the turns of automations except the newest `most`. Messages that are their own turn stay.

    So a run costs the same however many there were before it: complaint 8 of docs/failures.md.
    """
    if most is None:
        return list(newest_first)
    kept: list[StoredMessage] = []
    turn: list[StoredMessage] = []
    runs = 0
    for message in newest_first:
        turn.append(message)
        if message.role == str(Role.USER):
            is_run = BY_AUTOMATION in message.metadata
            runs += is_run
            kept += turn if not is_run or runs <= most else filter(_is_scheduled_message, turn)
            turn = []
    return kept + (turn if runs < most else [])  # the oldest one may have been cut by the window


def _is_scheduled_message(message: StoredMessage) -> bool:
    return "scheduled_message_id" in message.metadata


def fitting_entries(
    newest_first: Iterable[StoredMessage], room: int, images: Mapping[str, Image] = NO_IMAGES
) -> tuple[Entry, ...]:
    """Return the newest messages that fit in `room` tokens, oldest first. Every tool call has a result.

    The messages of a turn that a provider rejected are left out, since each later request would be rejected too. One
    line stands in their place.
    """
    shown = (each for each in newest_first if each.role == str(Role.USER) or REFUSED not in each.metadata)
    entries = (to_entry(each, images) for each in shown)
    return tuple(with_all_results(_within(entries, room)))


def _within(newest_first: Iterable[Entry], most: int) -> list[Entry]:
    """Return the newest entries that fit, oldest first. A result may be without its call then."""
    kept: list[Entry] = []
    for entry in newest_first:
        most -= tokens.of_entry(entry)
        if most < 0:
            break
        kept.append(entry)
    return kept[::-1]


def to_entry(message: StoredMessage | Message, images: Mapping[str, Image] = NO_IMAGES) -> Entry:
    """Convert a stored message to what the model sees. A StoredMessage also says which deliveries failed."""
    if REFUSED in message.metadata:
        return Entry(role=Role(message.role), content=LEFT_OUT)
    stranger = not (message.metadata.get("via") or {"as_person": True}).get("as_person", False)
    said = message.model_content
    if (
        said is None
    ):  # the model saw the same text; posts of older versions were stored without its data block
        said = shown_post(message.content) if stranger else message.content
    if unsent := getattr(message, "unsent", ()):
        said = "\n\n".join((said, *(_fate(**each) for each in unsent)))
    return Entry(
        role=Role(message.role),
        content=said,
        calls=tuple(map(ToolCall.from_json, message.parts.get("calls", ()))),
        results=tuple(map(ToolResult.from_json, message.parts.get("results", ()))),
        partial=bool(message.metadata.get("partial")),
        stranger=stranger or FINDINGS in message.metadata or FILES in message.metadata,
        images=images_of(message.metadata, images),
    )


def _fate(channel: str, state: str) -> str:
    match state:
        case DeliveryState.SENT:
            return (
                f"[Delivered late: sending this to {channel} failed at first. It was sent again and arrived.]"
            )
        case DeliveryState.PENDING | DeliveryState.SENDING:
            return f"[Not delivered yet: sending this to {channel} failed. It is being sent again.]"
        case _:
            return f"[Not delivered: this did not reach {channel}. The person has not received it there.]"


def parts_of(entry: Entry) -> dict[str, Any]:
    """Return the tool calls and results of an entry, for Message.parts."""
    return {name: value for name, value in entry.to_json().items() if name in {"calls", "results"}}
