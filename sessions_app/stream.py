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
from sessions_app.stream_parts import Answers, Delta, Item, Subscription
from sessions_app.stream_reads import Found, Origin, Place, origin_of, read, running

log = structlog.get_logger(__name__)

POLL = 2.0  # seconds between two looks without a notification: one may have been lost
SOON = 0.05  # seconds until another look at what an older transaction still hides

Topics = dict[uuid.UUID, set[Subscription]]
Waiting = dict[int, list[Delta]]  # pieces by turn that were heard and not handed out yet
Again = dict[
    uuid.UUID, Cursor
]  # sessions to look at again, without word of anything new: up to this event only
EVERYTHING = Cursor(xid=2**64, id=0)
STARTS = Cursor(xid=-1, id=0)  # up to the first event that closes a turn: its last pieces may not be here yet
CLOSING = {EventType.MESSAGE, EventType.TURN_END}


class Hub:
    """The process's subscriptions. Its threads begin with the first of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._topics: Topics = {}
        self._dirty: set[uuid.UUID] = set()
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

    def subscribe(self, session_id: uuid.UUID, after: Cursor, ring: Callable[[], None]) -> Subscription:
        """Read a session from a cursor on. Whoever subscribes has seen to it that the session is theirs."""
        self.start()
        subscription = Subscription(session_id=session_id, cursor=after, ring=ring)
        with self._changed:
            self._topics.setdefault(session_id, set()).add(subscription)
        self.look(session_id)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a reader; twice is harmless."""
        with self._changed:
            readers = self._topics.get(subscription.session_id, set())
            readers.discard(subscription)
            if not readers:
                self._topics.pop(subscription.session_id, None)

    def look(self, session_id: uuid.UUID) -> None:
        """Have a session read again soon."""
        with self._changed:
            self._dirty.add(session_id)
            self._changed.notify_all()

    def subscribers(self) -> int:
        """How many read now."""
        with self._changed:
            return sum(len(readers) for readers in self._topics.values())

    def _look_at_all(self) -> None:
        with self._changed:
            self._dirty.update(self._topics)
            self._changed.notify_all()

    def _hear(self, _channel: str, message: dict[str, Any]) -> None:
        session_id = uuid.UUID(message["s"])
        with self._changed:
            if "text" in message:
                piece = {name: message[name] for name in ("turn", "attempt", "text")}
                self._deltas.append(Delta(session_id=session_id, **piece))
            elif session_id in self._topics:
                self._dirty.add(session_id)
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
                self._dirty.update(self._topics)
            dirty = again | dict.fromkeys(self._dirty, EVERYTHING)
            self._dirty = set()
            deltas, self._deltas = self._deltas, []
        return dirty, deltas

    def _deliver(self, dirty: Again, deltas: list[Delta]) -> Again:
        """Hand out what is there; the sessions that are to be looked at again soon."""
        waiting: Waiting = {}
        for delta in deltas:
            waiting.setdefault(delta.turn, []).append(delta)
        wanted = {*dirty, *(delta.session_id for delta in deltas)}
        with self._changed:
            topics = {key: set(self._topics[key]) for key in wanted if key in self._topics}
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
        self, topics: Topics, dirty: Again, waiting: Waiting
    ) -> tuple[list[Subscription], Again]:
        """One read for all. Readers who are up to date share a place, each newcomer has its own.

        Answers the newcomers that have all of their past now, and the sessions to look at again. An event is
        news of its own only together with the pieces that were sent before it, so what came in unannounced
        since the last look waits for its announcement, or for the next poll.
        """
        groups = [group for key, readers in topics.items() if key in dirty for group in _groups(readers)]
        places = [
            Place(session_id=group[0].session_id, cursor=min((each.cursor for each in group), key=_order))
            for group in groups
        ]
        caught_up: list[Subscription] = []
        again: Again = {}
        for group, found in zip(groups, read(places) if places else [], strict=True):
            session_id = group[0].session_id
            self._hand_out(group, found, dirty[session_id], waiting)
            last = EVERYTHING if found.more else found.hidden
            if last is not None:
                again[session_id] = max(last, again.get(session_id, last), key=_order)
            if group[0].behind and not found.more and not group[0].closed:
                caught_up.append(group[0])
        return caught_up, again

    def _hand_out(self, group: list[Subscription], found: Found, last: Cursor, waiting: Waiting) -> None:
        for event in found.events:
            if event.type in CLOSING if last is STARTS else _order(_cursor(event)) > _order(last):
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
        cursor, item = _cursor(event), Item(type=event.type, event=event)
        for subscription in group:
            if _order(subscription.cursor) < _order(cursor):
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
        turns = running([each.session_id for each in newcomers])
        for subscription in newcomers:
            subscription.behind = False
            if subscription.session_id in turns:
                self._give(subscription, self._answers.snapshot(turns[subscription.session_id]))

    def _give(self, subscription: Subscription, item: Item) -> None:
        if not subscription.closed and not subscription.put(item):
            log.warning("subscriber_dropped", session=str(subscription.session_id))
            self._drop(subscription)

    def _drop(self, subscription: Subscription) -> None:
        self.unsubscribe(subscription)
        subscription.close()


def _cursor(event: Event) -> Cursor:
    return Cursor(xid=int(event.xid), id=event.pk)


def _order(cursor: Cursor) -> tuple[int, int]:
    return cursor.xid, cursor.id


def _groups(readers: set[Subscription]) -> list[list[Subscription]]:
    live = [each for each in readers if not each.behind]
    newcomers = [[each] for each in readers if each.behind and each.has_room()]
    return [live, *newcomers] if live else newcomers


_hubs: dict[int, Hub] = {}  # by process: a forked child gets its own
_guard = threading.Lock()


def hub() -> Hub:
    """The process's hub."""
    with _guard:
        return _hubs.setdefault(os.getpid(), Hub())
