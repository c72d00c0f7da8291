"""Plan jobs again when their time zone has new data (rule 4.6). A walk of maintenance, in small transactions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
import structlog
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from automations.exceptions import ScheduleError
from automations.jobs.clock import counted_to, current_plan, database_now, moved_slots, notify_beats
from automations.models import CronJob, JobClock, ZoneData
from automations.models.job import ON_WALL_TIME
from automations.runs.report import report_paused
from automations.runs.skips import TICK
from automations.schedules.plan import plan_of
from automations.schedules.zone_files import fingerprint, unknown_zone
from sessions_app.failures import log_failure
from sessions_app.postgres.statements import Statement, heads, table
from sessions_app.retention.walk import WalkStep

log = structlog.get_logger(__name__)

FARTHEST = timedelta(hours=3)  # by which new data shift a slot
MISSING = ""  # the stored fingerprint of a zone that had no data at the last look


@dataclass(frozen=True, kw_only=True)
class ZoneWalk:
    """Plans the jobs of each zone whose data differ from the stored fingerprint, which is stored with the last step.

    Data count as gone only if they are missing at two looks in a row: a file may just be replaced.
    """

    name: str = "time zones"

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> WalkStep:
        """Plan the next jobs of a zone. `position`: the zone, and `after`, its last job that was planned."""
        zone, after = position.get("zone", ""), position.get("after", "")
        left = [name for name in changed_zones() if name > zone or (after and name == zone)]
        if dry or not left:
            return WalkStep()
        last, zone = after if left[0] == zone else "", left[0]
        data = fingerprint(zone)
        if data is not None or ZoneData.objects.filter(name=zone, fingerprint=MISSING).exists():
            last = _plan(zone, last, limit, is_gone=data is None)
            if not last:
                log.info("zone_data_planned", zone=zone, gone=data is None)
        if not last:
            ZoneData.objects.update_or_create(name=zone, defaults={"fingerprint": data or MISSING})
        return WalkStep(position={"zone": zone, "after": last}, more=True)


def _select_zones() -> Any:
    """Select the zones of enabled jobs on wall time: from zone to zone along their index, however many jobs."""

    def is_on_wall(jobs: Any) -> Any:
        kinds: Any = [sa.literal_column(f"'{kind}'") for kind in ON_WALL_TIME]
        return sa.and_(jobs.c.enabled, jobs.c.schedule_kind.in_(kinds))

    first = heads(table(CronJob), ("timezone", "id"), ("timezone",), ("id",), is_on_wall)
    return sa.select(first.c.timezone).order_by(first.c.timezone)


_ZONES = Statement(_select_zones)


def used_zones() -> list[str]:
    """The zones of enabled jobs on wall time."""
    return [row.timezone for row in _ZONES.all()]


def changed_zones() -> list[str]:
    """The used zones whose data are missing or differ from the stored fingerprint."""
    known = dict(ZoneData.objects.values_list("name", "fingerprint"))
    found = {name: fingerprint(name) for name in used_zones()}
    return [name for name, data in found.items() if data is None or data != known.get(name)]


def _plan(zone: str, after: str, limit: int, *, is_gone: bool) -> str:
    """Plan the next jobs of a zone, those with ids above `after`. Returns the last id; empty after the last batch."""
    jobs = _jobs().filter(timezone=zone)
    ids = list(jobs.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:limit])
    # clocks first, in the order of ids, as everywhere; the jobs are read after the lock, with all edits
    clocks = list(JobClock.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
    current = jobs.in_bulk(ids)
    mine = [(clock, current[clock.pk]) for clock in clocks if clock.pk in current]
    if is_gone:
        _set_aside(zone, mine)
    else:
        _replan(mine)
    return ids[-1] if len(ids) == limit else ""


def _jobs() -> QuerySet[CronJob]:
    return CronJob.objects.filter(enabled=True, schedule_kind__in=ON_WALL_TIME)


def _replan(jobs: list[tuple[JobClock, CronJob]]) -> None:
    """Set each clock to the first slot after the last recorded one: no slot is repeated, and none is left out."""
    moved, now = [], database_now()
    for clock, job in jobs:
        # a first run that was given is an instant: zone data do not move it
        is_given = clock.next_run_at == clock.planned_from
        after = max(counted_to(clock, now) or clock.planned_from, clock.planned_from)
        before = clock.moved
        try:
            _shift_moved(clock, job)
            following = clock.next_run_at if is_given else current_plan(job, clock).next_firing(after)
        except Exception as error:  # noqa: BLE001 - bad data can raise anything; firing sets the job aside when due
            log_failure(log, "job_not_planned", error, (ScheduleError,), job=job.pk, reason=str(error))
            continue
        if (following, before) != (clock.next_run_at, clock.moved):
            clock.next_run_at = following
            moved.append(clock)
    if moved:
        JobClock.objects.bulk_update(moved, ["next_run_at", "moved"])
        transaction.on_commit(notify_beats, robust=True)


def _shift_moved(clock: JobClock, job: CronJob) -> None:
    """Name moved slots as the new data do, by the nearest slot of the plan: else they would run there once more."""
    slots, moved = plan_of(job, 0).slots, moved_slots(clock)
    shifted: dict[datetime, datetime] = {}
    for slot, to in moved.items():
        near = (slots.last(slot - FARTHEST - TICK, slot), slots.next(slot))
        found = [each for each in near if each and abs(each - slot) <= FARTHEST]
        new = slot if slot in moved.values() else min(found, key=lambda each: abs(each - slot), default=slot)
        shifted[slot if new in shifted else new] = to
    clock.moved = {slot.isoformat(): to.isoformat() for slot, to in shifted.items()} or None


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
