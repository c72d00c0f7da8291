"""Slots of appointments: what became of each, as one word and one sentence."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum

from automations.models import RunRecord, RunState
from automations.models.run import CANCELLED_BY_ERROR
from automations.runs.skips import LATE_AFTER, GapReason

LATE_MS = LATE_AFTER // timedelta(milliseconds=1)


class SlotState(StrEnum):
    """What became of a slot.

    `late`: it ran, but started more than 60 s after its time. `missed`: nothing was there to run it. `skipped`: the
    rules or a person kept it from running, or a person cancelled it. `failed`: also cancelled by an error. `waiting`:
    queued, running or waiting for a retry. `next`: it is still to come.
    """

    RAN = "ran"
    LATE = "late"
    SKIPPED = "skipped"
    MISSED = "missed"
    FAILED = "failed"
    WAITING = "waiting"
    NEXT = "next"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A slot, or consecutive slots that were not run: from `at` to `until`, `count` of them.

    Instants are in the appointment's zone. `until` is None for a single slot; `count` is None for a run, and above
    1,000. `session_id`: where it ran. `turn_id`: None when it has no turn, or that was deleted.
    """

    at: datetime
    until: datetime | None
    state: str
    text: str
    lag_ms: int | None
    duration_ms: int | None
    run_id: str
    turn_id: int | None
    session_id: uuid.UUID | None
    count: int | None


def slot_state(run: RunRecord) -> SlotState:
    """What became of the slot of this run."""
    match run.state:
        case RunState.SUCCEEDED:
            return SlotState.LATE if (run.lag_ms or 0) > LATE_MS else SlotState.RAN
        case RunState.FAILED:
            return SlotState.FAILED
        case RunState.CANCELLED:
            return SlotState.FAILED if run.reason in CANCELLED_BY_ERROR else SlotState.SKIPPED
        case RunState.SKIPPED:
            return _WHY_SKIPPED.get(run.reason, SlotState.SKIPPED)
    return SlotState.WAITING


_WHY_SKIPPED: dict[str, SlotState] = {
    GapReason.MISSED: SlotState.MISSED,
    GapReason.SCHEDULE_ERROR: SlotState.FAILED,
}


def slot_of(run: RunRecord, text: str, zone: tzinfo) -> Slot:
    """The slot of this run. `text`: its sentence."""
    begin, end = run.slots_from or run.scheduled_for, run.slots_to
    return Slot(
        at=begin.astimezone(zone),
        until=end.astimezone(zone) if end is not None and end != begin else None,
        state=slot_state(run).value,
        text=text,
        lag_ms=run.lag_ms,
        duration_ms=run.duration_ms,
        run_id=run.run_id,
        turn_id=run.turn_id,
        session_id=run.session_id,
        count=run.slots_count,
    )
