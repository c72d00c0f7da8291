"""The items of one stream, for the body of a response."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator

from sessions_app.events import Cursor
from sessions_app.streams.event_log import Topic
from sessions_app.streams.hub import hub
from sessions_app.streams.items import Item
from sessions_app.streams.rights import STREAM_SLOTS, Right
from sessions_app.streams.subscription import Subscription, WakeUp


class StreamReader:
    """Reads what happens in `shows` after `cursor`. Whoever made it must close it, also if it was never read.

    `opened`: the session or agent that the client named. Making one takes one of the user's slots: TooManyStreams.
    """

    def __init__(self, opened: Topic, shows: Topic, cursor: Cursor, right: Right) -> None:
        self._opened, self._shows, self._cursor, self._right = opened, shows, cursor, right
        self._subscription: Subscription | None = None
        self._free = STREAM_SLOTS.take(right)
        weakref.finalize(self, self._free)  # when an error comes before a response holds it

    def close(self) -> None:
        """End the subscription. A second call is harmless."""
        if self._subscription is not None:
            hub().unsubscribe(self._subscription)
        self._free()

    async def read(self, keep_alive: float) -> AsyncGenerator[list[Item], None]:
        """The items as they come; an empty list at first, and when nothing came for `keep_alive` seconds.

        It ends when the session or agent is deleted, and when the access is lost.
        """
        wake_up = WakeUp()
        self._subscription = subscription = hub().subscribe(
            self._opened, self._cursor, wake_up.wake, self._shows, self._right
        )
        yield []
        while True:
            woken = await wake_up.wait(keep_alive)
            closed = subscription.closed  # read before the items: what was added before closing must be sent
            items = subscription.take()
            if items or not woken:
                yield items
            if items and subscription.behind:
                hub().read_soon(subscription.shows)  # there is room for the next page of its past
            if closed:
                return
