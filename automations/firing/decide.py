"""Decide which due slot of a job runs and which are skipped (rule 4.5): a pure function of what the batch has read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from automations.models import CatchUp, Overlap
from automations.runs.skips import LATE_AFTER, TICK, Gap, GapReason, gap_between
from automations.schedules.schedule import whole_milliseconds
from automations.schedules.slots import Slots

MAX_WAITING = 1  # runs of one job that may wait in its session's queue
MAX_CATCHING_UP = 100  # runs of one job that may wait while it catches up, or of an isolated routine
ALL_WINDOW = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`run`: at most one slot to run now. `skipped`: oldest first; none of them is later than `run`.

    `accounted_to`: the latest slot run or skipped here, the job's new `last_slot`; None when no slot was due.
    `next_run_at`: may be due already (`catch_up` all); None: the schedule has ended.
    """

    run: tuple[datetime, ...]
    skipped: tuple[Gap, ...]
    accounted_to: datetime | None
    next_run_at: datetime | None


def decide(
    *,
    schedule: Slots,
    next_run_at: datetime,
    now: datetime,
    catch_up: str,
    overlap: str,
    previous_open: bool,
    waiting: int = 0,
    catch_up_queues: bool = False,
) -> Decision:
    """Decide about the due slots from `next_run_at` to `now`. Each is put into one run or gap, or stays due.

    `next_run_at` counts as a slot even if it is not one of the schedule (a routine may be given its first run). Later
    slots are the schedule's. `catch_up`: one | none | all. `overlap`: skip | queue. `previous_open`: the job's
    previous run is queued or running; of an isolated routine: is running. `waiting`: number of its queued runs.
    `catch_up_queues`: with `catch_up` all, a slot more than 60 s late is queued behind open runs instead of skipped,
    up to 100 runs.

    Raises ScheduleError (the stored schedule has become unusable) and ValueError (unknown `catch_up` or `overlap`).
    """
    catching, overlapping = CatchUp(catch_up), Overlap(overlap)
    first, now = whole_milliseconds(next_run_at), whole_milliseconds(now)
    if first > now:
        return nothing_due(first)
    latest = schedule.last(first, now) or first
    chosen = _chosen(schedule, catching, first, latest, now)
    if chosen is None:
        gap = gap_between(schedule, first, latest, GapReason.MISSED)
        return Decision(run=(), skipped=(gap,), accounted_to=latest, next_run_at=schedule.next(latest))
    catches_up = catch_up_queues and catching is CatchUp.ALL and now - chosen > LATE_AFTER
    queues_anyway = catches_up and waiting < MAX_CATCHING_UP
    reason = None if queues_anyway else _overlap_reason(overlapping, previous_open, waiting)
    gaps = _gaps(schedule, first, chosen, now, reason)
    run = (chosen,) if reason is None else ()
    return Decision(run=run, skipped=gaps, accounted_to=chosen, next_run_at=schedule.next(chosen))


def _gaps(
    schedule: Slots, first: datetime, chosen: datetime, now: datetime, reason: GapReason | None
) -> tuple[Gap, ...]:
    """The due slots that are not run, as gaps. `reason`: why the chosen slot is not run; None: it runs.

    Slots for which beat is only a little late share that reason. Else a busy job that comes every second would have
    gaps with two reasons in turn, which cannot be joined.
    """
    start = chosen if reason is None else _first_fresh(schedule, first, chosen, now)
    gaps: tuple[Gap, ...] = ()
    if start != first:
        before = schedule.last(first, start - TICK) or first
        gaps = (gap_between(schedule, first, before, GapReason.MISSED),)
    return gaps if reason is None else (*gaps, gap_between(schedule, start, chosen, reason))


def _first_fresh(schedule: Slots, first: datetime, chosen: datetime, now: datetime) -> datetime:
    """The first due slot that is at most 60 s late; the chosen one if none before it is."""
    if now - first <= LATE_AFTER:
        return first
    return min(schedule.next(now - LATE_AFTER - TICK) or chosen, chosen)


def nothing_due(next_run_at: datetime | None) -> Decision:
    """Return the decision that no slot is due, with the next run at `next_run_at`."""
    return Decision(run=(), skipped=(), accounted_to=None, next_run_at=next_run_at)


def skip_due(schedule: Slots, next_run_at: datetime, now: datetime, reason: GapReason) -> Decision:
    """Skip all due slots as one gap, regardless of `catch_up` and `overlap`."""
    first, now = whole_milliseconds(next_run_at), whole_milliseconds(now)
    latest = schedule.last(first, now) or first
    gap = gap_between(schedule, first, latest, reason)
    return Decision(run=(), skipped=(gap,), accounted_to=latest, next_run_at=schedule.next(latest))


def _chosen(
    schedule: Slots, catching: CatchUp, first: datetime, latest: datetime, now: datetime
) -> datetime | None:
    """The due slot to run, if any; `first` and `latest` are the first and last due slots."""
    if catching is CatchUp.ONE:
        return latest
    if catching is CatchUp.NONE:
        return latest if now - latest <= LATE_AFTER else None
    window = now - ALL_WINDOW
    if first >= window:
        return first
    oldest = schedule.next(window - TICK)
    # A late slot is run however late it is, as long as no later slot is due.
    return oldest if oldest is not None and first < oldest <= latest else latest


def _overlap_reason(overlap: Overlap, previous_open: bool, waiting: int) -> GapReason | None:
    """Why open runs of the job keep a slot from becoming a run; None: they do not."""
    if overlap is Overlap.SKIP:
        if previous_open:
            return GapReason.OVERLAP
        return GapReason.QUEUE_FULL if waiting >= MAX_CATCHING_UP else None
    return GapReason.QUEUE_FULL if waiting >= MAX_WAITING else None
