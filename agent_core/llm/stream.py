"""Reads the stream of a reply: puts its pieces together, notices its end mark, and decides how the reply ended.

A stream that ends without a word about its end is cut, because it cannot be told from a connection that closed in the
middle. A server of OpenAI's kind that never sends a ``finish_reason`` is taken at its word if it sends the mark
``[DONE]``, which the client reads and does not report: then the answer is whole. Anthropic's ``stop_reason`` and
Google's ``finishReason`` come after all content, so nothing else is needed of them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from pydantic_ai._parts_manager import ModelResponsePartsManager
from pydantic_ai.messages import ModelResponseStreamEvent, ToolCallPart
from pydantic_ai.models import StreamedResponse

from agent_core.exceptions import ModelUnavailable
from agent_core.types import Ended


@dataclass(eq=False)
class Pieces(ModelResponsePartsManager):
    """The client's collector of the pieces of a reply, with these differences.

    A call belongs to its id, not only to its index: a piece with another id and a name begins another call, and one
    without an id or without a name goes on with the last call of its index. A name that repeats the one so far is not
    appended to it. Tags of reasoning are left in the text, for ``thinking.py``: the client knows them only as pieces of
    their own, anywhere in the text.
    """

    _keys: dict[tuple[Hashable | None, str], Hashable | None] = field(default_factory=dict, init=False)
    _last: dict[Hashable | None, Hashable | None] = field(default_factory=dict, init=False)

    def handle_text_delta(
        self, *, thinking_tags: tuple[str, str] | None = None, **more: Any
    ) -> Iterator[ModelResponseStreamEvent]:
        """Add a piece of text."""
        del thinking_tags
        return super().handle_text_delta(thinking_tags=None, **more)

    def handle_tool_call_delta(
        self,
        *,
        vendor_part_id: Hashable | None,
        tool_name: str | None = None,
        tool_call_id: str | None = None,
        **more: Any,
    ) -> ModelResponseStreamEvent | None:
        """Add a piece of a tool call."""
        key = self._key_of(vendor_part_id, tool_call_id, begins=bool(tool_name))
        number = self._vendor_id_to_part_index.get(key) if key is not None else None
        so_far = self._parts[number] if number is not None else None
        if isinstance(so_far, ToolCallPart):
            tool_call_id = None  # the id of the first piece stays
            if tool_name == so_far.tool_name:
                tool_name = None
        elif so_far is None and key is not None:
            tool_name = tool_name or ""  # a call without a name is refused; the client would drop it
        return super().handle_tool_call_delta(
            vendor_part_id=key, tool_name=tool_name, tool_call_id=tool_call_id, **more
        )

    def _key_of(self, index: Hashable | None, call_id: str | None, *, begins: bool) -> Hashable | None:
        """Return the key of the call that a piece belongs to."""
        last = self._last.get(index)
        if not call_id:
            return index if last is None else last
        if (index, call_id) not in self._keys:
            is_same = last is not None and not begins
            is_first = last is None and index is not None
            self._keys[index, call_id] = last if is_same else index if is_first else (index, call_id)
        self._last[index] = key = self._keys[index, call_id]
        return key


def use_pieces(stream: StreamedResponse) -> None:
    """Have a stream that was not read yet collect its reply in this way."""
    collected = stream._parts_manager  # noqa: SLF001 - there is no public way
    made = Pieces(model_request_parameters=stream.model_request_parameters)
    vars(made).update(vars(collected))
    stream._parts_manager = made  # noqa: SLF001


_MARK: Final = re.compile(rb"(?:^|\n)data: ?\[DONE\]")
_LONGEST: Final = 16  # bytes of the mark
_expected: ContextVar[EndMark | None] = ContextVar("end_mark", default=None)


class EndMark:
    """Whether the mark came. ``seen`` is None for a response whose bytes were not watched."""

    def __init__(self) -> None:
        self.seen: bool | None = None


def expect_mark() -> EndMark:
    """Return the mark of the responses to the requests that this task makes from now on."""
    mark = EndMark()
    _expected.set(mark)
    return mark


async def watch_mark(response: httpx2.Response) -> None:
    """Watch a response: a hook of HTTP clients. A compressed one cannot be watched."""
    mark = _expected.get()
    if mark is not None and response.headers.get("content-encoding", "identity") == "identity":
        mark.seen = False
        response.stream = _Watched(response.stream, mark)


class _Watched(httpx2.AsyncByteStream):
    def __init__(self, stream: object, mark: EndMark) -> None:
        assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101 - an asynchronous client has no other
        self._stream, self._mark = stream, mark

    async def __aiter__(self) -> AsyncIterator[bytes]:
        tail = b"\n"
        async for piece in self._stream:
            if _MARK.search(tail + piece):
                self._mark.seen = True
            tail = (tail + piece)[-_LONGEST:]
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


# The provider's own words, where the client does not translate them. Words that are not known here mean: stop.
_WORDS: Final[tuple[tuple[re.Pattern[str], Ended], ...]] = (
    (re.compile(r"length|max_|maxtokens|context_window", re.IGNORECASE), Ended.LENGTH),
    (re.compile(r"refus", re.IGNORECASE), Ended.REFUSAL),
    (re.compile(r"filter|safety|sensitive|guardrail|prohibited|blocked", re.IGNORECASE), Ended.FILTER),
    (
        re.compile(
            r"error|abort|cancel|fail|interrupt|incomplete|insufficient|malformed|timeout|other",
            re.IGNORECASE,
        ),
        Ended.CUT,
    ),
)
_WORD: Final = re.compile(r"[A-Za-z][\w-]{0,39}")
_TRANSLATED: Final = {"length": Ended.LENGTH, "content_filter": Ended.FILTER, "error": Ended.CUT}
CLOSED: Final = "The connection closed in the middle of the answer"
BROKEN_OFF: Final = "The model provider broke off the answer"


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """What a provider said of the end of its answer.

    ``reason`` is its reason as the client translates it, ``details`` has its own word as ``finish_reason``.
    ``complete``: the client read the stream to its end. ``marked``: the stream's end mark came; None: not known.
    ``is_empty``: the answer has neither text nor calls.
    """

    reason: str | None
    details: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    marked: bool | None = None
    is_empty: bool = False

    @property
    def word(self) -> str:
        """The provider's own word, or an empty string."""
        return str(self.details.get("finish_reason") or "")

    def ended_by(self) -> Ended:
        """Return how the answer ended."""
        if self.details.get("refusal") or self.word == "refusal":
            return Ended.REFUSAL
        if not self.complete:
            return Ended.CUT
        if self.reason in _TRANSLATED:
            return _TRANSLATED[self.reason]
        if self.reason == "tool_call" and self.is_empty:
            return Ended.CUT  # the call that it announced did not come
        if not self.word:
            # the client reports "stop" for a stream of OpenAI's kind that gave no reason at all
            return Ended.STOP if self.reason and self.marked is not False else Ended.CUT
        if self.reason:
            return Ended.STOP
        return next((ended for words, ended in _WORDS if words.search(self.word)), Ended.STOP)

    def cut(self) -> ModelUnavailable:
        """Return the error for an answer that was cut. The provider's word is for the owner alone (rule 3.6)."""
        word = self.word if _WORD.fullmatch(self.word) else ""
        reason = BROKEN_OFF if word else CLOSED
        error = ModelUnavailable(f"{reason}; {self.reason=}, {self.complete=}, {self.marked=}", reason=reason)
        error.said = word
        return error
