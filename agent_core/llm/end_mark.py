"""Notices whether a stream of OpenAI's kind came with its end mark, which its client reads and does not report."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Final

import httpx2

_MARK: Final = re.compile(rb"(?:^|\n)data: ?\[DONE\]")
_LONGEST: Final = 16  # bytes of the mark
_expected: ContextVar[EndMark | None] = ContextVar("end_mark", default=None)


class EndMark:
    """Whether the mark came. ``seen`` is None for a response whose bytes were not watched."""

    def __init__(self) -> None:
        self.seen: bool | None = None


def expect() -> EndMark:
    """Return the mark of the responses to the requests that this task makes from now on."""
    mark = EndMark()
    _expected.set(mark)
    return mark


async def watch(response: httpx2.Response) -> None:
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
