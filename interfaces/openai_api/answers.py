"""The answer to an accepted message: streamed, or whole when its turn has ended. No thread waits for either.

Completions, their chunks and errors have the form of the OpenAI API: `{"error": {message, type, param, code}}`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import structlog
from django.db import InterfaceError, OperationalError
from django.http import JsonResponse, StreamingHttpResponse

from sessions_app.events import Cursor
from sessions_app.exceptions import NoThreadFree, TooManyStreams
from sessions_app.models import Message
from sessions_app.sessions import client_answers
from sessions_app.sessions.client_answers import ClientAnswer
from sessions_app.sessions.client_chats import AcceptedMessage
from sessions_app.streams.event_log import Position
from sessions_app.streams.items import Item
from sessions_app.streams.reader import RECHECK, Run, StreamReader, until_ended
from sessions_app.streams.rights import Right, is_revoked

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


KEEP_ALIVE_SECONDS = 10.0
WAIT_SECONDS = 300  # that an answer which is not streamed is waited for
STREAM_SECONDS = 3600  # that a streamed one is
LATE = "The turn has not ended yet. Send the same request again to get its answer; nothing is done twice"
RESTARTED = (
    "The answer was begun again, and does not continue the text that was sent."
    " Send the same request again to get all of it; nothing is done twice"
)
CONSENT = "\n\nA yes in this chat is no consent. Answer on the page of the conversation: {page}"
REVOKED = "The token is not valid any more. The turn goes on"
ENDED = "The stream ended before the answer: the session was deleted, or access to it was lost"
CLOSING_TAGS = ("</think>", "</thinking>")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The answer to a message. `news` comes before the turn's own text; events after `since` tell of the turn.

    `page`: address of the session's page, where a person consents.
    """

    accepted: AcceptedMessage
    completion: Completion
    right: Right
    since: Cursor
    page: str
    news: str = ""
    with_usage: bool = False

    @property
    def turn_id(self) -> int:
        return self.accepted.turn.pk

    def below(self, answer: ClientAnswer) -> str:
        """The text below an answer that asks for consent: where the person consents. Else empty."""
        return CONSENT.format(page=self.page) if answer.asks_consent else ""

    def failed(self, status: int, code: str, text: str) -> dict[str, Any]:
        """An error that names the turn."""
        return error_body(status, code, f"{text} (turn {self.turn_id}).")


class WholeAnswer(JsonResponse):
    """The completion once its turn has ended, else an error. `later` waits for it."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.failed(504, "timeout", LATE), status=504)
        self._reply = reply
        self._has_been_logged = True

    async def later(self, run: Run) -> None:
        """Wait for the end of the turn. It stays 504 if that takes too long; 401 if the token was revoked meanwhile."""
        reply = self._reply
        try:
            if await until_ended(reply.accepted.turn, reply.right, WAIT_SECONDS, run):
                await run(self._finish)
            elif await run(partial(is_revoked, reply.right)):
                self._set(401, reply.failed(401, "not_authenticated", REVOKED))
                self["WWW-Authenticate"] = "Token"
        except TooManyStreams as error:
            self._set(429, reply.failed(429, error.code, str(error)))
            self["Retry-After"] = str(error.retry_after)
        except (OperationalError, InterfaceError):
            self._set(503, reply.failed(503, "unavailable", "The database does not answer. Try again"))

    def _finish(self) -> None:
        reply = self._reply
        answer = client_answers.answer_of(reply.turn_id)
        if not answer.has_ended:
            return
        client_answers.mark_delivered(reply.accepted.row.pk)
        if answer.succeeded:
            client_answers.mark_news_told(reply.accepted.row.pk)
            text = reply.news + answer.text + reply.below(answer)
            self._set(200, reply.completion.whole(text, answer.usage, answer.ended_by))
        else:
            self._set(500, turn_error(answer, reply.turn_id))
            self["X-Should-Retry"] = "false"  # the turn has ended: the same request gets the same answer

    def _set(self, status: int, body: Mapping[str, Any]) -> None:
        self.status_code, self.content = status, json.dumps(body).encode()
        self["Content-Length"] = str(len(self.content))


class _Broken(Exception):
    """The stream cannot go on; its argument is the error for the client."""


class StreamedAnswer(StreamingHttpResponse):
    """The chunks of the answer as they come from `reader`, which it closes."""

    def __init__(self, reply: Reply, reader: StreamReader) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(self._chunks(reply), content_type="text/event-stream", headers=headers)
        self._reader = reader
        self.run: Run

    async def later(self, run: Run) -> None:
        """Store `run`, which runs a function in another thread."""
        self.run = run

    def close(self) -> None:
        """End the subscription. The turn goes on. A second call is harmless."""
        super().close()
        self._reader.close()

    async def _chunks(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        completion = reply.completion
        yield completion.chunk({"role": "assistant", "content": ""})
        if reply.news:
            yield completion.chunk({"content": reply.news})
            with suppress(OperationalError, InterfaceError, NoThreadFree):  # then they are told again
                await self.run(partial(client_answers.mark_news_told, reply.accepted.row.pk))
        sent = ""
        try:
            async with asyncio.timeout(STREAM_SECONDS):
                async for delta in self._deltas(reply):
                    yield completion.chunk(delta) if delta else KEEP_ALIVE
                    sent += delta.get("content", "")
            async for last in self._end(reply, sent):
                yield last
        except _Broken as broken:
            yield data(broken.args[0])
        except TimeoutError:
            yield data(reply.failed(504, "timeout", LATE))
        except (OperationalError, InterfaceError):
            yield data(reply.failed(503, "unavailable", "The database does not answer. Try again"))
        except Exception:
            log.exception("openai_stream_failed", turn=reply.turn_id)
            yield data(reply.failed(500, "server_error", "Internal error. It was logged"))

    async def _end(self, reply: Reply, sent: str) -> AsyncGenerator[bytes, None]:
        """The rest of the answer, also of one that was only begun, and the last chunks."""
        answer = await self.run(partial(client_answers.answer_of, reply.turn_id))
        rest = unsent(answer.text, sent, whole=True)
        if not answer.succeeded:
            if rest:
                yield reply.completion.chunk({"content": rest})
            await self.run(partial(client_answers.mark_delivered, reply.accepted.row.pk))
            raise _Broken(turn_error(answer, reply.turn_id))
        if rest is None:
            raise _Broken(reply.failed(500, "answer_restarted", RESTARTED))
        is_refusal = answer.ended_by == REFUSAL and not sent
        if rest := rest + reply.below(answer):
            yield reply.completion.chunk({"refusal" if is_refusal else "content": rest})
        await self.run(partial(client_answers.mark_delivered, reply.accepted.row.pk))
        yield reply.completion.chunk({}, finish_reason(answer.ended_by, refusal_in_text=not is_refusal))
        if reply.with_usage:
            yield reply.completion.usage(answer.usage)
        yield DONE

    async def _deltas(self, reply: Reply) -> AsyncGenerator[dict[str, str], None]:
        """Pieces of the running answer and of the model's reasoning, until the turn has ended; empty: none came."""
        text, sent, quiet_since = Transcript(), "", time.monotonic()
        async for items in self._items(reply):
            thought = ""
            for item in items:
                thought += _follow(text, item, reply.turn_id)
            if thought:
                yield {"reasoning_content": thought}
                quiet_since = time.monotonic()
            piece = unsent(text.text, sent)
            if piece is None:
                raise _Broken(reply.failed(500, "answer_restarted", RESTARTED))
            if piece or time.monotonic() - quiet_since >= KEEP_ALIVE_SECONDS:
                yield {"content": piece} if piece else {}
                sent += piece
                quiet_since = time.monotonic()

    async def _items(self, reply: Reply) -> AsyncIterator[list[Item]]:
        """Yield the session's items until the turn has ended. A reader that the hub dropped subscribes again."""
        turn = reply.accepted.turn
        position = Position(session_id=turn.session_id, cursor=reply.since)
        while not await self._has_ended(turn.pk):
            async for items in self._reader.read(position, RECHECK, turn.session_id):
                yield items
                if any(item.ends(turn.pk) for item in items):
                    return
                if not items and await self._has_ended(turn.pk):
                    return
            if (ended := self._reader.subscription) is not None:
                position = ended.position
                if ended.revoked:
                    raise _Broken(reply.failed(403, "permission_denied", ENDED))

    async def _has_ended(self, turn_id: int) -> bool:
        answer = await self.run(partial(client_answers.answer_of, turn_id))
        return bool(answer.has_ended)


def _follow(text: Transcript, item: Item, turn_id: int) -> str:
    """Take an item that holds text of this turn. Returns a piece of the model's reasoning."""
    if item.event is not None or item.content.get("turn") != turn_id:
        return ""
    if item.type == "thought":
        return str(item.content["text"])
    if item.type == "snapshot":
        text.replace(item.content)
    elif item.type == "delta":
        text.add(item.content)
    return ""


class Transcript:
    """The text of a turn, put together from its deltas and snapshots; see "Live text" in docs/api.md."""

    def __init__(self) -> None:
        self._of = (0, 0, 0)  # attempt, step, try
        self._steps: list[str] = []

    @property
    def text(self) -> str:
        """The whole text, with an empty line between the texts of two model calls, as the finished answer has it."""
        return "\n\n".join(text.strip() for text in self._steps if text.strip())

    def replace(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot: all of the text so far."""
        earlier = snapshot.get("earlier", "")
        self._of = _of(snapshot)
        self._steps = [earlier, snapshot["text"][len(earlier) :]]

    def add(self, delta: Mapping[str, Any]) -> None:
        """Take a piece; one of a new try replaces the text of its step, one of a new attempt everything."""
        now, before = _of(delta), self._of
        if now < before:
            return
        if now[0] != before[0] or not self._steps:
            self._steps = [delta["text"]]
        elif now[1] != before[1]:
            self._steps.append(delta["text"])
        elif now[2] != before[2]:
            self._steps[-1] = delta["text"]
        else:
            self._steps[-1] += delta["text"]
        self._of = now


def _of(content: Mapping[str, Any]) -> tuple[int, int, int]:
    return content["attempt"], content["step"], content["try"]


def unsent(text: str, sent: str, *, whole: bool = False) -> str | None:
    """Return the rest of `text` after `sent`, or None if `text` does not begin with it. White space is not compared.

    The rest is empty while `text` is shorter than `sent`. A `whole` text that is shorter does not begin with it, except
    where `sent` ends with the whole text after reasoning that only its closing tag told apart.
    """
    if text.startswith(sent):
        return text[len(sent) :]
    before, said, after = sent.rpartition(text.strip() or sent)
    if whole and said and not after.strip() and before.rstrip().lower().endswith(CLOSING_TAGS):
        return ""
    at = 0
    for sign in sent:
        if sign.isspace():
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return None if whole else ""
        if text[at] != sign:
            return None
        at += 1
    return text[at:]
