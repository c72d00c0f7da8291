"""What to do with the due slots of one job (rule 4.5), as a pure function of what the batch has read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from automations.models import CatchUp, Overlap
from automations.schedule import Slots, count_slots, last_slot_until, next_slot, whole_milliseconds

COUNT_LIMIT = 1000
MAX_WAITING = 1  # runs of one job that may wait in its session's queue
MAX_CATCHING_UP = 100  # runs of one job that may wait while it catches up
LATE_AFTER = timedelta(seconds=60)
ALL_WINDOW = timedelta(hours=24)
_TICK = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class GapReason(StrEnum):
    """Why slots were not run."""

    MISSED = "missed"
    OVERLAP = "overlap"
    QUEUE_FULL = "queue_full"
    EDITED = "edited"
    SESSION_CLOSED = "session_closed"
    SCHEDULE_ERROR = "schedule_error"
    NOTHING_TO_DO = "nothing_to_do"
    SESSION_BUSY = "session_busy"
    MODEL_DOWN = "model_down"
    NOT_PRIVATE = "not_private"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Consecutive slots that are not run, both ends included. `count` is None beyond 1,000."""

    reason: GapReason
    slots_from: datetime
    slots_to: datetime
    count: int | None

    def and_then(self, later: Gap) -> Gap:
        """One gap of this and later slots, with the same reason and nothing run in between."""
        counts = (self.count, later.count)
        total = None if None in counts else sum(count or 0 for count in counts)
        if total is not None and total > COUNT_LIMIT:
            total = None
        return Gap(reason=self.reason, slots_from=self.slots_from, slots_to=later.slots_to, count=total)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`run`: at most one slot to run now. `skipped`: oldest first; none of them is later than `run`.

    `accounted_to`: the latest slot run or skipped here, the job's new `last_slot`; None when nothing was due.
    `next_run_at`: may already be due again (`catch_up` all); None: the schedule has ended.
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
    """Decide about the due slots from `next_run_at` to `now`. Each is in one run or gap, or stays due.

    `next_run_at` counts as a slot whatever the schedule says (a routine may be given its first one); the slots
    after it are the schedule's. `catch_up`: one | none | all. `overlap`: skip | queue. `previous_open`: the job's
    previous run is queued or running. `waiting`: its runs that are queued. `catch_up_queues`: with `catch_up`
    all, a slot more than 60 s late is queued behind open runs instead of skipped, up to 100 of them.

    Raises ScheduleError (the stored schedule has become unusable) and ValueError (an unknown word).
    """
    catching, overlapping = CatchUp(catch_up), Overlap(overlap)
    first, now = whole_milliseconds(next_run_at), whole_milliseconds(now)
    if first > now:
        return nothing_due(first)
    latest = last_slot_until(schedule, first, now) or first
    chosen = _chosen(schedule, catching, first, latest, now)
    if chosen is None:
        gap = _missed(schedule, first, latest)
        return Decision(run=(), skipped=(gap,), accounted_to=latest, next_run_at=next_slot(schedule, latest))
    gaps = () if chosen == first else (_missed(schedule, first, _before(schedule, first, chosen)),)
    caught_up = (
        catch_up_queues
        and catching is CatchUp.ALL
        and now - chosen > LATE_AFTER
        and waiting < MAX_CATCHING_UP
    )
    refusal = None if caught_up else _refusal(overlapping, previous_open, waiting)
    if refusal is not None:
        gaps = (*gaps, Gap(reason=refusal, slots_from=chosen, slots_to=chosen, count=1))
    run = (chosen,) if refusal is None else ()
    return Decision(run=run, skipped=gaps, accounted_to=chosen, next_run_at=next_slot(schedule, chosen))


def nothing_due(next_run_at: datetime | None) -> Decision:
    """No slot has come: the clock goes on to this one."""
    return Decision(run=(), skipped=(), accounted_to=None, next_run_at=next_run_at)


def skip_due(schedule: Slots, next_run_at: datetime, now: datetime, reason: GapReason) -> Decision:
    """Run none of the due slots, whatever the policies say; one gap names them."""
    first, now = whole_milliseconds(next_run_at), whole_milliseconds(now)
    latest = last_slot_until(schedule, first, now) or first
    gap = replace(_missed(schedule, first, latest), reason=reason)
    return Decision(run=(), skipped=(gap,), accounted_to=latest, next_run_at=next_slot(schedule, latest))


def _chosen(
    schedule: Slots, catching: CatchUp, first: datetime, latest: datetime, now: datetime
) -> datetime | None:
    """The due slot to run, if any; `first` and `latest` are the ends of what is due."""
    if catching is CatchUp.ONE:
        return latest
    if catching is CatchUp.NONE:
        return latest if now - latest <= LATE_AFTER else None
    window = now - ALL_WINDOW
    if first >= window:
        return first
    oldest = next_slot(schedule, window - _TICK)
    # A slot that is merely late, with no other after it, is run however late it is.
    return oldest if oldest is not None and first < oldest <= latest else latest


def _refusal(overlap: Overlap, previous_open: bool, waiting: int) -> GapReason | None:
    """Why a slot may not become a run now."""
    if overlap is Overlap.SKIP:
        return GapReason.OVERLAP if previous_open else None
    return GapReason.QUEUE_FULL if waiting >= MAX_WAITING else None


def _before(schedule: Slots, first: datetime, slot: datetime) -> datetime:
    """The due slot before `slot`; `first` is the first of them."""
    return last_slot_until(schedule, first, slot - _TICK) or first


def _missed(schedule: Slots, first: datetime, last: datetime) -> Gap:
    """The gap from `first` to `last`, both included. Counting stops at the limit."""
    others = count_slots(schedule, first, last, COUNT_LIMIT - 1)
    count = None if others is None else 1 + others
    return Gap(reason=GapReason.MISSED, slots_from=first, slots_to=last, count=count)


def run_id(job_id: str, slot: datetime) -> str:
    """The public id of the run of one slot: `<job id>:<epoch ms>`."""
    return f"{job_id}:{(whole_milliseconds(slot) - _EPOCH) // _TICK}"
