"""Subscriptions: the bounded queue of one reader, and the readers by topic."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from sessions_app.events import Cursor
from sessions_app.models import Event, EventType
from sessions_app.streams.event_log import LARGEST_PAGE, PAGE, EventPage, Position, Topic, horizon
from sessions_app.streams.items import Item
from sessions_app.streams.rights import Right

QUEUE = 1_000  # items in a queue; a subscription that needs more is dropped
LARGEST_QUEUE = 4 * LARGEST_PAGE  # bytes of them
NEWCOMERS = 25  # newcomers for which one read fetches past events
POLLED = 200  # topics that one poll reads without a notification; more take turns
CLOSING = {EventType.MESSAGE, EventType.TURN_END}

Wake = Callable[[], None]


@dataclass(eq=False, kw_only=True)
class Subscription:
    """One reader of a session or an agent. `wake` is called, from any thread, when there are items to take.

    `shows`: the session whose events it gets; for a thread of a unified agent not the one that was `opened`.
    `agent_id`: the agent of the session, once it was read.
    `behind`: it is a newcomer that still gets past events, at its own pace.
    `right`: its access; it is dropped when that is no longer valid.
    """

    opened: Topic
    shows: Topic
    cursor: Cursor
    wake: Wake
    right: Right | None = None
    agent_id: int | None = None
    behind: bool = True
    warned: bool = False  # was told that past events may have been pruned
    closed: bool = False
    revoked: bool = False
    _items: deque[Item] = field(default_factory=deque)
    _size: int = 0  # bytes of the items
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> list[Item]:
        """Take all waiting items."""
        with self._guard:
            items = list(self._items)
            self._items.clear()
            self._size = 0
        return items

    def put(self, item: Item) -> bool:
        """Add an item; False when the queue is full."""
        with self._guard:
            if len(self._items) >= QUEUE or (self._items and self._size + item.size > LARGEST_QUEUE):
                return False
            self._items.append(item)
            self._size += item.size
        return True

    def has_room(self) -> bool:
        """Whether a whole page fits."""
        with self._guard:
            return len(self._items) + PAGE <= QUEUE and self._size + LARGEST_PAGE <= LARGEST_QUEUE

    def has_items(self) -> bool:
        """Whether items wait."""
        return bool(self._items)

    def close(self) -> None:
        """End it. Waiting items may still be taken."""
        self.closed = True
        self.wake()

    def revoke(self) -> None:
        """End it, and discard the waiting items."""
        self.revoked = True
        self.take()
        self.close()


class Topics:
    """The subscriptions by topic. Callers hold the hub's lock."""

    def __init__(self) -> None:
        self._readers: dict[Topic, set[Subscription]] = {}

    def join(self, subscription: Subscription) -> None:
        """Add a subscription to the topic that it shows."""
        self._readers.setdefault(subscription.shows, set()).add(subscription)

    def leave(self, subscription: Subscription) -> bool:
        """Remove a subscription; False if it was not there."""
        readers = self._readers.get(subscription.shows, set())
        known = subscription in readers
        readers.discard(subscription)
        if not readers:
            self._readers.pop(subscription.shows, None)
        return known

    def next_ones(self) -> set[Topic]:
        """The next POLLED topics, in turn."""
        chosen = list(islice(self._readers, POLLED))
        for key in chosen:
            self._readers[key] = self._readers.pop(key)
        return set(chosen)

    def with_rights(self) -> list[tuple[Subscription, Right]]:
        """The subscriptions that have a right, with it."""
        everybody = (each for readers in self._readers.values() for each in readers)
        return [(each, each.right) for each in everybody if each.right is not None]

    def shown(self) -> set[Topic]:
        """All topics with readers."""
        return set(self._readers)

    def of_agent(self, agent_id: int) -> set[Topic]:
        """The topics of this agent, and those whose agent is not known yet."""
        ours = {agent_id, None}
        return {
            key for key, readers in self._readers.items() if any(each.agent_id in ours for each in readers)
        }

    def readers(self, wanted: Iterable[Topic]) -> dict[Topic, set[Subscription]]:
        """The current readers of these topics, without topics that have none."""
        return {key: set(self._readers[key]) for key in wanted if key in self._readers}

    def count(self) -> int:
        """The number of subscriptions."""
        return sum(len(readers) for readers in self._readers.values())


class WakeUp:
    """Wakes a coroutine from other threads. Create it in the coroutine's event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._is_late = False

    def wake(self) -> None:
        """Wake the coroutine, from any thread. Does nothing once the loop has closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, seconds: float) -> bool:
        """Wait for `wake`; False after `seconds`."""
        # with thousands of windows, asyncio.timeout would cost four times as much as sending to them
        timeout = self._loop.call_later(seconds, self._time_out)
        try:
            await self._woken.wait()
        finally:
            timeout.cancel()
        woken, self._is_late = not self._is_late, False
        self._woken.clear()
        return woken

    def _time_out(self) -> None:
        self._is_late = not self._woken.is_set()
        self._woken.set()


def wake_readers(groups: Iterable[Iterable[Subscription]]) -> None:
    """Wake the readers that have items. Waking all of them after each read would cost too much."""
    for subscription in (each for readers in groups for each in readers):
        if subscription.has_items():
            subscription.wake()


def cursor_of(event: Event) -> Cursor:
    """The cursor of this event."""
    return Cursor(xid=int(event.xid), id=event.pk)


def missed_events(readers: Iterable[Subscription]) -> list[tuple[Subscription, Item]]:
    """Newcomers with a cursor before the horizon, each once, with the item that says that events may be missing.

    Call it after the read, and before handing out its events.
    """
    unsure = [each for each in readers if each.behind and not each.warned]
    if not unsure:
        return []
    pruned_to = horizon()
    missing = [each for each in unsure if each.cursor < pruned_to]
    for each in missing:
        each.warned = True
    content = {"turn": None, "events_missed": True}
    return [(each, Item(type=EventType.STATUS, about=each.shows, content=content)) for each in missing]


def current_readers(
    readers: Iterable[Subscription], position: Position, page: EventPage
) -> list[Subscription]:
    """The readers that still show this position's topic; their `agent_id` is set."""
    group = [each for each in readers if each.shows == position.shows and not each.closed]
    for each in group:
        each.agent_id = page.agent_id
    return group


def choose_groups(
    topics: Iterable[set[Subscription]],
) -> tuple[list[list[Subscription]], list[Subscription]]:
    """The groups for one read, and the newcomers that wait for the next one.

    All live readers of a topic share a group; a newcomer is one by itself. Newcomers are chosen at random, since some
    have many past events.
    """
    live, newcomers = [], []
    for readers in topics:
        newcomers += [each for each in readers if each.behind and each.has_room()]
        if group := [each for each in readers if not each.behind]:
            live.append(group)
    random.shuffle(newcomers)
    return live + [[each] for each in newcomers[:NEWCOMERS]], newcomers[NEWCOMERS:]


def read_position(group: Sequence[Subscription]) -> Position:
    """The position from which a group is read."""
    return Position(shows=group[0].shows, cursor=min(each.cursor for each in group))
