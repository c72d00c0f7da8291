"""Recompute the next slots of jobs whose time zone has new data (rule 4.6).

The work is done in small transactions, so that beat fires in between. Several beats may share it: each step is
correct whichever beat did the others. The fingerprint of a zone is stored with its last step, so that another beat
repeats what a killed beat began.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from automations.jobs.clock import counted_to, database_now, notify_beats
from automations.models import CronJob, JobClock, ScheduleKind, ZoneData
from automations.runs.report import report_paused
from automations.schedules.errors import ScheduleError
from automations.schedules.plan import plan_of
from automations.schedules.zone_files import fingerprint, unknown_zone
from sessions_app.failures import log_failure

log = structlog.get_logger(__name__)

BATCH = 500  # clocks of one transaction
LOOK_EVERY = 3600.0  # seconds
LOOK_AGAIN = 60.0  # seconds, when another beat is replanning, a step failed, or data are missing
LOCK = 0x526F6E7A  # held by one beat at a time, for one transaction


@dataclass(frozen=True, kw_only=True)
class ChangedZone:
    """A zone whose data differ from the stored fingerprint. `fingerprint`: None when there are no data any more."""

    name: str
    fingerprint: str | None


@dataclass(kw_only=True)
class ZoneWatch:
    """One beat's search for changed zones. `_left`: zones still to replan, the first one from the job `_after` on.

    `_missing`: zones that had no data at the last look.
    """

    clock: Callable[[], float] = time.monotonic
    _look_at: float = 0.0
    _left: list[ChangedZone] = field(default_factory=list)
    _after: str = ""
    _missing: frozenset[str] = frozenset()

    def step(self) -> float:
        """Look for changed zones when it is time, or replan one batch. Returns the seconds until the next step."""
        try:
            if not self._left:
                return self._look()
            self._replan_next_batch()
        except Exception:
            log.exception("zone_data_failed")  # firing must go on
            self._pause(LOOK_AGAIN)
        return self._wait()

    def _wait(self) -> float:
        return 0.0 if self._left else max(0.0, self._look_at - self.clock())

    def _pause(self, seconds: float) -> None:
        self._left, self._after, self._look_at = [], "", self.clock() + seconds

    def _look(self) -> float:
        """Look for changed zones. Only data missing at two looks in a row are gone: a file may be being replaced."""
        if self.clock() < self._look_at:
            return self._wait()
        changed = changed_zones()
        missing = frozenset(zone.name for zone in changed if zone.fingerprint is None)
        newly_missing = missing - self._missing
        self._pause(LOOK_AGAIN if newly_missing else LOOK_EVERY)
        self._left = [zone for zone in changed if zone.name not in newly_missing]
        self._missing = missing
        return self._wait()

    def _replan_next_batch(self) -> None:
        zone = self._left[0]
        done = replan_batch(zone, self._after)
        if done is None:
            log.info("zone_data_in_other_hands")
            self._pause(LOOK_AGAIN)
        elif done:
            self._after = done
        else:
            log.info("zone_data_planned", zone=zone.name, gone=zone.fingerprint is None)
            self._left, self._after = self._left[1:], ""


def used_zones() -> list[str]:
    """The zones of enabled cron jobs, read from the index one zone at a time."""
    found: list[str] = []
    jobs = _jobs().order_by("timezone").values_list("timezone", flat=True)
    name = jobs.first()
    while name is not None:
        found.append(name)
        name = jobs.filter(timezone__gt=name).first()
    return found


def changed_zones() -> list[ChangedZone]:
    """The used zones whose data are missing or differ from the stored fingerprint."""
    known = dict(ZoneData.objects.values_list("name", "fingerprint"))
    now = [ChangedZone(name=name, fingerprint=fingerprint(name)) for name in used_zones()]
    return [zone for zone in now if zone.fingerprint is None or zone.fingerprint != known.get(zone.name)]


def replan_batch(zone: ChangedZone, after: str) -> str | None:
    """Replan the next batch of a zone's jobs, those with ids above `after`. Returns the last id of the batch.

    Empty: this was the last batch, and the fingerprint is stored. None: another beat is replanning, nothing was done.
    """
    with transaction.atomic():
        if not _try_lock():
            return None
        ids = list(
            _jobs()
            .filter(timezone=zone.name, pk__gt=after)
            .order_by("pk")
            .values_list("pk", flat=True)[:BATCH]
        )
        # clocks first, in the order of ids, as everywhere; the jobs are read after the lock, with all edits
        clocks = list(JobClock.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
        jobs = _jobs().filter(timezone=zone.name).in_bulk(ids)
        mine = [(clock, jobs[clock.pk]) for clock in clocks if clock.pk in jobs]
        if zone.fingerprint is None:
            _set_aside(zone.name, mine)
        else:
            _replan(mine)
        if len(ids) == BATCH:
            return ids[-1]
        if zone.fingerprint is not None:
            ZoneData.objects.update_or_create(name=zone.name, defaults={"fingerprint": zone.fingerprint})
        return ""


def _jobs() -> QuerySet[CronJob]:
    return CronJob.objects.filter(enabled=True, schedule_kind=ScheduleKind.CRON)


def _try_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        return bool(cursor.fetchone()[0])


def _replan(jobs: list[tuple[JobClock, CronJob]]) -> None:
    """Set each clock to the first slot after the last recorded one: no slot is repeated, and none is left out."""
    moved, now = [], database_now()
    for clock, job in jobs:
        if clock.next_run_at == clock.planned_from:
            continue  # a first run that was given is an instant: zone data do not move it
        after = max(counted_to(clock, now) or clock.planned_from, clock.planned_from)
        try:
            following = plan_of(job, clock.runs_started).next_firing(after)
        except Exception as error:  # noqa: BLE001 - bad data can raise anything; firing sets the job aside when due
            log_failure(log, "job_not_planned", error, (ScheduleError,), job=job.pk, reason=str(error))
            continue
        if following != clock.next_run_at:
            clock.next_run_at = following
            moved.append(clock)
    if moved:
        JobClock.objects.bulk_update(moved, ["next_run_at"])
        transaction.on_commit(notify_beats, robust=True)


def _set_aside(zone: str, jobs: list[tuple[JobClock, CronJob]]) -> None:
    """Set aside jobs whose zone has no data. Jobs with a due slot are left to firing, which records the slot."""
    coming = JobClock.objects.filter(pk__in=[clock.pk for clock, _ in jobs], next_run_at__gt=Now())
    ids = list(coming.values_list("pk", flat=True))
    JobClock.objects.filter(pk__in=ids).update(next_run_at=None)
    CronJob.objects.set_aside(ids, str(unknown_zone(zone)))
    for _clock, job in jobs:
        if job.pk in ids:
            report_paused(job)
    log.error("jobs_set_aside", zone=zone, jobs=len(ids))
