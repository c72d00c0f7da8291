"""The Celery beat scheduler: waits for the next due job or a change of plans, and fires.

Any number of beats may run; there is no leader. Nothing is kept in memory or in a schedule file.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import structlog
from celery.beat import Scheduler as CeleryScheduler
from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, connection

from automations.ahead import look
from automations.due_tasks import DueTasks
from automations.fire import BATCH, fire_due
from automations.fire_messages import fire_messages
from automations.follow import follow_flag
from automations.retries import queue_due
from automations.zone_data import ZoneWatch
from sessions_app import wake
from sessions_app.listen import Listener
from sessions_app.publish import JOBS
from sessions_app.wake import send

log = structlog.get_logger(__name__)

LONGEST_WAIT = 30.0  # seconds; also how late an unheard edit may be noticed
SHORTEST_RETRY = 0.1  # seconds, when what is due is in another beat's hands; doubles
LONGEST_RETRY = 1.0
MOST_ROUNDS = 50  # of messages before slots; a session has at most 20 that wait
FIRST_MAINTENANCE = 60.0  # seconds after the start, so that a beat that is often restarted asks for it, too


class Scheduler(CeleryScheduler):
    """`celery -A config beat` with this scheduler decides what is due. The waiting happens inside `tick`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._retry = SHORTEST_RETRY
        self._zones = ZoneWatch()
        self._due_tasks = DueTasks()
        self._follows = False
        self._maintain_at = time.monotonic() + min(FIRST_MAINTENANCE, settings.RONDO_MAINTENANCE_SECONDS)
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Listen for edits. Celery does not call this for the instance that only prints the banner."""
        self._listener = Listener([JOBS], lambda _channel, _message: self._changed.set(), self._changed.set)
        self._listener.start()
        log.info("beat_ready")

    def tick(self, *_args: Any, **_kwargs: Any) -> float:
        """Plan by new zone data, fire what is due, then wait until the next job is, or until something changed."""
        if self._closed.is_set():
            return LONGEST_WAIT
        if self._changed.is_set():
            self._due_tasks.look_anew()
        self._changed.clear()
        try:
            self._follow()
            wait = min(self._zones.step(), self._step(), self._ask_for_maintenance())
        except Error as error:
            log.warning("beat_waits_for_database", error=type(error).__name__)
            wait = LONGEST_RETRY
        except Exception:  # a bug must not end the only beat of a small fleet
            log.exception("beat_failed")
            wait = LONGEST_RETRY
        finally:
            connection.close()
        if wait > 0:
            self._changed.wait(wait)
        return 0.0

    def _follow(self) -> None:
        """At the start, and now and then: whose environment has the flag anew may be another beat."""
        if not self._follows:
            follow_flag()
            self._follows = True

    def _step(self) -> float:
        """Do what is due; seconds until more is, 0 when there may be more already."""
        ahead = look()
        waits = [LONGEST_WAIT]
        if ahead.inline:
            waits.append(self._due_tasks.step())
        if ahead.due:
            # each by itself: what is wrong with the one holds up nothing of the other
            messages = ahead.messages and self._send_messages()
            slots = (ahead.slots or ahead.attempts) and self._fire()
            if messages or slots:
                return 0.0
            ahead = look()
            if ahead.due:
                waits.append(self._in_other_hands())
        return max(0.0, min(ahead.wait, *waits))

    def _fire(self) -> bool:
        """Queue what is due; whether there may be more."""
        self._queue_retries()
        fired = fire_due(BATCH)
        if fired.claimed:
            log.info("fired", claimed=fired.claimed, queued=fired.queued)
            self._retry = SHORTEST_RETRY
        return fired.claimed == BATCH

    def _send_messages(self) -> bool:
        """Queue the turns of scheduled messages; whether there may be more.

        A round takes the first one of each session. All of them go before the slots: after a time in which nothing
        ran, no automation comes before a message of its session that was due earlier.
        """
        rounds = 0
        while rounds < MOST_ROUNDS and not self._closed.is_set() and self._send_some():
            rounds += 1
        return rounds == MOST_ROUNDS

    def _send_some(self) -> bool:
        """One round; whether there may be more, of the same sessions, too."""
        try:
            fired = fire_messages(BATCH)
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            log.exception("messages_failed")
            return False
        if fired.claimed:
            log.info("fired_messages", claimed=fired.claimed, queued=fired.queued)
            self._retry = SHORTEST_RETRY
        return fired.claimed > 0

    def _in_other_hands(self) -> float:
        """Seconds to wait when what is due stays so: another beat or an edit holds it."""
        self._retry = min(self._retry * 2, LONGEST_RETRY)
        return self._retry / 2

    def _queue_retries(self) -> None:
        """Further attempts; whatever is wrong with them keeps no slot from being fired."""
        try:
            send(queue_due(BATCH))
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            log.exception("retries_failed")

    def _ask_for_maintenance(self) -> float:
        """Hint at it when it is time; seconds until the next."""
        if time.monotonic() >= self._maintain_at:
            self._maintain_at = time.monotonic() + settings.RONDO_MAINTENANCE_SECONDS
            wake.ask_for_maintenance()
            self._follows = False
        return self._maintain_at - time.monotonic()

    def sync(self) -> None:
        """Nothing is kept here."""

    def close(self) -> None:
        """Celery calls this in its signal handler, in the middle of a tick, which may hold any lock that is needed.

        So another thread does it, and is not waited for longer than a moment.
        """
        ending = threading.Thread(target=self._end, name="rondo-beat-end", daemon=True)
        ending.start()
        ending.join(timeout=1.5)

    def _end(self) -> None:
        self._closed.set()
        self._changed.set()
        wake.flush(timeout=1.0)

    @property
    def info(self) -> str:
        """A line of the banner."""
        return "    . jobs from PostgreSQL, no schedule file"
