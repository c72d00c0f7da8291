"""A job's plan: its slots up to its end date, the delay of each firing (jitter), and the number of runs (rule 4.5).

A slot is the nominal time. It is fired at the slot plus the job's jitter, which is the same for all its slots.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from automations.exceptions import ScheduleError
from automations.models import CronJob, ScheduleKind
from automations.schedules.excepted_days import ExceptedDays
from automations.schedules.schedule import (
    AtSchedule,
    CronSchedule,
    EverySchedule,
    RuleSchedule,
    Schedule,
    WallSchedule,
    cron_fields,
)
from automations.schedules.slots import (
    DAY,
    ActiveDays,
    ActiveHours,
    ActiveSchedule,
    EndingSchedule,
    Slots,
    active_length,
)
from automations.schedules.zone_files import load_zone

FAR_AHEAD = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    """When a job runs.

    `slots`: the slots of the `schedule` that may run. `jitter`: the delay between a slot and its firing. `runs_left`:
    None when the runs are not limited.
    """

    schedule: Schedule
    slots: Slots
    jitter: timedelta
    runs_left: int | None

    def next_firing(self, after: datetime) -> datetime | None:
        """When the first slot later than `after` is fired; None: no slot or no run is left.

        ScheduleError when the stored schedule has become unusable.
        """
        return self.firing_of(self.slots.next(after))

    def first_slot(self, firing: datetime, last_slot: datetime | None) -> datetime | None:
        """The slot that is fired at `firing`, or the first one after `last_slot` when that is later. None: none left.

        The second case occurs when a clock was set back, by hand or by a restored backup: no slot is repeated.
        """
        slot = firing - self.jitter
        if last_slot is None or slot > last_slot:
            return slot
        return self.slots.next(last_slot)

    def firing_of(self, slot: datetime | None, *, runs: int = 0) -> datetime | None:
        """When this slot is fired, after `runs` more runs; None when the plan ends before it."""
        if slot is None or (self.runs_left is not None and self.runs_left <= runs):
            return None
        return slot + self.jitter


def plan_of(job: CronJob, runs_started: int) -> JobPlan:
    """The plan of a job that has started so many runs. ScheduleError when its schedule cannot be read."""
    schedule = schedule_of(job)
    slots: Slots = schedule
    if job.active_from is not None and job.active_to is not None:
        hours = ActiveHours(first=job.active_from, end=job.active_to, timezone=job.timezone)
        slots = _active(schedule, hours, job.agent_id)
    return JobPlan(
        schedule=schedule,
        slots=slots if job.ends_at is None else EndingSchedule(slots=slots, ends_at=job.ends_at),
        jitter=jitter_of(job),
        runs_left=None if job.max_runs is None else max(0, job.max_runs - runs_started),
    )


def offset_of_agent(agent_id: int, length: timedelta) -> timedelta:
    """An offset within `length`, derived from the agent's id, so that agents do not all start at the same time."""
    number = int.from_bytes(hashlib.sha256(str(agent_id).encode()).digest()[:8], "big")
    return timedelta(seconds=number % int(length.total_seconds()))


def _active(schedule: Schedule, hours: ActiveHours, agent_id: int) -> Slots:
    """The slots within the hours. An interval longer than the hours becomes one slot every so many days."""
    if isinstance(schedule, EverySchedule) and DAY > active_length(hours) < timedelta(
        seconds=schedule.seconds
    ):
        since = schedule.anchor.astimezone(load_zone(hours.timezone)).date()
        days = math.ceil(schedule.seconds / DAY.total_seconds())
        return ActiveDays(
            hours=hours, days=days, since=since, offset=offset_of_agent(agent_id, active_length(hours))
        )
    return ActiveSchedule(slots=schedule, hours=hours)


def accounted_to(last_slot: datetime | None, now: datetime) -> datetime | None:
    """The latest slot run or skipped. One more than a day ahead is ignored: it is a fault that `doctor` repairs."""
    return None if last_slot is None or last_slot > now + FAR_AHEAD else last_slot


def jitter_of(job: CronJob) -> timedelta:
    """The delay of the job's firings: 0 to `jitter_seconds`, in whole milliseconds, derived from its id."""
    if not job.jitter_seconds:
        return timedelta(0)
    number = int.from_bytes(hashlib.sha256(job.pk.encode()).digest()[:8], "big")
    return timedelta(milliseconds=number % (job.jitter_seconds * 1000 + 1))


def schedule_of(job: CronJob) -> Schedule:
    """The job's schedule. ScheduleError when it cannot be read."""
    excepted = ExceptedDays(dates=tuple(job.except_dates or ()), holidays=job.except_holidays)
    if job.schedule_kind == ScheduleKind.CRON:
        return CronSchedule(expr=job.expr, timezone=job.timezone, excepted=excepted)
    if job.schedule_kind == ScheduleKind.RRULE and job.anchor:
        start = job.anchor.astimezone(UTC).replace(tzinfo=None)  # a wall time, stored as if it was UTC
        return RuleSchedule(rule=job.expr, starts_at=start, timezone=job.timezone, excepted=excepted)
    if job.schedule_kind == ScheduleKind.EVERY and job.every_seconds and job.anchor:
        return EverySchedule(seconds=job.every_seconds, anchor=job.anchor)
    if job.schedule_kind == ScheduleKind.AT and job.at:
        return AtSchedule(at=job.at)
    raise ScheduleError("bad_schedule", f"the job has no readable schedule of kind {job.schedule_kind!r}")


def same_schedule(job: CronJob, schedule: Schedule, now: datetime) -> bool:
    """Whether a job has this schedule. The beginning of an interval and the spelling of a cron expression do not
    matter; of a rule the next slot counts, not where it started.

    Two times that have passed are equal: both run at once.
    """
    try:
        return _is_same(schedule_of(job), schedule, now)
    except ScheduleError:
        return False


def _is_same(stored: Schedule, schedule: Schedule, now: datetime) -> bool:
    if isinstance(stored, EverySchedule) and isinstance(schedule, EverySchedule):
        return stored.seconds == schedule.seconds
    if isinstance(stored, AtSchedule) and isinstance(schedule, AtSchedule):
        return max(stored.at, now) == max(schedule.at, now)
    if not isinstance(stored, WallSchedule) or not isinstance(schedule, WallSchedule):
        return False
    if (stored.timezone, stored.excepted) != (schedule.timezone, schedule.excepted):
        return False
    if isinstance(stored, CronSchedule) and isinstance(schedule, CronSchedule):
        return cron_fields(stored.expr).matches_as(cron_fields(schedule.expr))
    if isinstance(stored, RuleSchedule) and isinstance(schedule, RuleSchedule):
        return stored.fields.parts == schedule.fields.parts and stored.next(now) == schedule.next(now)
    return False


def schedule_columns(schedule: Schedule, timezone: str) -> dict[str, Any]:
    """The columns of a job that hold this schedule. `timezone`: for a schedule without its own zone."""
    empty = {"expr": "", "every_seconds": None, "anchor": None, "at": None, "timezone": timezone}
    return {
        "schedule_kind": schedule.kind,
        **empty,
        "except_dates": None,
        "except_holidays": "",
        **schedule.columns,
    }
