"""Large files, made while they are sent: each piece in a thread, none of which is kept while the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from math import ceil
from typing import TypeVar

from django.contrib.auth.models import User
from django.http import StreamingHttpResponse

from sessions_app.exceptions import NoThreadFree, TooSoon
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.postgres.rows import release_connection
from sessions_app.streams.reader import Run

T = TypeVar("T")
OF_ONE_USER = Rate(limit=10, seconds=3600)
LONGEST = 3600.0  # seconds
TRIES = 24  # for a thread, each of some seconds


def count_download(user: User) -> None:
    """Count a large file of the user. TooSoon."""
    if wait := take_allowance(f"download:{user.pk}", OF_ONE_USER):
        refused = TooSoon(f"Too many exports; try again in {wait:.0f} seconds.")
        refused.retry_after = ceil(wait)
        raise refused


class Download(StreamingHttpResponse):
    """A file of these pieces. One that cannot be finished breaks off, which clients notice."""

    def __init__(self, pieces: Iterator[bytes], name: str, kind: str) -> None:
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        super().__init__(self._sent(pieces), content_type=kind, headers=headers)
        self._run: Run = _in_thread

    async def later(self, run: Run) -> None:
        """Store `run`, which runs a function in a thread."""
        self._run = run

    async def _sent(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        async with asyncio.timeout(LONGEST):
            while (piece := await self._next(pieces)) is not None:
                if piece:
                    yield piece

    async def _next(self, pieces: Iterator[bytes]) -> bytes | None:
        for _ in range(TRIES):
            try:
                piece: bytes | None = await self._run(partial(next, pieces, None))
                return piece
            except NoThreadFree:
                continue
        raise NoThreadFree


async def _in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread, where no server gives one."""

    def run() -> T:
        try:
            return function()
        finally:
            release_connection()

    return await asyncio.to_thread(run)
