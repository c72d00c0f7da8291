"""New time-zone data: the plans of the zones that changed are made anew (rule 4.6).

One small transaction at a time, so that beat fires in between. Any number of beats may be at it: each step is right
whoever did the others, and the fingerprint of a zone is stored with its last step, so that what a killed beat began
is begun again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from automations.clocks import database_now
from automations.due import plans_changed
from automations.models import CronJob, JobClock, ScheduleKind, ZoneData
from automations.plan import accounted_to, plan_of
from automations.zone_files import fingerprint, unknown_zone

log = structlog.get_logger(__name__)

BATCH = 500  # clocks of one transaction
LOOK_EVERY = 3600.0  # seconds
LOOK_AGAIN = 60.0  # seconds, when another beat is at it, something failed, or data are away
LOCK = 0x526F6E7A  # one beat at a time in the whole fleet


@dataclass(frozen=True, kw_only=True)
class Changed:
    """A zone with other data than its plans were made by; None: there are no data any more."""

    name: str
    fingerprint: str | None


@dataclass(kw_only=True)
class ZoneWatch:
    """What one beat has looked at; `step` does one piece of work."""

    clock: Callable[[], float] = time.monotonic
    _look_at: float = 0.0
    _left: list[Changed] = field(default_factory=list)
    _after: str = ""
    _away: frozenset[str] = frozenset()

    def step(self) -> float:
        """Look for changed zones when it is time, or plan one batch anew; seconds until the next step is wanted."""
        try:
            if not self._left:
                return self._look()
            self._plan_a_batch()
        except Exception:
            log.exception("zone_data_failed")  # firing must go on whatever this is
            self._pause(LOOK_AGAIN)
        return self._wait()

    def _wait(self) -> float:
        return 0.0 if self._left else max(0.0, self._look_at - self.clock())

    def _pause(self, seconds: float) -> None:
        self._left, self._after, self._look_at = [], "", self.clock() + seconds

    def _look(self) -> float:
        """Data that are away may be about to be replaced: only what is away at two looks in a row is gone."""
        if self.clock() < self._look_at:
            return self._wait()
        changed = changed_zones()
        away = frozenset(zone.name for zone in changed if zone.fingerprint is None)
        newly_away = away - self._away
        self._pause(LOOK_AGAIN if newly_away else LOOK_EVERY)
        self._left = [zone for zone in changed if zone.name not in newly_away]
        self._away = away
        return self._wait()

    def _plan_a_batch(self) -> None:
        zone = self._left[0]
        done = replan(zone, self._after)
        if done is None:
            log.info("zone_data_in_other_hands")
            self._pause(LOOK_AGAIN)
        elif done:
            self._after = done
        else:
            log.info("zone_data_planned", zone=zone.name, gone=zone.fingerprint is None)
            self._left, self._after = self._left[1:], ""


def used_zones() -> list[str]:
    """The zones of enabled cron jobs, by jumping along the index from one to the next."""
    found: list[str] = []
    jobs = _jobs().order_by("timezone").values_list("timezone", flat=True)
    name = jobs.first()
    while name is not None:
        found.append(name)
        name = jobs.filter(timezone__gt=name).first()
    return found


def changed_zones() -> list[Changed]:
    """The used zones with other data than the stored fingerprint tells, or none."""
    known = dict(ZoneData.objects.values_list("name", "fingerprint"))
    now = [Changed(name=name, fingerprint=fingerprint(name)) for name in used_zones()]
    return [zone for zone in now if zone.fingerprint is None or zone.fingerprint != known.get(zone.name)]


def replan(zone: Changed, after: str) -> str | None:
    """Plan the next jobs of a zone anew, those behind the id `after`; the last one's id.

    Empty: that was the last batch, and the fingerprint is stored. None: another beat is at it, nothing was done.
    """
    with transaction.atomic():
        if not _alone():
            return None
        ids = list(
            _jobs()
            .filter(timezone=zone.name, pk__gt=after)
            .order_by("pk")
            .values_list("pk", flat=True)[:BATCH]
        )
        # clocks first, in the order of ids, as everybody locks; what is read then is what edits have left
        clocks = list(JobClock.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
        jobs = _jobs().filter(timezone=zone.name).in_bulk(ids)
        mine = [(clock, jobs[clock.pk]) for clock in clocks if clock.pk in jobs]
        if zone.fingerprint is None:
            _set_aside(zone.name, mine)
        else:
            _plan(mine)
        if len(ids) == BATCH:
            return ids[-1]
        if zone.fingerprint is not None:
            ZoneData.objects.update_or_create(name=zone.name, defaults={"fingerprint": zone.fingerprint})
        return ""


def _jobs() -> QuerySet[CronJob]:
    return CronJob.objects.filter(enabled=True, schedule_kind=ScheduleKind.CRON)


def _alone() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        return bool(cursor.fetchone()[0])


def _plan(jobs: list[tuple[JobClock, CronJob]]) -> None:
    """The first slot of the new data after what is accounted for: nothing comes again, and nothing is left out."""
    moved, now = [], database_now()
    for clock, job in jobs:
        if clock.next_run_at == clock.planned_from:
            continue  # a first firing that somebody gave: an instant, which no zone's data move
        after = max(accounted_to(clock.last_slot, now) or clock.planned_from, clock.planned_from)
        try:
            following = plan_of(job, clock.runs_started).next_firing(after)
        except Exception as error:  # noqa: BLE001 - a row can be poisoned in any way; firing sets it aside when due
            log.warning("job_not_planned", job=job.pk, error=str(error))
            continue
        if following != clock.next_run_at:
            clock.next_run_at = following
            moved.append(clock)
    _save(moved)


def _set_aside(zone: str, jobs: list[tuple[JobClock, CronJob]]) -> None:
    """As firing does, before a slot comes; a slot that has come is firing's, which records it."""
    coming = JobClock.objects.filter(pk__in=[clock.pk for clock, _ in jobs], next_run_at__gt=Now())
    ids = list(coming.values_list("pk", flat=True))
    JobClock.objects.filter(pk__in=ids).update(next_run_at=None)
    CronJob.objects.filter(pk__in=ids).update(enabled=False, fault=str(unknown_zone(zone)))
    log.error("jobs_set_aside", zone=zone, jobs=len(ids))


def _save(clocks: list[JobClock]) -> None:
    if clocks:
        JobClock.objects.bulk_update(clocks, ["next_run_at"])
        transaction.on_commit(plans_changed, robust=True)
