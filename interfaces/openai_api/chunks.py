"""Completions, their chunks and errors, in the form of the OpenAI API: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from sessions_app.models import Message
    from sessions_app.sessions.client_answers import ClientAnswer

KINDS = {"scheduled_message": "Scheduled message", "heartbeat": "Heartbeat"}
REFUSAL = "refusal"  # how a turn's answer may have ended
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
CODES = {"not_authenticated": "invalid_api_key", "throttled": "rate_limit_exceeded"}
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The head of a completion: its id and the model's name as the client gave it."""

    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, usage: Mapping[str, Any], ended_by: str = "") -> dict[str, Any]:
        """A completion that is not streamed."""
        is_refusal = ended_by == REFUSAL
        said = {"content": None, "refusal": text} if is_refusal else {"content": text, "refusal": None}
        message = {"role": "assistant", **said}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(ended_by)}
        return self._head("chat.completion") | {"choices": [choice], "usage": usage_of(usage)}

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        """A chunk with a part of the message."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return data(self._head("chat.completion.chunk") | {"choices": [choice]})

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """The last chunk, for `stream_options.include_usage`."""
        return data(self._head("chat.completion.chunk") | {"choices": [], "usage": usage_of(usage)})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def finish_reason(ended_by: str, *, refusal_in_text: bool = False) -> str:
    """How an answer ended, in OpenAI's words: a refusal stops, unless it follows text that was already sent."""
    if ended_by == REFUSAL:
        return "content_filter" if refusal_in_text else "stop"
    return {"length": "length", "filter": "content_filter"}.get(ended_by, "stop")


def data(content: Mapping[str, Any]) -> bytes:
    """A server-sent event."""
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n".encode()


def error_body(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The error as its object."""
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": CODES.get(code, code)}}


def turn_error(answer: ClientAnswer, turn_id: int) -> dict[str, Any]:
    """The error of a turn that has not succeeded: what people see of it, without the provider's own words."""
    text = answer.error or f"The turn was {answer.state}."
    return error_body(500, answer.error_code or answer.state, f"{text} (turn {turn_id})")


def usage_of(usage: Mapping[str, Any]) -> dict[str, int]:
    """The tokens of a turn, of all its model calls together."""
    asked, answered = int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0)
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def news_text(news: Iterable[Message], zone: ZoneInfo) -> str:
    """The text before an answer: what automations have said since the last one, each with its name and local time."""
    parts = [f"**{_name(each)}** ({_time(each, zone)})\n\n{each.content.strip()}\n\n---\n\n" for each in news]
    return "".join(parts)


def _name(message: Message) -> str:
    source = message.metadata.get("source") or {}
    return str(source.get("name") or KINDS.get(source.get("kind", ""), "Automation"))


def _time(message: Message, zone: ZoneInfo) -> str:
    return f"{message.created_at.astimezone(zone):%d %b %Y, %H:%M}"
