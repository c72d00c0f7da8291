"""A job's plan: its slots up to its end date, fired a little later each (jitter), so many times (rule 4.5).

A slot is the nominal instant; it is fired at the slot plus the job's jitter, which is the same for all its slots.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from automations.active_days import DAY, ActiveDays, window
from automations.active_hours import ActiveHours
from automations.jobs import schedule_of
from automations.models import CronJob
from automations.schedule import ActiveSchedule, EndingSchedule, EverySchedule, Schedule, Slots, next_slot
from automations.zone_files import load_zone

FAR_AHEAD = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """`jitter`: what lies between a slot and its firing. `runs_left`: None without a bound."""

    slots: Slots
    jitter: timedelta
    runs_left: int | None

    def next_firing(self, after: datetime) -> datetime | None:
        """When the first slot later than `after` is fired; None: there is none, or none is to be run any more.

        ScheduleError when the stored schedule has become unusable.
        """
        return self.firing_of(next_slot(self.slots, after))

    def first_slot(self, firing: datetime, last_slot: datetime | None) -> datetime | None:
        """The first slot of a clock that stands at `firing`, and never one that `last_slot` accounts for already.

        The two agree unless a clock was set back, by hand or by a restored backup: that repeats nothing. None: no
        slot is left.
        """
        slot = firing - self.jitter
        if last_slot is None or slot > last_slot:
            return slot
        return next_slot(self.slots, last_slot)

    def firing_of(self, slot: datetime | None, *, runs: int = 0) -> datetime | None:
        """When this slot is fired, after `runs` further ones; None when the plan ends before it."""
        if slot is None or (self.runs_left is not None and self.runs_left <= runs):
            return None
        return slot + self.jitter


def plan_of(job: CronJob, runs_started: int) -> Plan:
    """The plan of a job of which so many slots became runs. ScheduleError: its row holds no readable schedule."""
    slots: Schedule | ActiveSchedule | ActiveDays = schedule_of(job)
    if job.active_from is not None and job.active_to is not None:
        hours = ActiveHours(first=job.active_from, end=job.active_to, timezone=job.timezone)
        slots = _active(schedule_of(job), hours, job.agent_id)
    return Plan(
        slots=slots if job.ends_at is None else EndingSchedule(slots=slots, ends_at=job.ends_at),
        jitter=jitter_of(job),
        runs_left=None if job.max_runs is None else max(0, job.max_runs - runs_started),
    )


def spread(agent_id: int, length: timedelta) -> timedelta:
    """What is an agent's own of a length of time, by its number alone: agents do not all come at once."""
    number = int.from_bytes(hashlib.sha256(str(agent_id).encode()).digest()[:8], "big")
    return timedelta(seconds=number % int(length.total_seconds()))


def _active(schedule: Schedule, hours: ActiveHours, agent_id: int) -> ActiveSchedule | ActiveDays:
    """The slots within the hours; of an interval that is longer than they are, one each so many days."""
    if isinstance(schedule, EverySchedule) and DAY > window(hours) < timedelta(seconds=schedule.seconds):
        since = schedule.anchor.astimezone(load_zone(hours.timezone)).date()
        days = math.ceil(schedule.seconds / DAY.total_seconds())
        return ActiveDays(hours=hours, days=days, since=since, offset=spread(agent_id, window(hours)))
    return ActiveSchedule(slots=schedule, hours=hours)


def accounted_to(last_slot: datetime | None, now: datetime) -> datetime | None:
    """Up to where slots are accounted for. One far ahead of the clock is a fault (`doctor` mends it), and no guide."""
    return None if last_slot is None or last_slot > now + FAR_AHEAD else last_slot


def jitter_of(job: CronJob) -> timedelta:
    """How much later the job's slots are fired: from 0 to `jitter_seconds`, in milliseconds, by its id alone."""
    if not job.jitter_seconds:
        return timedelta(0)
    number = int.from_bytes(hashlib.sha256(job.pk.encode()).digest()[:8], "big")
    return timedelta(milliseconds=number % (job.jitter_seconds * 1000 + 1))
