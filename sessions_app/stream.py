"""Streams: every window of this process fed by one ear and one read loop.

Notifications say that there is something to read and carry the pieces of running answers; what is stored is read
from the table. A subscription is a bounded queue: who does not read it loses it, and nobody else notices.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import structlog
from django.db import Error, connection

from sessions_app.events import Cursor
from sessions_app.listen import Listener
from sessions_app.models import Event, EventType
from sessions_app.publish import EVENTS
from sessions_app.stream_parts import (
    Answers,
    Delta,
    Item,
    Subscription,
    Topics,
    cursor_of,
    groups_of,
    order,
    still_there,
    to_warn,
)
from sessions_app.stream_reads import Found, Origin, Place, Shown, horizon, origin_of, read, running
from sessions_app.unified import behind

log = structlog.get_logger(__name__)

POLL = 2.0  # seconds between two looks without a notification: one may have been lost
SOON = 0.05  # seconds until another look at what an older transaction still hides

Readers = dict[Shown, set[Subscription]]
Waiting = dict[int, list[Delta]]  # pieces by turn that were heard and not handed out yet
Again = dict[Shown, Cursor]  # what to look at again, without word of anything new: up to this event only
EVERYTHING = Cursor(xid=2**64, id=0)
STARTS = Cursor(xid=-1, id=0)  # up to the first event that closes a turn: its last pieces may not be here yet
CLOSING = {EventType.MESSAGE, EventType.TURN_END}


class Hub:
    """The process's subscriptions. Its threads begin with the first of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._topics = Topics()
        self._dirty: set[Shown] = set()
        self._deltas: list[Delta] = []
        self._started = False
        self._stopped = threading.Event()
        self._listener = Listener([EVENTS], self._hear, self._look_at_all)
        self._answers = Answers()  # the reading thread's alone

    def start(self) -> None:
        """Begin to listen, if that has not been done: running answers are remembered from here on."""
        with self._changed:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self._run, name="rondo-stream", daemon=True).start()
        self._listener.start()

    def stop(self) -> None:
        """End the threads within seconds; the process needs no such thing, tests do."""
        self._stopped.set()
        self._listener.stop()
        self._look_at_all()

    def subscribe(
        self, opened: Shown, after: Cursor, ring: Callable[[], None], shows: Shown | None = None
    ) -> Subscription:
        """Read a session or an agent from a cursor on. Whoever subscribes has seen to it that it is theirs.

        `shows`: the session behind it, as far as is known; the reading thread sees to it when that changes.
        """
        self.start()
        subscription = Subscription(opened=opened, shows=shows or opened, cursor=after, ring=ring)
        with self._changed:
            self._topics.join(subscription)
        self.look(subscription.shows)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a reader; twice is harmless."""
        with self._changed:
            self._topics.leave(subscription)

    def look(self, shown: Shown) -> None:
        """Have a session or an agent read again soon, for those who are shown it."""
        with self._changed:
            self._dirty.add(shown)
            self._changed.notify_all()

    def subscribers(self) -> int:
        """How many read now."""
        with self._changed:
            return self._topics.count()

    def _look_at_all(self) -> None:
        with self._changed:
            self._dirty |= self._topics.shown()
            self._changed.notify_all()

    def _hear(self, _channel: str, message: dict[str, Any]) -> None:
        if "s" not in message:
            self._look_at_all()
            return
        session_id = uuid.UUID(message["s"])
        with self._changed:
            if "text" in message:
                piece = {name: message[name] for name in ("turn", "attempt", "text")}
                self._deltas.append(Delta(session_id=session_id, **piece))
            else:
                told = {session_id} | (self._topics.of_agent(message["a"]) if "a" in message else set())
                self._dirty |= told & self._topics.shown()
            self._changed.notify_all()

    def _run(self) -> None:
        again: Again = {}
        while not self._stopped.is_set():
            dirty, deltas = self._next(again)
            try:
                again = self._deliver(dirty, deltas)
            except Error as error:
                log.warning("stream_waits_for_database", error=type(error).__name__)
                again = dirty
                time.sleep(POLL)
            except Exception:  # a bug must not silence every window
                log.exception("stream_failed")
                again = {}
                time.sleep(POLL)
            finally:
                connection.close()

    def _next(self, again: Again) -> tuple[Again, list[Delta]]:
        """Wait for something to do: sessions to read, up to where, and pieces to hand out."""
        with self._changed:
            heard = self._changed.wait_for(lambda: self._dirty or self._deltas, SOON if again else POLL)
            if not heard and not again:
                self._dirty |= self._topics.shown()
            dirty = again | dict.fromkeys(self._dirty, EVERYTHING)
            self._dirty = set()
            deltas, self._deltas = self._deltas, []
        return dirty, deltas

    def _deliver(self, dirty: Again, deltas: list[Delta]) -> Again:
        """Hand out what is there; what is to be looked at again soon."""
        waiting: Waiting = {}
        for delta in deltas:
            waiting.setdefault(delta.turn, []).append(delta)
        wanted = {*dirty, *(delta.session_id for delta in deltas)}
        with self._changed:
            topics = self._topics.readers(wanted)
        for delta in deltas:
            if not self._answers.knows(delta.turn):
                dirty.setdefault(delta.session_id, STARTS)  # a turn's start comes before its pieces
        caught_up, again = self._hand_out_events(topics, dirty, waiting)
        for pieces in waiting.values():
            self._hand_out_pieces(topics.get(pieces[0].session_id, set()), pieces)
        self._let_in(caught_up)
        for readers in topics.values():
            for subscription in readers:
                subscription.ring()
        return again

    def _hand_out_events(
        self, topics: Readers, dirty: Again, waiting: Waiting
    ) -> tuple[list[Subscription], Again]:
        """One read for all. Readers who are up to date share a place, each newcomer has its own.

        Answers the newcomers that have all of their past now, and the sessions to look at again. An event is
        news of its own only together with the pieces that were sent before it, so what came in unannounced
        since the last look waits for its announcement, or for the next poll.
        """
        groups = [group for key, readers in topics.items() if key in dirty for group in groups_of(readers)]
        places = [
            Place(shows=group[0].shows, cursor=min((each.cursor for each in group), key=order))
            for group in groups
        ]
        if not places:
            return [], {}
        everything_found = read(places)
        self._follow([each for group in groups for each in group])
        caught_up: list[Subscription] = []
        again: Again = {}
        for newcomer, warning in to_warn([group[0] for group in groups], horizon):
            self._give(newcomer, warning)
        for readers, place, found in zip(groups, places, everything_found, strict=True):
            group = still_there(readers, place, found)
            if not group:
                continue
            self._hand_out(group, found, dirty[place.shows], waiting)
            last = EVERYTHING if found.more else found.hidden
            if last is not None:
                again[place.shows] = max(last, again.get(place.shows, last), key=order)
            if group[0].behind and not found.more and not group[0].closed:
                caught_up.append(group[0])
        return caught_up, again

    def _follow(self, readers: list[Subscription]) -> None:
        """Let go of readers whose session is gone, and move those who are to be shown another one from here on.

        Asked after the read and before anything is handed out: a cursor then never passes what another session
        said since a toggle, because all that is handed out was there before.
        """
        now = behind({each.opened for each in readers if isinstance(each.opened, uuid.UUID)})
        for each in readers:
            if isinstance(each.opened, int):
                continue  # an agent is behind nothing; the read said whether it is there
            if each.opened not in now:
                self._drop(each)
            elif now[each.opened] != each.shows:
                self._move(each, now[each.opened])

    def _move(self, subscription: Subscription, shows: uuid.UUID) -> None:
        """Show a reader another session from its cursor on, as to a newcomer: with what its running turn said."""
        with self._changed:
            if not self._topics.leave(subscription):
                return  # it has left meanwhile
            subscription.shows, subscription.behind = shows, True
            self._topics.join(subscription)
            self._dirty.add(shows)
        about = {"turn": None, "shows": str(shows)}
        self._give(subscription, Item(type=EventType.STATUS, about=shows, content=about))

    def _hand_out(self, group: list[Subscription], found: Found, last: Cursor, waiting: Waiting) -> None:
        for event in found.events:
            if event.type in CLOSING if last is STARTS else order(cursor_of(event)) > order(last):
                break
            turn = event.turn_id or 0
            if event.type in CLOSING and not group[0].behind:
                self._hand_out_pieces(set(group), waiting.pop(turn, []))  # the pieces come before the whole
            self._hand_out_event(group, event)
            if event.type == EventType.TURN_START and not self._answers.has_ended(turn):
                self._answers.began(turn, Origin(source_type=event.source_type, run_id=event.run_id))
            if event.type == EventType.TURN_END:
                self._answers.end(turn)
        if found.gone:
            for subscription in group:
                self._drop(subscription)

    def _hand_out_event(self, group: list[Subscription], event: Event) -> None:
        cursor, item = cursor_of(event), Item(type=event.type, about=event.session_id, event=event)
        for subscription in group:
            if order(subscription.cursor) < order(cursor):
                subscription.cursor = cursor
                self._give(subscription, item)

    def _hand_out_pieces(self, readers: set[Subscription], pieces: list[Delta]) -> None:
        """To those who are up to date; a newcomer gets them with its snapshot."""
        if not pieces or self._answers.has_ended(pieces[0].turn):
            return
        self._answers.add(pieces)
        live = [each for each in readers if not each.behind]
        if not live:
            return
        origin = self._answers.origin(pieces[0].turn, origin_of)
        for piece in pieces:
            for subscription in live:
                self._give(subscription, piece.item(origin))

    def _let_in(self, newcomers: list[Subscription]) -> None:
        """From here on they hear what everybody hears; what the running turn said before comes first."""
        if not newcomers:
            return
        turns = running([each.shows for each in newcomers])
        for subscription in newcomers:
            subscription.behind = False
            if subscription.shows in turns:
                self._give(subscription, self._answers.snapshot(turns[subscription.shows]))

    def _give(self, subscription: Subscription, item: Item) -> None:
        if not subscription.closed and not subscription.put(item):
            log.warning("subscriber_dropped", opened=str(subscription.opened))
            self._drop(subscription)

    def _drop(self, subscription: Subscription) -> None:
        self.unsubscribe(subscription)
        subscription.close()


_hubs: dict[int, Hub] = {}  # by process: a forked child gets its own
_guard = threading.Lock()


def hub() -> Hub:
    """The process's hub."""
    with _guard:
        return _hubs.setdefault(os.getpid(), Hub())
