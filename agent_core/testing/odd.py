"""Answers as odd providers give them: cut, without an end mark, in odd pieces, without an end.

An `Odd` is sent as it is, whatever was asked. The functions write one in the words of a family of providers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from agent_core.types import JSON

_HEAD: Final[JSON] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
DONE: Final = "data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True)
class Odd:
    """A body of status 200, in the pieces in which it is sent. It then ends as a whole one does."""

    pieces: Iterable[str]
    content_type: str = "text/event-stream"


def sse(data: Any, name: str = "") -> str:
    """Return an event of a stream."""
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


def chunk(delta: JSON, reason: str | None = None) -> str:
    """Return one chunk of a chat completion."""
    return sse(_HEAD | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def chat(*deltas: JSON | str, reason: str | None = "stop", done: bool = True) -> Odd:
    """Return a chat completion of these deltas; a text stands for one of text."""
    pieces = [chunk({"content": each} if isinstance(each, str) else each) for each in deltas]
    end = [chunk({}, reason)] if reason is not None else []
    return Odd(pieces=[*pieces, *end, *([DONE] if done else [])])


def call_piece(index: int | None, call_id: str | None, name: str | None, arguments: str | None) -> JSON:
    """Return a delta with a piece of a tool call. What is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    piece = {"index": index, "id": call_id, "type": "function", "function": function}
    return {"tool_calls": [{key: value for key, value in piece.items() if value is not None}]}


def anthropic(*texts: str, reason: str | None = "end_turn", tool: str | None = None) -> Odd:
    """Return a message of Anthropic; with `tool`, the JSON of a call's arguments as far as it came."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[JSON] = [{"type": "message_start", "message": head | {"stop_reason": None}}]
    if texts:
        block: JSON = {"type": "text", "text": ""}
        events.append({"type": "content_block_start", "index": 0, "content_block": block})
    for text in texts:
        delta = {"type": "text_delta", "text": text}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    if tool is not None:
        block = {"type": "tool_use", "id": "t", "name": "write", "input": {}}
        events.append({"type": "content_block_start", "index": 1, "content_block": block})
        delta = {"type": "input_json_delta", "partial_json": tool}
        events.append({"type": "content_block_delta", "index": 1, "delta": delta})
    if reason is not None:
        events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage})
        events.append({"type": "message_stop"})
    return Odd(pieces=[sse(each, each["type"]) for each in events])


def google(*texts: str, reason: str | None = "STOP", blocked: str = "") -> Odd:
    """Return an answer of Google; `blocked`: why the prompt was not answered."""
    pieces = [
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": each}]}}]}
        for each in texts
    ]
    if blocked:
        pieces.append({"promptFeedback": {"blockReason": blocked}})  # type: ignore[dict-item]
    elif reason is not None:
        end = {"index": 0, "content": {"role": "model", "parts": []}, "finishReason": reason}
        pieces.append({"candidates": [end]})
    return Odd(pieces=[sse(each) for each in pieces])


def responses(*texts: str, status: str | None = "completed", reason: str = "", refusal: str = "") -> Odd:
    """Return a response of OpenAI's Responses API, which ends with this status."""
    made = {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": [],
        "parallel_tool_calls": True, "tool_choice": "auto",
    }  # fmt: skip
    of = {"item_id": "i", "output_index": 0, "content_index": 0}
    item = {"id": "i", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    events: list[JSON] = [
        {"type": "response.created", "response": made | {"status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    events += [{"type": "response.output_text.delta", "delta": each, "logprobs": [], **of} for each in texts]
    if refusal:
        events.append({"type": "response.refusal.done", "refusal": refusal, **of})
    if status is not None:
        why = {"incomplete_details": {"reason": reason}} if reason else {}
        events.append({"type": f"response.{status}", "response": made | {"status": status} | why})
    return Odd(pieces=[sse(each | {"sequence_number": n}, each["type"]) for n, each in enumerate(events)])


def plain(texts: Iterable[str]) -> Odd:
    """Return a body that is no stream."""
    return Odd(pieces=texts, content_type="application/json")
