"""What became of a slot, in one word and one sentence: for each state of a run, and each reason that the code writes.

No sentence has content for operators only, such as an exception's text or a prompt.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any

from agent_core.exceptions import FINAL_CODES, PASSING_CODES, CapReached
from automations.models import Attention, RunRecord, RunState
from automations.models.run import CANCELLED_BY_ERROR
from automations.runs.skips import LATE_AFTER, GapReason

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

GAPS: dict[str, tuple[str, str]] = {  # what happened to the slots, and why
    GapReason.MISSED: ("missed", "the server was down"),
    GapReason.OVERLAP: ("skipped", "the previous run had not ended"),
    GapReason.QUEUE_FULL: ("skipped", "a run was already waiting"),
    GapReason.EDITED: ("not run", "the automation was changed or paused first"),
    GapReason.SKIPPED_BY_USER: ("skipped", "on a person's request"),
    GapReason.MOVED: ("moved", "to another time, on a person's request"),
    GapReason.SESSION_CLOSED: ("not run", "the conversation was closed"),
    GapReason.NOTHING_TO_DO: ("not run", "there was nothing to do"),
    GapReason.SESSION_BUSY: ("skipped", "the previous heartbeat had not ended"),
    GapReason.MODEL_DOWN: ("skipped", "the model did not answer the previous heartbeats"),
    GapReason.NOT_PRIVATE: ("not sent", "the conversation was not a private chat any more"),
    GapReason.OWNER_INACTIVE: ("not run", "the owner's account was inactive"),
    GapReason.STORAGE_FULL: ("not run", "the owner's conversations hold as much as a user may store here"),
    GapReason.BACKOFF: ("skipped", "its runs keep failing, so it runs at most once an hour"),
    GapReason.BUDGET: ("skipped", "a cap on tokens or money was reached"),
    GapReason.SCHEDULE_ERROR: ("not run", "the automation could not be fired and was disabled"),
    GapReason.GATE: ("skipped", "the check before it found nothing to do"),
}
NOT_SENT = {  # the `last_error` of a scheduled message
    GapReason.SESSION_CLOSED: "The conversation was closed when the message was due.",
    GapReason.NOT_PRIVATE: "The conversation was not a private chat any more when the message was due.",
    GapReason.SCHEDULE_ERROR: "The message could not be queued.",
}
CANCELLED = {
    "": "Cancelled while it was running",
    "cancelled": "Cancelled while it waited",
    "paused": "Cancelled: the automation was paused while this run waited",
    "edited": "Cancelled: the routine's execution mode has changed since the last attempt",
    "session_archived": "Cancelled: its session was archived",
    "deleted": "Cancelled: the automation was deleted while this run waited",
    "session_closed": "Cancelled: the conversation was closed when the next attempt was due",
    "session_deleted": "Cancelled: its conversation was deleted",
    "owner_inactive": "Cancelled: the owner's account was made inactive",
    "retry_error": "Cancelled: its next attempt could not be queued",
    "superseded": "Cancelled: the next slot came while this run waited for a retry",
}
NOT_REPEATED = {  # of a run that waited for another attempt, after what its last one failed for
    "retry_error": "its next attempt could not be queued",
    "superseded": "not repeated, the next slot came",
}
FAILED = {
    "model_unavailable": "the model did not answer",
    "rate_limited": "the model provider is overloaded",
    "model_refused": "the model provider rejected the request",
    "model_auth": "the model provider rejected the API key",
    "model_not_found": "the model provider does not know the model",
    "model_quota": "the quota of the account at the model provider is used up",
    "context_too_long": "the conversation is too long for the model",
    "model_not_configured": "the model is not set up on this server",
    "budget": "a cap on tokens or money allowed no further call of the model",
    "budget_held": "other calls held what was left of a cap on tokens or money",
    "timeout": "it took too long",
    "max_tool_calls": "it made too many tool calls",
    "max_failed_tool_outputs": "too many of its tool calls failed",
    "max_same_failure_signature": "a tool kept failing in the same way",
    "max_same_tool_intent": "it made the same tool call too often",
    "invalid_plan": "the model did not return a valid plan",
    "no_answer": "it ended without an answer",
    "question_closed": "the question that it answered was closed",
    "max_rescues": "it was interrupted too often",
    "tool_hung": "a tool did not return",
    "commit_failed": "its result could not be stored",
    "internal_error": "an internal error occurred",
}
ENDS_SLOWING = "To end that, remove the cause and resume it, change it, or allow what it asks for."
NEEDS_LOOK = {  # why a run that succeeded may not have done what it should
    Attention.EMPTY: "it ended without an answer",
    Attention.CUT_SHORT: "its answer was cut short",
    Attention.UNDELIVERED: "its answer could not be delivered",
    Attention.NEEDS_CONSENT: "it asks for your consent or an answer",
}
REASONS = frozenset({*GAPS, *CANCELLED, *FAILED} - {""})  # plugins add codes of failures
_TRIES = re.compile(r"; tried \d+ times(?=\.?$)")  # of a call: people count the attempts of the run
_UNKNOWN_FAILURE = "an error occurred"
_WITH_OWN_WORDS = FINAL_CODES | PASSING_CODES | {CapReached.code, CapReached.HELD} | NOT_REPEATED.keys()


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueWait:
    """The reasons why a queued run waits.

    `owner_inactive`: the owner's account. `behind_others`: other turns of the owner, which run now. `busy_with`: the
    turn that its session runs. `ahead`: number of turns before it in the session's queue. `next_slot`: of its job; a
    run that waits for a retry gives way to it.
    """

    owner_inactive: bool = False
    behind_others: bool = False
    busy_with: str = ""
    busy_since: datetime | None = None
    ahead: int = 0
    queued_at: datetime | None = None
    next_slot: datetime | None = None


def why_failed(run: RunRecord) -> str:
    """The reason of a failure, as the end of a sentence; a general one for an unknown error code, such as a plugin's.

    A failure at the model or a cap has the text of its turn, and what the provider said: only owners and operators read
    it.
    """
    if run.error and run.reason in _WITH_OWN_WORDS:
        said = f"; it said: {run.provider_message}" if run.provider_message else ""
        return _own_words(run) + said
    return FAILED.get(run.reason, _UNKNOWN_FAILURE)


def _own_words(run: RunRecord) -> str:
    """The text of the run's turn, as the end of a sentence."""
    error = _TRIES.sub("", run.error).rstrip(".")
    return error[:1].lower() + error[1:]


def when(instant: datetime, zone: tzinfo) -> str:
    """`2027-01-01 09:00`, with seconds unless they are 0."""
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


class SlotState(StrEnum):
    """What became of a slot.

    `late`: it ran, but started more than 60 s after its time. `attention`: it ran, but may not have done what it
    should. `missed`: nothing was there to run it. `skipped`: the
    rules or a person kept it from running, or a person cancelled it. `failed`: also cancelled by an error. `waiting`:
    queued, running or waiting for a retry. `next`: it is still to come.
    """

    RAN = "ran"
    LATE = "late"
    ATTENTION = "attention"
    SKIPPED = "skipped"
    MISSED = "missed"
    FAILED = "failed"
    WAITING = "waiting"
    NEXT = "next"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A slot, or consecutive slots that were not run. Instants are in the zone of the job or message.

    `state`, `text`: what became of it in one word and in one sentence. `run_state`, `reason`: of its run. `count`: of
    slots that were not run; None for a run, and above 1,000. `session_id`: where it ran. `turn_id`: None when it has no
    turn, or that was deleted.
    """

    run_id: str
    scheduled_for: datetime
    state: SlotState
    text: str
    run_state: str
    reason: str
    attention: str
    slots_from: datetime | None
    slots_to: datetime | None
    moved_to: datetime | None
    count: int | None
    attempt: int
    lag_ms: int | None
    duration_ms: int | None
    turn_id: int | None
    session_id: uuid.UUID | None

    @property
    def at(self) -> datetime:
        """Where it begins."""
        return self.slots_from or self.scheduled_for

    @property
    def until(self) -> datetime | None:
        """The last of several slots; None for a single one."""
        return self.slots_to if self.slots_to != self.at else None


def cap_in_words(run: Any) -> str:
    """Which cap skipped this run, in sentences; empty: none did."""
    if run is None or run.state != RunState.SKIPPED or run.reason != GapReason.BUDGET:
        return ""
    return run.error or f"{GAPS[GapReason.BUDGET][1].capitalize()}."


def slot_state(run: Any) -> SlotState:
    """What became of the slot of this run, in one word."""
    match run.state:
        case RunState.SUCCEEDED if run.attention != Attention.NONE:
            return SlotState.ATTENTION
        case RunState.SUCCEEDED:
            return SlotState.LATE if timedelta(milliseconds=run.lag_ms or 0) > LATE_AFTER else SlotState.RAN
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


def slot_of(
    run: Any,
    zone: tzinfo,
    *,
    waiting: QueueWait | None = None,
    instead: Any = None,
    came_from: datetime | None = None,
) -> Slot:
    """The slot of this run. `waiting`, `instead`: see `describe_run`. `came_from`: the slot that was moved to it."""
    text = describe_run(run, zone, waiting=waiting, instead=instead)
    return Slot(
        run_id=run.run_id,
        scheduled_for=run.scheduled_for.astimezone(zone),
        state=slot_state(run),
        text=f"{text} Moved from {when(came_from, zone)}." if came_from else text,
        run_state=run.state,
        reason=run.reason,
        attention=run.attention,
        slots_from=run.slots_from and run.slots_from.astimezone(zone),
        slots_to=run.slots_to and run.slots_to.astimezone(zone),
        moved_to=run.moved_to and run.moved_to.astimezone(zone),
        count=run.slots_count,
        attempt=run.attempt,
        lag_ms=run.lag_ms,
        duration_ms=run.duration_ms,
        turn_id=run.turn_id,
        session_id=run.session_id,
    )


def describe_run(
    run: RunRecord, zone: tzinfo, *, waiting: QueueWait | None = None, instead: RunRecord | None = None
) -> str:
    """One sentence. `waiting`: for a queued run. `instead`: for a gap, the run of the next slot, if there is one."""
    match run.state:
        case RunState.SKIPPED:
            return f"{_gap(run, zone)}{_instead(run, zone, instead)}."
        case RunState.QUEUED:
            if run.not_before:
                return _repeats(run, run.not_before, zone, waiting)
            return _waits(run, zone, waiting or QueueWait())
        case RunState.RUNNING:
            since = f" since {when(run.started_at, zone)}" if run.started_at else ""
            return f"Running{since}{_attempt(run)}."
        case RunState.CANCELLED if run.error and run.reason in NOT_REPEATED:
            return f"{_failed(run, run.attempt - 1)}; {NOT_REPEATED[run.reason]}."
        case RunState.CANCELLED:
            return f"{CANCELLED.get(run.reason, CANCELLED['cancelled'])}."
        case RunState.FAILED:
            return f"{_failed(run, run.attempt)}."
        case _:
            return _ran(run)


def _failed(run: RunRecord, attempts: int) -> str:
    tries = f" after {attempts} attempts" if attempts > 1 else ""
    return f"Failed{tries}: {why_failed(run)}"


def _gap(run: RunRecord, zone: tzinfo) -> str:
    what, why = GAPS.get(run.reason, ("not run", "the reason is unknown"))
    if run.moved_to is not None:
        return f"Moved to {when(run.moved_to, zone)}"
    if run.reason == GapReason.GATE and run.response_summary:
        why = run.response_summary
    if run.reason == GapReason.BUDGET and run.error:
        why = _own_words(run)
    if run.slots_from is None or run.slots_to is None or run.slots_from == run.slots_to:
        return f"{what.capitalize()}: {why}"
    count = "More than 1,000" if run.slots_count is None else str(run.slots_count)
    ends = f"from {when(run.slots_from, zone)} to {when(run.slots_to, zone)}"
    return f"{count} slots {ends} were {what}: {why}"


def _instead(run: RunRecord, zone: tzinfo, following: RunRecord | None) -> str:
    if run.reason != GapReason.MISSED or following is None or following.state == RunState.SKIPPED:
        return ""
    return f"; the slot at {when(following.scheduled_for, zone)} was run instead"


def _repeats(run: RunRecord, at: datetime, zone: tzinfo, waiting: QueueWait | None) -> str:
    """What happens first to a run that waits for a retry: without `waiting` the next slot is not known."""
    begin, attempt, why = when(at, zone), f"attempt {run.attempt}", why_failed(run)
    following = waiting.next_slot if waiting else None
    if following and following <= at:
        return f"Failed: {why}. It runs again at its next slot, {when(following, zone)}."
    first = ", unless the next slot comes first" if run.job_id and waiting is None else ""
    return f"Waits for a retry: {attempt} starts at {begin}{first}, because {why}."


def _waits(run: RunRecord, zone: tzinfo, waiting: QueueWait) -> str:
    if waiting.owner_inactive:
        return f"Waits{_attempt(run)}: the owner's account is inactive."
    if waiting.busy_with:
        since = f" since {when(waiting.busy_since, zone)}" if waiting.busy_since else ""
        return f"Waits{_attempt(run)}: the conversation is busy with {waiting.busy_with}{since}."
    if waiting.ahead:
        return f"Waits{_attempt(run)}: {waiting.ahead} turns before it in the conversation's queue."
    since = f" since {when(waiting.queued_at, zone)}" if waiting.queued_at else ""
    if waiting.behind_others:
        return f"Waits{since}{_attempt(run)}: other turns of the owner run first."
    return f"Waits for a worker{since}{_attempt(run)}."


def _attempt(run: RunRecord) -> str:
    return f" (attempt {run.attempt})" if run.attempt > 1 else ""


def _ran(run: RunRecord) -> str:
    lag = timedelta(milliseconds=run.lag_ms or 0)
    late = f" {span(lag)} late" if lag > LATE_AFTER else ""
    took = f" It took {span(timedelta(milliseconds=run.duration_ms))}." if run.duration_ms is not None else ""
    tries = f", at attempt {run.attempt}" if run.attempt > 1 else ""
    but = f", but {why}" if (why := NEEDS_LOOK.get(Attention(run.attention), "")) else ""
    gate = f" {run.error}" if run.error else ""  # of a run that succeeded: why its check failed
    return f"Ran{late}{tries}{but}.{took}{gate}"
