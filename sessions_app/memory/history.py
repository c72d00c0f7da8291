"""Convert a session's stored messages to the history that the model sees, and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import F, OuterRef, Q, QuerySet
from django.db.models.functions import JSONObject

from agent_core.llm import tokens
from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult
from sessions_app.models import Delivery, DeliveryState, Message
from sessions_app.permits import posted

WINDOW = 100  # messages that the model is shown at most; the token budget may allow fewer
CLOSED = "No result was recorded."
ALL: Mapping[str, Any] = MappingProxyType({})


def read_history(
    session_id: uuid.UUID, from_seq: int, which: Mapping[str, Any] = ALL, *, room: int | None = None
) -> tuple[Entry, ...]:
    """Return the newest messages from `from_seq` on that fit in `room` tokens, oldest first.

    `which`: conditions on the messages. Every tool call has a result.
    """
    rows = (
        with_unsent(Message.objects.filter(session_id=session_id, seq__gte=from_seq, **which))
        .order_by("-seq")
        .only("role", "content", "model_content", "parts", "metadata")[:WINDOW]
    )
    most = settings.RONDO_CONTEXT_TOKENS if room is None else room
    return tuple(_with_all_results(_within(map(to_entry, rows), most)))


def _within(newest_first: Iterable[Entry], budget: int) -> list[Entry]:
    """Return the newest entries that fit, oldest first. A result may be without its call then."""
    kept: list[Entry] = []
    for entry in newest_first:
        budget -= tokens.of_entry(entry)
        if budget < 0:
            break
        kept.append(entry)
    return kept[::-1]


def with_unsent(rows: QuerySet[Message]) -> QuerySet[Any]:
    """Annotate the rows with `unsent`: `{channel, state}` of the deliveries that failed or were sent again."""
    sent_again = Q(handed_over_at__gt=F("created_at"))
    of_message = Delivery.objects.filter(message=OuterRef("pk"))
    failed = of_message.filter(sent_again | Q(state__in=[DeliveryState.FAILED, DeliveryState.CLOSED]))
    shown = JSONObject(channel="channel", state="state")
    return rows.annotate(unsent=ArraySubquery(failed.order_by("id").values(shown=shown)))


def to_entry(message: Any) -> Entry:
    """Convert a stored message to what the model sees. With `with_unsent` it says which deliveries failed."""
    stranger = not (message.metadata.get("via") or {"as_person": True}).get("as_person", False)
    said = message.model_content
    if (
        said is None
    ):  # the model saw the same text; posts of older versions were stored without its data block
        said = posted(message.content) if stranger else message.content
    said = "\n\n".join((said, *(_fate(**each) for each in getattr(message, "unsent", ()))))
    return Entry(
        role=Role(message.role),
        content=said,
        calls=tuple(ToolCall.from_json(call) for call in message.parts.get("calls", ())),
        results=tuple(ToolResult.from_json(result) for result in message.parts.get("results", ())),
        partial=bool(message.metadata.get("partial")),
        stranger=stranger,
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


def _with_all_results(entries: Iterable[Entry]) -> list[Entry]:
    """Add a result to each tool call without one, and drop results without a call. Providers reject both."""
    closed: list[Entry] = []
    waiting: dict[str, ToolCall] = {}
    for entry in entries:
        if entry.role is Role.TOOL:
            results = tuple(result for result in entry.results if waiting.pop(result.id, None))
            if results:
                closed.append(Entry(role=Role.TOOL, content="", results=results))
            continue
        closed.extend(_missing(waiting))
        waiting = {call.id: call for call in entry.calls}
        closed.append(entry)
    closed.extend(_missing(waiting))
    return closed


def _missing(waiting: dict[str, ToolCall]) -> list[Entry]:
    if not waiting:
        return []
    results = tuple(
        ToolResult(id=call.id, name=call.name, output=CLOSED, outcome=ToolOutcome.UNKNOWN)
        for call in waiting.values()
    )
    return [Entry(role=Role.TOOL, content="", results=results)]
