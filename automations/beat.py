"""The Celery beat scheduler: fires due jobs and messages, then waits until more are due or an edit is announced.

Any number of beats may run; there is no leader. No schedule is kept in memory or in a file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from celery.beat import Scheduler as CeleryScheduler
from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, connection
from django.db.models import Min, Q
from django.db.models.functions import Now

from automations.firing.beat_ping import BeatPing
from automations.firing.fire_jobs import BATCH, fire_due_jobs
from automations.firing.fire_messages import fire_due_messages
from automations.firing.inline_routines import InlineRoutineStarter
from automations.firing.one_by_one import Fired
from automations.firing.retries import queue_due_retries
from automations.jobs.edit import PREFLIGHT
from automations.models import JobClock, RunRecord, ScheduledMessage
from automations.routines.plan import apply_jobs_flag
from sessions_app import flags, hints, metrics
from sessions_app.hints import send
from sessions_app.metrics import Counted
from sessions_app.models import ProcessKind
from sessions_app.operations.processes import Presence
from sessions_app.postgres.notify import JOBS, Listener

log = structlog.get_logger(__name__)

LONGEST_WAIT = 30.0  # seconds; after this time an edit whose notification was lost is noticed
SHORTEST_RETRY = 0.1  # seconds, while another beat holds the due rows; doubles up to LONGEST_RETRY
LONGEST_RETRY = 1.0
MOST_ROUNDS = 50  # of messages before slots; at most 20 messages wait in a session
PREFLIGHT_SECONDS = 600.0  # between two rounds of preflight
FIRST_MAINTENANCE = 60.0  # seconds after the start, so that a beat that restarts often still requests it


@contextmanager
def _logged(event: str) -> Iterator[None]:
    """Log an error in a part of a tick as `event` and go on; database outages are raised."""
    try:
        yield
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception(event)


class Scheduler(CeleryScheduler):
    """The scheduler of `python -m config.beat`. It waits inside `tick`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._retry = SHORTEST_RETRY
        self._routines = InlineRoutineStarter()
        self._ping = BeatPing()
        self._flag_is_applied = False
        self._presence = Presence(ProcessKind.BEAT)
        self._maintain_at = time.monotonic() + min(FIRST_MAINTENANCE, settings.RONDO_MAINTENANCE_SECONDS)
        self._preflight_at = time.monotonic() + FIRST_MAINTENANCE
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Listen for edits. Celery does not call this on the instance that only prints the banner."""
        self._listener = Listener([JOBS], lambda _channel, _message: self._changed.set(), self._changed.set)
        self._listener.start()
        self._presence.start()
        log.info("beat_ready")

    def tick(self, *_args: Any, **_kwargs: Any) -> float:
        """Fire due rows, then wait until more are due or an edit is announced."""
        if self._closed.is_set():
            return LONGEST_WAIT
        if self._changed.is_set():
            self._routines.clear_pauses()
        self._changed.clear()
        try:
            self._apply_flag()
            wait = min(self._fire_due(), self._request_maintenance())
            metrics.count(Counted.BEAT_ROUND)
            self._ping.step()
        except Error as error:
            log.warning("beat_waits_for_database", error=type(error).__name__)
            wait = LONGEST_RETRY
        except Exception:  # a bug must not stop beat: a small installation has only one
            log.exception("beat_failed")
            wait = LONGEST_RETRY
        finally:
            connection.close()
        if wait > 0:
            self._changed.wait(wait)
        return 0.0

    def _apply_flag(self) -> None:
        """Move isolated routines in or out of heartbeats as the flag `scheduler.cron_jobs` says (`apply_jobs_flag`).

        Repeated with each maintenance, because another beat may have another flag.
        """
        if not self._flag_is_applied:
            apply_jobs_flag()
            self._flag_is_applied = True

    def _fire_due(self) -> float:
        """Fire due routines, messages and slots. Returns the seconds until more are due; 0: there may be more now."""
        routines_wait = self._routines.step()
        messages = self._fire_messages()
        with _logged("retries_failed"):
            send(queue_due_retries(BATCH))
        slots = self._fired("jobs", fire_due_jobs())
        if messages or slots >= BATCH:
            return 0.0
        wait = seconds_to_next_work()
        if wait <= 0:
            wait = self._wait_for_other_beat()
        return min(wait, routines_wait, LONGEST_WAIT)

    def _fire_messages(self) -> bool:
        """Queue the turns of due messages. Returns whether there may be more.

        A round queues the first message of each session. All messages go before the slots, so that after downtime no
        automation runs before a message of its session that was due earlier.
        """
        for _ in range(MOST_ROUNDS):
            fired = 0
            with _logged("messages_failed"):
                fired = self._fired("messages", fire_due_messages())
            if not fired or self._closed.is_set():
                return False
        return True

    def _fired(self, what: str, fired: Fired) -> int:
        """Log what was fired. Returns the number of rows that were claimed."""
        if fired.claimed:
            log.info("fired", of=what, claimed=fired.claimed, queued=fired.queued)
            self._retry = SHORTEST_RETRY
        return fired.claimed

    def _wait_for_other_beat(self) -> float:
        """Seconds to wait while another beat or an edit has locked the due rows."""
        self._retry = min(self._retry * 2, LONGEST_RETRY)
        return self._retry / 2

    def _request_maintenance(self) -> float:
        """Request maintenance when it is time. Returns the seconds until the next request."""
        if time.monotonic() >= self._maintain_at:
            self._maintain_at = time.monotonic() + settings.RONDO_MAINTENANCE_SECONDS
            hints.ask_for_maintenance()
            self._flag_is_applied = False
        if time.monotonic() >= self._preflight_at:
            self._preflight_at = time.monotonic() + PREFLIGHT_SECONDS
            if flags.PREFLIGHT.value:
                hints.ask_for_maintenance(PREFLIGHT)
        return min(self._maintain_at, self._preflight_at) - time.monotonic()

    def sync(self) -> None:
        """Celery calls this to save a schedule file; there is none."""

    def close(self) -> None:
        """Stop in another thread, and wait for it at most 1.5 s.

        Celery calls this in its signal handler, in the middle of a tick, which may hold any lock that is needed.
        """
        ending = threading.Thread(target=self._stop, name="rondo-beat-end", daemon=True)
        ending.start()
        ending.join(timeout=1.5)

    def _stop(self) -> None:
        self._closed.set()
        self._changed.set()
        hints.flush_hints(timeout=1.0)
        self._presence.stop()

    @property
    def info(self) -> str:
        """A line of the banner."""
        return "    . jobs from PostgreSQL, no schedule file"


def seconds_to_next_work() -> float:
    """Seconds until beat has something to queue: 0 or less when a row is overdue, infinite when nothing is planned.

    Due inline routines do not count: they may have to wait, and their starter knows how long.
    """
    retries = RunRecord.objects.filter(not_before__isnull=False)
    planned = (
        (JobClock.objects.filter(inline=False), "next_run_at"),
        (JobClock.objects.filter(inline=True, next_run_at__gt=Now()), "next_run_at"),
        (retries.filter(Q(job__clock__inline=False) | Q(not_before__gt=Now())), "not_before"),
        (ScheduledMessage.objects.waiting(), "send_at"),
    )
    waits = [rows.aggregate(wait=Min(column) - Now())["wait"] for rows, column in planned]
    return min((wait.total_seconds() for wait in waits if wait is not None), default=float("inf"))
