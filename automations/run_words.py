"""What came of a run, in one sentence for a person: each state, each reason that the code writes.

No sentence holds what is for operators only: no exception's text, no prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from automations.models import RunRecord, RunState
from automations.slots import LATE_AFTER, GapReason

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

# one slot, and several: {slots} is "12 slots from … to …"
GAPS: dict[str, tuple[str, str]] = {
    GapReason.MISSED: ("Missed while the server was down", "{slots} were missed while the server was down"),
    GapReason.OVERLAP: (
        "Skipped: the run before was still going on",
        "{slots} were skipped: the run before was still going on",
    ),
    GapReason.QUEUE_FULL: (
        "Skipped: a run was waiting already",
        "{slots} were skipped: a run was waiting already",
    ),
    GapReason.EDITED: (
        "Not run: the automation was changed or paused before this slot was fired",
        "{slots} were not run: the automation was changed or paused before they were fired",
    ),
    GapReason.SESSION_CLOSED: (
        "Not run: the conversation takes no input any more",
        "{slots} were not run: the conversation takes no input any more",
    ),
    GapReason.NOTHING_TO_DO: (
        "Not run: there was nothing to do",
        "{slots} were not run: there was nothing to do",
    ),
    GapReason.SESSION_BUSY: (
        "Skipped: the heartbeat before was still going on",
        "{slots} were skipped: the heartbeat before was still going on",
    ),
    GapReason.MODEL_DOWN: (
        "Skipped: the model did not answer the ones before",
        "{slots} were skipped: the model did not answer the ones before",
    ),
    GapReason.NOT_PRIVATE: (
        "Not sent: the conversation is no private chat any more",
        "{slots} were not sent: the conversation is no private chat any more",
    ),
    GapReason.SCHEDULE_ERROR: (
        "Not run: the automation could not be fired, and was set aside",
        "{slots} were not run: the automation could not be fired, and was set aside",
    ),
}
NOT_SENT = {  # of a scheduled message: its `last_error`
    GapReason.SESSION_CLOSED: "The conversation took no input any more when it was due.",
    GapReason.NOT_PRIVATE: "The conversation was no private chat any more when it was due.",
    GapReason.SCHEDULE_ERROR: "It could not be queued.",
}
CANCELLED = {
    "": "Stopped while it was running",
    "cancelled": "Cancelled while it waited",
    "paused": "Cancelled: the automation was paused while this run waited",
    "edited": "Cancelled: the routine is done in another way since this run was tried",
    "session_archived": "Cancelled: its session was archived",
    "deleted": "Cancelled: the automation was deleted while this run waited",
    "session_closed": "Cancelled: the conversation took no input any more when the next attempt was due",
    "session_deleted": "Cancelled: its conversation was deleted",
    "retry_error": "Its next attempt could not be queued",
    "superseded": "Gave way to the next slot while it waited for another attempt",
}
FAILED = {
    "model_unavailable": "the model did not answer",
    "model_refused": "the model refused the request",
    "model_not_configured": "the model is not set up on this server",
    "timeout": "it took too long",
    "max_tool_calls": "it made too many tool calls",
    "max_failed_tool_outputs": "too many of its tools failed",
    "max_same_failure_signature": "a tool kept failing in the same way",
    "max_same_tool_intent": "it made the same tool call too often",
    "invalid_plan": "no plan could be made of it",
    "no_answer": "it came to no answer",
    "question_closed": "the question that it answered was closed",
    "max_rescues": "it was interrupted too often",
    "tool_hung": "a tool did not come back",
    "commit_failed": "its result could not be stored",
    "internal_error": "something went wrong inside the server",
}
_UNKNOWN_FAILURE = "something went wrong"


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """What a queued run waits for: the turn that its session is busy with, or how many are before it."""

    busy_with: str = ""
    busy_since: datetime | None = None
    ahead: int = 0
    queued_at: datetime | None = None


def why_failed(run: RunRecord) -> str:
    """The end of a sentence; an error that nobody foresaw, a plugin's say, has a general one."""
    return FAILED.get(run.reason, _UNKNOWN_FAILURE)


def when(instant: datetime, zone: tzinfo) -> str:
    """`2027-01-01 09:00`, with seconds where there are any."""
    local = instant.astimezone(zone)
    return local.strftime("%Y-%m-%d %H:%M:%S" if local.second else "%Y-%m-%d %H:%M")


def span(length: timedelta) -> str:
    """`45 s`, `3 min`, `2 h 5 min`: the two largest units."""
    left = max(0, round(length.total_seconds()))
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def text_of(
    run: RunRecord, zone: tzinfo, *, waiting: Waiting | None = None, instead: RunRecord | None = None
) -> str:
    """One sentence. `waiting`: of a queued run. `instead`: the run of the slot after a gap, if there is one."""
    match run.state:
        case RunState.SKIPPED:
            return f"{_gap(run, zone)}{_instead(run, zone, instead)}."
        case RunState.QUEUED:
            return _waits(run, zone, waiting or Waiting())
        case RunState.RUNNING:
            since = f" since {when(run.started_at, zone)}" if run.started_at else ""
            return f"Running{since}{_attempt(run)}."
        case RunState.CANCELLED:
            return f"{CANCELLED.get(run.reason, CANCELLED['cancelled'])}."
        case RunState.FAILED:
            tries = f" after {run.attempt} attempts" if run.attempt > 1 else ""
            return f"Failed{tries}: {why_failed(run)}."
        case _:
            return _ran(run)


def _gap(run: RunRecord, zone: tzinfo) -> str:
    one, several = GAPS.get(run.reason, ("Not run", "{slots} were not run"))
    if run.slots_from is None or run.slots_to is None or run.slots_from == run.slots_to:
        return one
    count = "More than 1,000" if run.slots_count is None else str(run.slots_count)
    ends = f"from {when(run.slots_from, zone)} to {when(run.slots_to, zone)}"
    return several.format(slots=f"{count} slots {ends}")


def _instead(run: RunRecord, zone: tzinfo, following: RunRecord | None) -> str:
    if run.reason != GapReason.MISSED or following is None or following.state == RunState.SKIPPED:
        return ""
    return f"; the slot of {when(following.scheduled_for, zone)} was run instead"


def _waits(run: RunRecord, zone: tzinfo, waiting: Waiting) -> str:
    if run.not_before is not None:
        again = f"attempt {run.attempt} begins at {when(run.not_before, zone)}"
        return f"Waits for a retry: {again}, because {why_failed(run)}."
    if waiting.busy_with:
        since = f" since {when(waiting.busy_since, zone)}" if waiting.busy_since else ""
        return f"Waits{_attempt(run)}: the conversation is busy with {waiting.busy_with}{since}."
    if waiting.ahead:
        return f"Waits{_attempt(run)}: {waiting.ahead} before it in the conversation's queue."
    since = f" since {when(waiting.queued_at, zone)}" if waiting.queued_at else ""
    return f"Waits for a worker{since}{_attempt(run)}."


def _attempt(run: RunRecord) -> str:
    return f" (attempt {run.attempt})" if run.attempt > 1 else ""


def _ran(run: RunRecord) -> str:
    lag = timedelta(milliseconds=run.lag_ms or 0)
    late = f" {span(lag)} late" if lag > LATE_AFTER else ""
    took = f" It took {span(timedelta(milliseconds=run.duration_ms))}." if run.duration_ms is not None else ""
    tries = f", at attempt {run.attempt}" if run.attempt > 1 else ""
    return f"Ran{late}{tries}.{took}"
