"""Wait for a turn to end, without holding a thread or a database connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from sessions_app.models import Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.streams.event_log import now
from sessions_app.streams.hub import hub
from sessions_app.streams.rights import STREAM_SLOTS, Right, lapsed
from sessions_app.streams.subscription import WakeUp

MOST_WAITING = 500  # requests of one process; more are answered at once
RECHECK = 5.0  # seconds between two reads of the row, in case an event is lost

Run = Callable[[Callable[[], Any]], Awaitable[Any]]  # runs a function in another thread; NoThreadFree

_waiting: set[object] = set()


async def until_ended(turn: Turn, right: Right, seconds: float, run: Run) -> bool:
    """Wait at most `seconds`; whether the turn has ended and the client may still see it. TooManyStreams."""
    if len(_waiting) >= MOST_WAITING:
        return False
    free = STREAM_SLOTS.take(right)
    _waiting.add(free)
    try:
        try:
            async with asyncio.timeout(seconds):
                ended = await _wait(turn, right, run)
        except TimeoutError:
            ended = await run(partial(_has_ended, turn.pk))
        # the end may come before the hub notices that access was lost
        return ended and not await run(partial(lapsed, [(right, turn.session_id)]))
    finally:
        _waiting.remove(free)
        free()


async def _wait(turn: Turn, right: Right, run: Run) -> bool:
    wake_up = WakeUp()
    cursor = await run(now)
    subscription = hub().subscribe(turn.session_id, cursor, wake_up.wake, right=right)
    try:
        while not await run(partial(_has_ended, turn.pk)):
            recheck_at = time.monotonic() + RECHECK
            ended = False
            while not ended and (left := recheck_at - time.monotonic()) > 0:
                await wake_up.wait(left)
                ended = subscription.closed or any(item.ends(turn.pk) for item in subscription.take())
            if subscription.revoked:
                return False
    finally:
        hub().unsubscribe(subscription)
    return True


def _has_ended(turn_id: int) -> bool:
    """Whether the turn has ended or was deleted."""
    return not Turn.objects.filter(pk=turn_id, state__in=OPEN_STATES).exists()
