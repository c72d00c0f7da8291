"""What to do with the due slots of one job (rule 4.5), as a pure function of what the batch has read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from .schedule import Schedule


class GapReason(StrEnum):
    """Why slots were not run."""

    MISSED = "missed"
    OVERLAP = "overlap"
    QUEUE_FULL = "queue_full"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Consecutive slots that are not run, both ends included. `count` is None beyond 1,000."""

    reason: GapReason
    slots_from: datetime
    slots_to: datetime
    count: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`run`: at most one slot to run now. `skipped`: oldest first, and all before `run`'s slot or it itself.

    `accounted_to`: the latest slot run or skipped here, the job's new `last_slot`; None when nothing was due.
    `next_run_at`: may already be due again (`catch_up` all); None: the schedule has ended.
    """

    run: tuple[datetime, ...]
    skipped: tuple[Gap, ...]
    accounted_to: datetime | None
    next_run_at: datetime | None


def decide(
    *,
    schedule: Schedule,
    next_run_at: datetime,
    now: datetime,
    catch_up: str,
    overlap: str,
    previous_open: bool,
    waiting: int = 0,
    catch_up_queues: bool = False,
) -> Decision:
    """Decide about every slot from `next_run_at` to `now`; each is in exactly one run or gap, or stays due.

    `catch_up`: one | none | all. `overlap`: skip | queue. `previous_open`: the job's previous run is queued or running.
    `waiting`: its runs that are queued. `catch_up_queues`: with `catch_up` all, a slot more than 60 s late is queued
    behind open runs instead of skipped. Raises ScheduleError (the stored schedule is unusable), ValueError.
    """
    raise NotImplementedError


def run_id(job_id: str, slot: datetime) -> str:
    """The public id of the run of one slot: `<job id>:<epoch ms>`."""
    raise NotImplementedError
