"""The hub: one listener and one reading thread serve all windows of this process.

Notifications say that there are new events, and carry the pieces of running answers; stored events are read from the
table. A subscription is a bounded queue: one that is not read is dropped, without effect on others.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import structlog
from django.db import Error, connection

from agent_core.process import PerProcess
from sessions_app.events import Cursor
from sessions_app.models import Event, EventType
from sessions_app.postgres.listen import Listener
from sessions_app.postgres.notify import EVENTS
from sessions_app.queue.threads import behind
from sessions_app.streams.access import AccessCheck
from sessions_app.streams.event_log import EventPage, Topic, read_events, running_turns
from sessions_app.streams.items import Delta, Item
from sessions_app.streams.rights import Right
from sessions_app.streams.running_answers import RunningAnswers
from sessions_app.streams.subscription import (
    CLOSING,
    Subscription,
    Topics,
    Wake,
    choose_groups,
    current_readers,
    cursor_of,
    missed_events,
    read_position,
    wake_readers,
)

log = structlog.get_logger(__name__)

POLL = 2.0  # seconds between reads without a notification: one may have been lost
SOON = 0.05  # seconds until the next read while events are hidden by an older transaction, or held back

Readers = dict[Topic, set[Subscription]]
Waiting = dict[int, list[Delta]]  # pieces by turn that were received and not handed out yet


class Hub:
    """The subscriptions of this process. Its threads start with the first one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._topics = Topics()
        self._dirty: set[Topic] = set()
        self._deltas: list[Delta] = []
        self._ends: list[int] = []
        self._reading: threading.Thread | None = None
        self._stopped = threading.Event()
        self._listener = Listener([EVENTS], self._hear, self._read_all_soon)
        self._answers = RunningAnswers()  # used by the reading thread only
        self._access = AccessCheck(self._topics, self._changed)

    def start(self) -> None:
        """Start the threads, if they do not run: running answers are remembered from then on."""
        with self._changed:
            if self._reading is not None:
                return
            self._reading = threading.Thread(target=self._run, name="rondo-stream", daemon=True)
        self._reading.start()
        self._listener.start()

    def stop(self) -> None:
        """End the reading thread, and the listener within a second. Only tests need it."""
        self._stopped.set()
        self._listener.stop()
        self._read_all_soon()
        if self._reading is not None:
            self._reading.join()

    def subscribe(
        self, opened: Topic, after: Cursor, wake: Wake, shows: Topic | None = None, right: Right | None = None
    ) -> Subscription:
        """Subscribe to the events after a cursor. The reading thread notices when `right` or `shows` changes."""
        self.start()
        subscription = Subscription(
            opened=opened, shows=shows or opened, cursor=after, wake=wake, right=right
        )
        with self._changed:
            self._topics.join(subscription)
            self._access.expect(subscription)
        self.read_soon(subscription.shows)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscription. A second call is harmless."""
        with self._changed:
            self._topics.leave(subscription)

    def read_soon(self, shown: Topic) -> None:
        """Read the events of a session or an agent soon."""
        with self._changed:
            self._dirty.add(shown)
            self._changed.notify_all()

    def subscribers(self) -> int:
        """The number of subscriptions."""
        with self._changed:
            return self._topics.count()

    def _read_all_soon(self) -> None:
        with self._changed:
            self._dirty |= self._topics.shown()
            self._access.recheck()
            self._changed.notify_all()

    def _hear(self, _channel: str, message: dict[str, Any]) -> None:
        if "s" not in message:
            self._read_all_soon()
            return
        session_id = uuid.UUID(message["s"])
        with self._changed:
            if "attempt" in message:  # a piece of an answer, or another try of the model
                self._deltas.append(Delta.heard(message))
            else:
                topics = {session_id} | (self._topics.of_agent(message["a"]) if "a" in message else set())
                self._dirty |= topics & self._topics.shown()
                self._ends += message.get("ended", ())
            self._changed.notify_all()

    def _run(self) -> None:
        again: set[Topic] = set()
        while not self._stopped.is_set():
            dirty, deltas = self._next(again)
            try:
                self._access.revoke_lapsed()
                again = self._deliver(dirty, deltas)
            except Error as error:
                log.warning("stream_waits_for_database", error=type(error).__name__)
                again = dirty
                time.sleep(POLL)
            except Exception:  # a bug must not stop all windows
                log.exception("stream_failed")
                again = set()
                time.sleep(POLL)
            finally:
                connection.close()

    def _next(self, again: set[Topic]) -> tuple[set[Topic], list[Delta]]:
        """Wait for work: topics to read, and pieces to hand out."""
        with self._changed:
            is_due, patience = self._access.is_due, self._access.patience(SOON if again else POLL)
            heard = self._changed.wait_for(lambda: self._dirty or self._deltas or is_due(), patience)
            if not heard and not again:
                self._dirty |= self._topics.next_ones()
            dirty, self._dirty = again | self._dirty, set()
            # taken together: once an end was heard, all pieces of the answer were taken
            deltas, self._deltas = self._deltas, []
            ends, self._ends = self._ends, []
        for turn in ends:
            self._answers.hear_end(turn)
        return dirty, deltas

    def _deliver(self, dirty: set[Topic], deltas: list[Delta]) -> set[Topic]:
        """Read and hand out events and pieces; returns what to read again soon."""
        waiting: Waiting = {}
        for delta in deltas:
            waiting.setdefault(delta.turn, []).append(delta)
        wanted = {*dirty, *(delta.session_id for delta in deltas)}
        with self._changed:
            topics = self._topics.readers(wanted)
        for delta in deltas:
            if not self._answers.knows(delta.turn):
                dirty.add(delta.session_id)  # a turn's start comes before its pieces
        caught_up, again = self._hand_out_events(topics, dirty, waiting)
        for pieces in waiting.values():
            self._hand_out_pieces(topics.get(pieces[0].session_id, set()), pieces)
        self._finish_catch_up(caught_up)
        wake_readers(topics.values())
        return again

    def _hand_out_events(
        self, topics: Readers, dirty: set[Topic], waiting: Waiting
    ) -> tuple[list[Subscription], set[Topic]]:
        """Read once for all. Readers that are up to date share a position, each newcomer has its own.

        Returns the newcomers that have caught up, and what to read again.
        """
        groups, later = choose_groups(readers for key, readers in topics.items() if key in dirty)
        positions = [read_position(group) for group in groups]
        if not positions:
            return [], set()
        pages = read_events(positions)
        self._follow([each for group in groups for each in group])
        caught_up: list[Subscription] = []
        again = {each.shows for each in later}
        for newcomer, warning in missed_events([group[0] for group in groups]):
            self._give(newcomer, warning)
        for readers, position, page in zip(groups, positions, pages, strict=True):
            group = current_readers(readers, position, page)
            if not group:
                continue
            all_given = self._hand_out(group, page, waiting)
            if page.more or page.hidden or not all_given:
                again.add(position.shows)
            if group[0].behind and all_given and not page.more and not group[0].closed:
                caught_up.append(group[0])
        return caught_up, again

    def _follow(self, readers: list[Subscription]) -> None:
        """Drop readers whose session was deleted, and move those that must show another session now.

        Done after the read and before handing out: all events of the read are older than a later switch of unified
        mode, so no cursor passes the events of the other session.
        """
        now = behind({each.opened for each in readers if isinstance(each.opened, uuid.UUID)})
        for each in readers:
            if isinstance(each.opened, int):
                continue  # only threads show another session; the read found whether the agent exists
            if each.opened not in now:
                self._drop(each)
            elif now[each.opened] != each.shows:
                self._move(each, now[each.opened])

    def _move(self, subscription: Subscription, shows: uuid.UUID) -> None:
        """Show another session from the reader's cursor on. Like a newcomer, it gets the running turn's text so far."""
        with self._changed:
            if not self._topics.leave(subscription):
                return  # it was unsubscribed meanwhile
            subscription.shows, subscription.behind = shows, True
            self._topics.join(subscription)
            self._dirty.add(shows)
        about = {"turn": None, "shows": str(shows)}
        self._give(subscription, Item(type=EventType.STATUS, about=shows, content=about))

    def _hand_out(self, group: list[Subscription], page: EventPage, waiting: Waiting) -> bool:
        """False if events of a turn's end are held back: the pieces of its answer come before them."""
        live = not group[0].behind
        for event in page.events:
            turn = event.turn_id or 0
            if event.type in CLOSING:
                if not self._answers.may_end(turn, live=live):
                    return False
                if live:
                    self._hand_out_pieces(set(group), waiting.pop(turn, []))
            self._hand_out_event(group, event, page.sizes[event.pk])
            self._answers.follow(event)
        if page.gone:
            for subscription in group:
                self._drop(subscription)
        return True

    def _hand_out_event(self, group: list[Subscription], event: Event, size: int) -> None:
        cursor = cursor_of(event)
        item = Item(type=event.type, about=event.session_id, event=event, size=size)
        for subscription in group:
            if subscription.cursor < cursor:
                subscription.cursor = cursor
                self._give(subscription, item)

    def _hand_out_pieces(self, readers: set[Subscription], pieces: list[Delta]) -> None:
        """Give pieces to the readers that are up to date; newcomers get them in their snapshot."""
        if not pieces or self._answers.has_ended(pieces[0].turn):
            return
        pieces = self._answers.add(pieces)
        live = [each for each in readers if not each.behind]
        if not live or not pieces:
            return
        origin = self._answers.origin(pieces[0].turn)
        for piece in pieces:
            for subscription in live:
                self._give(subscription, piece.item(origin))

    def _finish_catch_up(self, newcomers: list[Subscription]) -> None:
        """Make newcomers live readers. First they get a snapshot of the running turn's text."""
        if not newcomers:
            return
        turns = running_turns([each.shows for each in newcomers])
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


_hub: PerProcess[Hub] = PerProcess()


def hub() -> Hub:
    """The process's hub."""
    return _hub.get(Hub)
