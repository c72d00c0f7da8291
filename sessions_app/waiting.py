"""Waiting for a turn to end, without a thread or a database connection of one's own."""

from __future__ import annotations

import asyncio
import time
import uuid

from asgiref.sync import sync_to_async
from django.db import connection

from sessions_app.events import Cursor
from sessions_app.models import Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.stream import hub
from sessions_app.stream_parts import Bell
from sessions_app.stream_reads import now

MOST_WAITING = 500  # requests of one process; who comes then is not made to wait
RECHECK = 5.0  # seconds between two looks at the row, should no event come through

_waiting: set[object] = set()


async def until_ended(session_id: uuid.UUID, turn_id: int, seconds: float) -> bool:
    """Wait until the turn has ended, at most `seconds`; whether it has."""
    if len(_waiting) >= MOST_WAITING:
        return False
    place = object()
    _waiting.add(place)
    try:
        async with asyncio.timeout(seconds):
            return await _wait(session_id, turn_id)
    except TimeoutError:
        return await sync_to_async(_has_ended)(turn_id)
    finally:
        _waiting.remove(place)


async def _wait(session_id: uuid.UUID, turn_id: int) -> bool:
    bell = Bell()
    cursor = await sync_to_async(_now)()
    subscription = hub().subscribe(session_id, cursor, bell.ring)
    try:
        while not await sync_to_async(_has_ended)(turn_id):
            again = time.monotonic() + RECHECK
            told = False
            while not told and (left := again - time.monotonic()) > 0:
                await bell.wait(left)
                told = subscription.closed or any(item.ends(turn_id) for item in subscription.take())
    finally:
        hub().unsubscribe(subscription)
    return True


def _now() -> Cursor:
    try:
        return now()
    finally:
        connection.close()


def _has_ended(turn_id: int) -> bool:
    """A turn that was deleted has ended, too."""
    try:
        return not Turn.objects.filter(pk=turn_id, state__in=OPEN_STATES).exists()
    finally:
        connection.close()  # the next look may be seconds away
