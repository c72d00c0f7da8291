"""What a stream is made of: items, the bounded queue of one reader, the running answers so far."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sessions_app.events import Cursor
from sessions_app.models import Event, EventType
from sessions_app.stream_reads import NOWHERE, PAGE, Found, Origin, Place, Running, Shown

QUEUE = 2 * PAGE  # items that a subscriber may be behind
REMEMBERED = 1_000  # running answers, and turns whose end was seen
LONGEST_ANSWER = 100_000  # characters


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing for a window that shows `about`: a stored event, or what is only sent.

    That is `delta` or `snapshot` with `{turn, attempt, text}`, or `status` with `{turn: null, shows}`: from here on
    the window shows that session; or with `{turn: null, events_missed: true}`: read the history again.
    """

    type: str
    about: Shown
    event: Event | None = None
    content: dict[str, Any] = field(default_factory=dict)
    origin: Origin = NOWHERE  # of the turn; a stored event has its own

    def ends(self, turn_id: int) -> bool:
        """Whether it is the end of this turn."""
        return self.event is not None and self.type == EventType.TURN_END and self.event.turn_id == turn_id


@dataclass(frozen=True, kw_only=True)
class Delta:
    """A piece of a running answer."""

    session_id: uuid.UUID
    turn: int
    attempt: int
    text: str

    def item(self, origin: Origin) -> Item:
        """As windows get it."""
        content = {"turn": self.turn, "attempt": self.attempt, "text": self.text}
        return Item(type="delta", about=self.session_id, content=content, origin=origin)


@dataclass(eq=False, kw_only=True)
class Subscription:
    """One reader of a session or an agent. `ring` is called, from any thread, when there is something to take.

    `shows`: the session whose events it is given, for a thread of a unified agent another one than was `opened`.
    `agent_id`: whose it is, once that was read.
    `behind`: it is still given what was there before it came, at its own pace.
    """

    opened: Shown
    shows: Shown
    cursor: Cursor
    ring: Callable[[], None]
    agent_id: int | None = None
    behind: bool = True
    warned: bool = False  # that events of its past may have been pruned
    closed: bool = False
    _items: deque[Item] = field(default_factory=deque)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> list[Item]:
        """All that waits."""
        with self._guard:
            items = list(self._items)
            self._items.clear()
        return items

    def put(self, item: Item) -> bool:
        """Give it one item; False when it has no room."""
        with self._guard:
            if len(self._items) >= QUEUE:
                return False
            self._items.append(item)
        return True

    def has_room(self) -> bool:
        """Whether a whole page fits."""
        with self._guard:
            return len(self._items) + PAGE <= QUEUE

    def close(self) -> None:
        """There will be nothing more; what waits may still be taken."""
        self.closed = True
        self.ring()


class Topics:
    """Who is shown what. Whoever asks it holds the hub's guard."""

    def __init__(self) -> None:
        self._readers: dict[Shown, set[Subscription]] = {}

    def join(self, subscription: Subscription) -> None:
        """From here on it is a reader of what it shows."""
        self._readers.setdefault(subscription.shows, set()).add(subscription)

    def leave(self, subscription: Subscription) -> bool:
        """It is no reader any more; whether it was one."""
        readers = self._readers.get(subscription.shows, set())
        known = subscription in readers
        readers.discard(subscription)
        if not readers:
            self._readers.pop(subscription.shows, None)
        return known

    def shown(self) -> set[Shown]:
        """All that somebody reads."""
        return set(self._readers)

    def of_agent(self, agent_id: int) -> set[Shown]:
        """What somebody reads of this agent, or of one that is not known yet."""
        ours = {agent_id, None}
        return {
            key for key, readers in self._readers.items() if any(each.agent_id in ours for each in readers)
        }

    def readers(self, wanted: Iterable[Shown]) -> dict[Shown, set[Subscription]]:
        """The readers, now, of those of them that have any."""
        return {key: set(self._readers[key]) for key in wanted if key in self._readers}

    def count(self) -> int:
        """How many read."""
        return sum(len(readers) for readers in self._readers.values())


class Bell:
    """Wakes a coroutine from other threads. Made in the coroutine's own loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """From any thread; nobody is there any more when the loop has closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> bool:
        """Until it rings; False after `seconds`."""
        try:
            async with asyncio.timeout(
                seconds
            ):  # wait_for would swallow a cancellation that comes with a ring
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


class Answers:
    """What running turns have said so far, as far as this process heard it, and which turns have ended."""

    def __init__(self) -> None:
        self._said: OrderedDict[int, tuple[int, str]] = OrderedDict()
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._origins: OrderedDict[int, Origin] = OrderedDict()

    def origin(self, turn: int, ask: Callable[[int], Origin]) -> Origin:
        """The turn's origin; the database is asked once, when no event has told it."""
        if turn not in self._origins:
            self.began(turn, ask(turn))
        return self._origins[turn]

    def began(self, turn: int, origin: Origin) -> None:
        """An event told where the turn came from."""
        self._origins[turn] = origin
        while len(self._origins) > REMEMBERED:
            self._origins.popitem(last=False)

    def add(self, pieces: Iterable[Delta]) -> None:
        """Remember pieces; those of a new attempt replace the ones of the old."""
        for piece in pieces:
            attempt, text = self._said.pop(piece.turn, (piece.attempt, ""))
            if attempt != piece.attempt:
                text = ""
            self._said[piece.turn] = piece.attempt, (text + piece.text)[:LONGEST_ANSWER]
        while len(self._said) > REMEMBERED:
            self._said.popitem(last=False)

    def end(self, turn: int) -> None:
        """The turn's end was told; what comes late of it is not."""
        self._said.pop(turn, None)
        self._origins.pop(turn, None)
        self._ended[turn] = None
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def knows(self, turn: int) -> bool:
        """Whether something of the turn was heard or its end was told."""
        return turn in self._said or turn in self._ended

    def has_ended(self, turn: int) -> bool:
        """Whether the end was told."""
        return turn in self._ended

    def snapshot(self, running: Running) -> Item:
        """What a newcomer is told of the running turn."""
        attempt, text = self._said.get(running.turn, (running.attempt, ""))
        content = {"turn": running.turn, "attempt": attempt, "text": text}
        return Item(type="snapshot", about=running.session_id, content=content, origin=running.origin)


def cursor_of(event: Event) -> Cursor:
    """Where a reader stands that was given this event."""
    return Cursor(xid=int(event.xid), id=event.pk)


def order(cursor: Cursor) -> tuple[int, int]:
    """What cursors are compared by."""
    return cursor.xid, cursor.id


def to_warn(
    readers: Iterable[Subscription], horizon: Callable[[], Cursor]
) -> list[tuple[Subscription, Item]]:
    """Newcomers from before the horizon, each once, with what tells them that they may have missed events.

    Ask after the read, and before handing out what it found.
    """
    unsure = [each for each in readers if each.behind and not each.warned]
    pruned_to = order(horizon()) if unsure else (0, 0)
    missing = [each for each in unsure if order(each.cursor) < pruned_to]
    for each in missing:
        each.warned = True
    content = {"turn": None, "events_missed": True}
    return [(each, Item(type=EventType.STATUS, about=each.shows, content=content)) for each in missing]


def still_there(readers: Iterable[Subscription], place: Place, found: Found) -> list[Subscription]:
    """Those that what was found is for: none has left or been moved since. They learn whose it is."""
    group = [each for each in readers if each.shows == place.shows and not each.closed]
    for each in group:
        each.agent_id = found.agent_id
    return group


def groups_of(readers: set[Subscription]) -> list[list[Subscription]]:
    """Who may share a read: all that are up to date; each newcomer reads by itself."""
    live = [each for each in readers if not each.behind]
    newcomers = [[each] for each in readers if each.behind and each.has_room()]
    return [live, *newcomers] if live else newcomers
