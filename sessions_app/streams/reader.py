"""Readers of streams in coroutines: they hold no thread and no database connection while they wait."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sessions_app.models import Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.streams.event_log import Position
from sessions_app.streams.hub import Subscription, beginning, hub
from sessions_app.streams.items import Item, Topic
from sessions_app.streams.rights import OPEN_STREAMS, Right, lapsed

MOST_WAITING = 500  # requests of one process that wait for a turn; more are answered at once
RECHECK = 5.0  # seconds without items after which a turn's row is read, in case its end is lost

Run = Callable[[Callable[[], Any]], Awaitable[Any]]  # runs a function in another thread; NoThreadFree

_waiting: set[StreamReader] = set()


class StreamReader:
    """Reads the items of one stream. It counts as one of the user's streams (TooManyStreams), and must be closed."""

    def __init__(self, right: Right) -> None:
        self._right = right
        self.subscription: Subscription | None = None  # of the last `read`
        self._free = OPEN_STREAMS.take(right)
        weakref.finalize(self, self._free)  # when an error comes before a response holds it

    def close(self) -> None:
        """End the subscription. A second call is harmless."""
        if self.subscription is not None:
            self.subscription.close()
        self._free()

    async def read(
        self, position: Position, seconds: float, opened: Topic
    ) -> AsyncGenerator[list[Item], None]:
        """Yield the items after a position as they come; an empty list at first, and whenever nothing came for
        `seconds`.

        It ends when the subscription is closed. `opened`: the session or agent whose access is checked.
        """
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(woken.set)

        self.subscription = subscription = Subscription(
            opened=opened, position=position, right=self._right, wake=wake
        )
        hub().subscribe(subscription)
        yield []
        while not subscription.closed or subscription.has_items():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await woken.wait()
            is_quiet = not woken.is_set()
            woken.clear()
            items = subscription.take()
            if items or is_quiet:
                yield items


async def until_ended(turn: Turn, right: Right, seconds: float, run: Run) -> bool:
    """Wait at most `seconds` for a turn's end. Returns whether it has ended and the client may still see it.
    TooManyStreams.
    """
    if len(_waiting) >= MOST_WAITING:
        return False
    reader = StreamReader(right)
    _waiting.add(reader)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await _wait(reader, turn, run)
        # access may be lost before the hub notices
        return await run(partial(_has_ended, turn.pk)) and not await run(
            partial(lapsed, [(right, turn.session_id)])
        )
    finally:
        _waiting.remove(reader)
        reader.close()


async def _wait(reader: StreamReader, turn: Turn, run: Run) -> None:
    position = Position(session_id=turn.session_id, cursor=await run(beginning))
    async for items in reader.read(position, RECHECK, turn.session_id):
        if any(item.ends(turn.pk) for item in items):
            return
        if not items and await run(partial(_has_ended, turn.pk)):
            return


def _has_ended(turn_id: int) -> bool:
    """Whether the turn has ended or was deleted."""
    return not Turn.objects.filter(pk=turn_id, state__in=OPEN_STATES).exists()
