"""A session's history as the model sees it, and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.conf import settings

from agent_core import tokens
from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult
from sessions_app.models import Message

WINDOW = 100  # messages; more than this the model is not shown, nor more than fit in the budget of tokens
CLOSED = "No result was recorded."


def read(session_id: uuid.UUID, from_seq: int) -> tuple[Entry, ...]:
    """The newest messages of the window, oldest first, with every tool call answered."""
    rows = (
        Message.objects.filter(session_id=session_id, seq__gte=from_seq)
        .order_by("-seq")
        .only("role", "content", "model_content", "parts", "metadata")[:WINDOW]
    )
    return tuple(_closed(_within(map(to_entry, rows), settings.RONDO_CONTEXT_TOKENS)))


def _within(newest_first: Iterable[Entry], budget: int) -> list[Entry]:
    """The newest entries that fit, oldest first. A result whose call does not fit is `_closed`'s to drop."""
    kept: list[Entry] = []
    for entry in newest_first:
        budget -= tokens.of_entry(entry)
        if budget < 0:
            break
        kept.append(entry)
    return kept[::-1]


def to_entry(message: Message) -> Entry:
    """A stored message as the model sees it."""
    said = message.model_content if message.model_content is not None else message.content
    return Entry(
        role=Role(message.role),
        content=said,
        calls=tuple(ToolCall.from_json(call) for call in message.parts.get("calls", ())),
        results=tuple(ToolResult.from_json(result) for result in message.parts.get("results", ())),
        partial=bool(message.metadata.get("partial")),
    )


def parts_of(entry: Entry) -> dict[str, Any]:
    """What an entry holds beside its text, for Message.parts."""
    return {name: value for name, value in entry.to_json().items() if name in {"calls", "results"}}


def _closed(entries: Iterable[Entry]) -> list[Entry]:
    """Close orphan tool calls and drop results without a call: providers refuse both."""
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
