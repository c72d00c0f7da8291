"""The hub: one listener and one reading thread serve all open streams of this process.

Notifications say that there are new events, and carry the pieces of running answers. Each subscription has a cursor;
its events are read from the table when a notification names its session or agent, and every POLL seconds.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import structlog
from django.db import Error, connection

from agent_core.process import PerProcess
from sessions_app.events import Cursor
from sessions_app.models import EventType
from sessions_app.postgres.notify import CONTROL, EVENTS, Listener, publisher
from sessions_app.queue.threads import target_ids
from sessions_app.streams.event_log import (
    LARGEST_PAGE,
    PAGE,
    EventPage,
    Position,
    horizon,
    now,
    read_events,
)
from sessions_app.streams.items import Item, LiveAnswers, Topic
from sessions_app.streams.rights import Right, lapsed

log = structlog.get_logger(__name__)

POLL = 2.0  # seconds between reads, and checks of access, that no notification asked for
SOON = 0.05  # seconds until the next read while events are hidden, held back, or wait for room
LISTENING = 2.0  # seconds that a new stream waits for the first LISTEN of the process
LATE_CLOCK = 0.25  # seconds by which the database's clock may be behind ours when a token expires
READ_AT_ONCE = 50  # positions of one statement
QUEUE = 1_000  # items of a subscription; one that leaves more unread is closed
LARGEST_QUEUE = 4 * LARGEST_PAGE  # bytes of them
CLOSING = {EventType.MESSAGE, EventType.TURN_END}  # come after the pieces of the answer

Pieces = dict[int, list[Item]]  # pieces of answers by turn


@dataclass(eq=False, kw_only=True)
class Subscription:
    """The bounded queue of one reader. `wake` is called, from any thread, when there are items to take.

    `opened`: the session or agent whose access is checked. `position`: where its next read begins; if that has an
    agent, a session's reader is closed when unified mode is switched. `live`: it has got all past events, and gets the
    pieces of running answers.
    """

    opened: Topic
    position: Position
    right: Right
    wake: Callable[[], None]
    live: bool = False
    checked: bool = False  # its access was checked since it came
    warned: bool = False  # was told that past events may have been pruned
    closed: bool = False
    revoked: bool = False  # closed, because access was lost or the session was deleted
    _items: deque[Item] = field(default_factory=deque)
    _put: int = 0  # bytes of all items until now, counted by the hub
    _taken: int = 0  # and by the reader

    def take(self) -> list[Item]:
        """Take all waiting items."""
        items = [self._items.popleft() for _ in range(len(self._items))]
        self._taken += sum(item.size for item in items)
        return [] if self.revoked else items

    def has_items(self) -> bool:
        """Whether items wait."""
        return bool(self._items)

    def has_room(self, items: int, size: int) -> bool:
        """Whether so many items with so many bytes fit."""
        return len(self._items) + items <= QUEUE and self._put - self._taken + size <= LARGEST_QUEUE

    def reads(self, topics: set[Topic]) -> bool:
        """Whether the subscription reads the events of one of these sessions and agents."""
        return self.position.session_id in topics or self.position.agent_id in topics

    def put(self, item: Item) -> bool:
        """Add an item. A full queue closes the subscription; False when it is closed."""
        if not self.closed and self._items and not self.has_room(1, item.size):
            log.warning("subscriber_dropped", opened=str(self.opened))
            self.close()
        if not self.closed:
            self._put += item.size
            self._items.append(item)
        return not self.closed

    def close(self, *, revoked: bool = False) -> None:
        """End it; the hub forgets it. Waiting items may still be taken, unless access was lost."""
        self.revoked = self.revoked or revoked
        self.closed = True
        self.wake()


class Hub:
    """The subscriptions of this process. Its threads start with the first one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._subscriptions: set[Subscription] = set()
        self._messages: list[dict[str, Any]] = []  # notifications that the reading thread has not seen yet
        self._is_woken = False
        self._poll_at = 0.0
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._listening = threading.Event()
        self._listener = Listener([EVENTS], self._hear, self._connected)
        self._answers = LiveAnswers(_ask_again)  # used by the reading thread only

    def start(self) -> None:
        """Start the threads, if they do not run: running answers are remembered from the first LISTEN on."""
        with self._changed:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="rondo-stream", daemon=True)
        self._thread.start()
        self._listener.start()

    def stop(self) -> None:
        """End the reading thread, and the listener within a second. Only tests need it."""
        self._stopped.set()
        self._listener.stop()
        self._connected()
        if self._thread is not None:
            self._thread.join()

    def listen(self) -> None:
        """Wait until the process hears what workers send."""
        self.start()
        self._listening.wait(LISTENING)

    def subscribe(self, subscription: Subscription) -> None:
        """Begin to fill a subscription."""
        self.start()
        with self._changed:
            self._subscriptions.add(subscription)
            self._poll_at = min(self._poll_at, _expiry(subscription.right))
            self._wake()

    def subscribers(self) -> int:
        """Return the number of subscriptions."""
        with self._changed:
            return sum(not each.closed for each in self._subscriptions)

    def _wake(self) -> None:
        self._is_woken = True
        self._changed.notify_all()

    def _connected(self) -> None:
        self._listening.set()
        self._hear(EVENTS, {"look": "all"})

    def _hear(self, _channel: str, message: dict[str, Any]) -> None:
        if "s" in message:
            message["s"] = uuid.UUID(message["s"])
        with self._changed:
            self._messages.append(message)
            self._wake()

    def _run(self) -> None:
        again: set[Subscription] = set()
        while not self._stopped.is_set():
            try:
                again = self._serve(again)
            except Exception as error:  # a bug must not end all streams
                if isinstance(error, Error):
                    log.warning("stream_waits_for_database", error=type(error).__name__)
                else:
                    log.exception("stream_failed")
                again, self._poll_at = set(), 0.0
                with self._changed:
                    for each in self._subscriptions:
                        each.live = False  # it may have missed pieces, and gets all of the text again
                time.sleep(POLL)
            finally:
                connection.close()

    def _next(self, again: set[Subscription]) -> tuple[list[dict[str, Any]], list[Subscription], bool]:
        """Wait for work. Returns the notifications, the subscriptions, and whether all of these are due."""
        with self._changed:
            until = min(self._poll_at, time.monotonic() + SOON) if again else self._poll_at
            self._changed.wait_for(lambda: self._is_woken, max(0.0, until - time.monotonic()))
            self._is_woken = False
            messages, self._messages = self._messages, []
            self._subscriptions -= {each for each in self._subscriptions if each.closed}
            present = list(self._subscriptions)
            all_due = time.monotonic() >= self._poll_at or any("s" not in each for each in messages)
            if all_due:
                self._poll_at = min([time.monotonic() + POLL, *(_expiry(each.right) for each in present)])
        return messages, present, all_due

    def _serve(self, again: set[Subscription]) -> set[Subscription]:
        """Read events and hand out items once. Returns the subscriptions to read again soon."""
        messages, present, all_due = self._next(again)
        woken, pieces = self._sort(messages)
        if all_due:
            self._end_lapsed(present)
        due = {each for each in present if all_due or each in again or not each.checked or each.reads(woken)}
        groups: dict[Position, list[Subscription]] = {}
        later: set[Subscription] = set()
        for each in due:
            if each.live or each.has_room(PAGE, LARGEST_PAGE):
                groups.setdefault(each.position, []).append(each)
            else:
                later.add(each)
        places = list(groups)
        for first in range(0, len(places), READ_AT_ONCE):
            later |= self._read(places[first : first + READ_AT_ONCE], groups, pieces)
        for each in present:
            if each.live and each not in due:
                _put_pieces(each, pieces.get(each.position.session_id, {}).values())
            if each.has_items():
                each.wake()
        return later

    def _sort(self, messages: Sequence[dict[str, Any]]) -> tuple[set[Topic], dict[uuid.UUID | None, Pieces]]:
        """Sort notifications into the sessions and agents with new events, and the pieces of answers."""
        woken: set[Topic] = set()
        pieces: dict[uuid.UUID | None, Pieces] = {}
        for message in messages:
            if "attempt" in message:
                if not self._answers.knows(message["turn"]):
                    woken.add(message["s"])  # a turn's start comes before its pieces
                if item := self._answers.hear(message):
                    pieces.setdefault(message["s"], {}).setdefault(message["turn"], []).append(item)
            elif "s" in message:
                woken |= {message["s"]} | ({message["a"]} if "a" in message else set())
                for turn in message.get("ended", ()):
                    self._answers.end(turn)
        return woken, pieces

    def _read(
        self,
        positions: Sequence[Position],
        groups: dict[Position, list[Subscription]],
        pieces: dict[uuid.UUID | None, Pieces],
    ) -> set[Subscription]:
        """Read the events after these positions and hand them out. Returns the readers that need another read."""
        pages = read_events(positions)
        readers = [
            (each, page) for place, page in zip(positions, pages, strict=True) for each in groups[place]
        ]
        # after the read: what it found is older than a later switch of unified mode, so no cursor passes the events of
        # the other session
        self._end_lapsed([each for each, page in readers if page.events or not each.checked])
        _warn(each for each, _ in readers)
        return {
            each
            for each, page in readers
            if self._hand_out(each, page, pieces.get(each.position.session_id, {})) and not each.closed
        }

    def _end_lapsed(self, readers: Sequence[Subscription]) -> None:
        """Close the readers without access, of deleted sessions, and of threads that show another session now."""
        if not readers:
            return
        without = lapsed([(each.right, each.opened) for each in readers])
        windows = [each.opened for each in readers if each.position.agent_id is not None]
        shown: dict[Any, uuid.UUID] = target_ids(each for each in windows if isinstance(each, uuid.UUID))
        for number, each in enumerate(readers):
            each.checked = True
            target = shown.get(each.opened)
            if number in without:
                each.close(revoked=True)
            elif target and each.position.agent_id is not None and target != each.position.session_id:
                content = {"turn": None, "shows": str(target)}
                each.put(Item(type=EventType.STATUS, about=target, content=content))
                each.close()

    def _hand_out(self, reader: Subscription, page: EventPage, pieces: Pieces) -> bool:
        """Give a reader stored events and new pieces of running answers. Returns True if it has more to read."""
        left, is_held = dict(pieces) if reader.live else {}, False
        for event in page.events:
            if event.type in CLOSING:
                if is_held := self._answers.holds_end(event.turn_id, live=reader.live):
                    break
                _put_pieces(reader, [left.pop(event.turn_id, [])])
            if not reader.put(Item(type=event.type, about=event.session_id, event=event, size=event.size)):
                return False
            reader.position = replace(reader.position, cursor=Cursor(xid=int(event.xid), id=event.pk))
            if event.type == EventType.TURN_END and self._answers.knows(event.turn_id):
                self._answers.end(event.turn_id)
        _put_pieces(reader, left.values())
        if not (reader.live or is_held or page.more):
            reader.live = True
            if so_far := self._answers.snapshot(reader.position.session_id):
                reader.put(so_far)
        return page.more or page.hidden or is_held


def _ask_again(turn: int) -> None:
    """Have the worker of a turn send all of its text again."""
    publisher().notify(CONTROL, {"repeat": turn})


def _put_pieces(reader: Subscription, pieces: Iterable[list[Item]]) -> None:
    for items in pieces:
        for item in items:
            reader.put(item)


def _warn(readers: Iterable[Subscription]) -> None:
    """Tell readers of the past whose cursor is before the horizon that events may be missing, each once."""
    unsure = [each for each in readers if not (each.live or each.warned or each.closed)]
    pruned_to = horizon() if unsure else None
    for each in unsure:
        if pruned_to and each.position.cursor < pruned_to:
            each.warned = True
            content = {"turn": None, "events_missed": True}
            about = each.position.session_id or each.opened
            each.put(Item(type=EventType.STATUS, about=about, content=content))


def _expiry(right: Right) -> float:
    """When the token expires, on the monotonic clock."""
    if right.expires_at is None:
        return float("inf")
    return time.monotonic() + max((right.expires_at - datetime.now(UTC)).total_seconds(), LATE_CLOCK)


_hub: PerProcess[Hub] = PerProcess()


def hub() -> Hub:
    """Return the process's hub."""
    return _hub.get(Hub)


def beginning(resumed: Cursor | None = None) -> Cursor:
    """Return where a new stream begins: after the cursor that the client resumes from, or now.

    The process listens by then: of a turn that begins later, no piece is missed. A cursor of the future means that an
    older database was restored: the stream then begins with all stored events.
    """
    hub().listen()
    present = now()
    if resumed is None:
        return present
    return resumed if resumed.xid <= present.xid else Cursor(xid=0, id=0)
