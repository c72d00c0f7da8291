"""Skipped slots: gaps of consecutive slots, stored as one skipped run each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from automations.exceptions import ScheduleError
from automations.models import CronJob, RunRecord, RunState
from automations.models.job import internal_key
from automations.schedules.plan import plan_of
from automations.schedules.schedule import whole_milliseconds
from automations.schedules.slots import Slots
from sessions_app import metrics

COUNT_LIMIT = 1000
LATE_AFTER = timedelta(seconds=60)
TICK = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class GapReason(StrEnum):
    """Why slots were not run."""

    MISSED = "missed"
    OVERLAP = "overlap"
    QUEUE_FULL = "queue_full"
    EDITED = "edited"
    SKIPPED_BY_USER = "skipped_by_user"
    MOVED = "moved"
    SESSION_CLOSED = "session_closed"
    SCHEDULE_ERROR = "schedule_error"
    NOTHING_TO_DO = "nothing_to_do"
    SESSION_BUSY = "session_busy"
    MODEL_DOWN = "model_down"
    NOT_PRIVATE = "not_private"
    OWNER_INACTIVE = "owner_inactive"
    STORAGE_FULL = "storage_full"
    GATE = "gate"
    BACKOFF = "backoff"
    BUDGET = "budget"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Consecutive slots that are not run, both ends included. `count` is None above 1,000."""

    reason: GapReason
    slots_from: datetime
    slots_to: datetime
    count: int | None

    def joined_with(self, later: Gap) -> Gap:
        """This gap and a later one of the same reason as one gap; no slot between them was run."""
        counts = (self.count, later.count)
        total = None if None in counts else sum(count or 0 for count in counts)
        if total is not None and total > COUNT_LIMIT:
            total = None
        return Gap(reason=self.reason, slots_from=self.slots_from, slots_to=later.slots_to, count=total)


def gap_between(slots: Slots, first: datetime, last: datetime, reason: GapReason) -> Gap:
    """The gap from the slot `first` to the slot `last`, both included."""
    others = slots.count(first, last, COUNT_LIMIT - 1)
    return Gap(reason=reason, slots_from=first, slots_to=last, count=None if others is None else others + 1)


def run_id(job_id: str, slot: datetime) -> str:
    """The public id of the run of one slot: `<job id>:<epoch ms>`."""
    return f"{job_id}:{(whole_milliseconds(slot) - _EPOCH) // TICK}"


def record_gap(job: CronJob, gap: Gap, error_detail: str = "", *, moved_to: datetime | None = None) -> None:
    """Store skipped slots: extend the run before when that is a gap of the same reason, else insert a run.

    `moved_to`: of a single slot that was moved.
    """
    if gap.reason is GapReason.QUEUE_FULL:
        metrics.count(metrics.Counted.QUEUE_FULL, gap.count or COUNT_LIMIT, queue="automation")
    # a slot that is still to come may have been moved
    before = RunRecord.objects.filter(job_id=job.pk, scheduled_for__lte=gap.slots_from)
    last = before.order_by("-scheduled_for").first()
    if last is not None and _continues(job, last, gap):
        known = Gap(
            reason=gap.reason,
            slots_from=last.slots_from or last.scheduled_for,
            slots_to=last.slots_to or last.scheduled_for,
            count=last.slots_count,
        )
        joined = known.joined_with(gap)
        RunRecord.objects.extend_gap(last.pk, joined.slots_to, joined.count)
        metrics.count_run(RunState.SKIPPED, gap.reason, gap.count or COUNT_LIMIT)
        return
    # the slots that a cap stops after the first one have no turn: they say which cap it was as the first one does
    stopped = before.filter(reason=GapReason.BUDGET, cap__isnull=False).order_by("-scheduled_for")
    first = stopped.first() if gap.reason is GapReason.BUDGET else None
    RunRecord.objects.add_skipped(
        run_id=run_id(job.pk, gap.slots_from),
        job_id=job.pk,
        session_id=job.session_id,
        session_key=_session_key(job),
        scheduled_for=gap.slots_from,
        reason=gap.reason,
        slots_from=gap.slots_from,
        slots_to=gap.slots_to,
        slots_count=gap.count,
        moved_to=moved_to,
        error=first.error if first else "",
        cap=first.cap if first else None,
        error_detail=error_detail[:2000],
    )


def _session_key(job: CronJob) -> str:
    return job.session.key if job.session else internal_key(job.pk, job.system_event, job.agent.name)


def _continues(job: CronJob, last: RunRecord, gap: Gap) -> bool:
    """Whether the last run is a gap of the same reason, and this gap begins at the very next slot."""
    if (
        gap.reason is GapReason.MOVED
        or last.state != RunState.SKIPPED
        or last.reason != gap.reason
        or last.slots_from is None
    ):
        return False
    try:
        return plan_of(job, 0).slots.next(last.slots_to or last.slots_from) == gap.slots_from
    except ScheduleError:
        return False  # an unreadable schedule is what is being recorded
