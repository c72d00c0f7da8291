"""What a run records of its turn: started, shown, closed, and whether there is another attempt (rule 4.7).

Each is part of the transaction that changes the turn, so neither is ahead of the other. A turn speaks for its own
attempt of the run only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import BigIntegerField, DurationField, ExpressionWrapper, F, QuerySet
from django.db.models.functions import Cast, Extract, Now

from agent_core.exceptions import ModelNotConfigured, ModelRefused
from agent_core.types import Ending, TurnResult
from automations.models import CronJob, RunRecord, RunState
from sessions_app.kinds import Trigger
from sessions_app.models import Turn

RETRY_AFTER = (timedelta(minutes=5), timedelta(minutes=15), timedelta(minutes=30))  # the last one repeats
FINAL_ERRORS = frozenset({ModelRefused.code, ModelNotConfigured.code})  # asking again does not help
OPEN_RUNS = (RunState.QUEUED, RunState.RUNNING)
RUN_STATES = {
    Ending.SUCCEEDED: RunState.SUCCEEDED,
    Ending.FAILED: RunState.FAILED,
    Ending.CANCELLED: RunState.CANCELLED,
}

# by the database's clock, which also set the start; null for a run that never started
_ELAPSED = ExpressionWrapper(Now() - F("started_at"), DurationField())
_MILLISECONDS = Cast(Extract(_ELAPSED, "epoch") * 1000, BigIntegerField())


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An attempt that ended with its turn; `is_final`: no other one follows."""

    pk: str
    job: CronJob
    is_final: bool


def started(turn: Turn) -> None:
    """QUEUED → RUNNING; a turn that is resumed changes nothing."""
    _attempt(turn).filter(state=RunState.QUEUED).update(state=RunState.RUNNING, started_at=Now())


def shown(turn: Turn, trigger: Trigger) -> None:
    """Keep what the model is shown; the history does not."""
    template = trigger.template or {}
    _attempt(turn).update(
        prompt_ref=template["prompt_ref"],
        prompt_variables=template["variables"],
        rendered_prompt=trigger.model_content,
    )


def closed(turn: Turn, result: TurnResult, closure: str) -> None:
    """The attempt's outcome: the run's own, or, while attempts are left, a wait for the next one."""
    wait = None
    if _may_come_again(result):
        wait = _wait_for_retry(_attempt(turn).filter(state=RunState.RUNNING, job__enabled=True).first())
    _close(_attempt(turn), result, closure, wait)


def closed_all(turn: Turn, result: TurnResult, closure: str) -> list[Ended]:
    """The outcome for every run of a turn that several share, in the order of their slots."""
    ended = []
    for run in (
        _attempt(turn).filter(state__in=OPEN_RUNS).select_related("job").order_by("scheduled_for", "pk")
    ):
        wait = _wait_for_retry(run) if run.of_job.enabled and _may_come_again(result) else None
        _close(RunRecord.objects.filter(pk=run.pk), result, closure, wait)
        if run.of_job.system_event == "":
            ended.append(Ended(pk=run.pk, job=run.of_job, is_final=wait is None))
    return ended


def _close(attempt: QuerySet[RunRecord], result: TurnResult, closure: str, wait: timedelta | None) -> None:
    outcome: dict[str, Any] = {
        "reason": result.error_code or "",
        "error": (result.error_text or "")[:300],
        "error_detail": (result.error_detail or "").replace("\x00", ""),
        "response_summary": first_line(closure),
        "usage": result.usage.to_json(),
        "duration_ms": _MILLISECONDS,
    }
    if wait is not None:
        outcome |= {"state": RunState.QUEUED, "attempt": F("attempt") + 1, "not_before": Now() + wait}
    else:
        outcome |= {"state": RUN_STATES[result.ending], "finished_at": Now()}
    attempt.filter(state__in=OPEN_RUNS).update(**outcome)


def _may_come_again(result: TurnResult) -> bool:
    return result.ending is Ending.FAILED and result.error_code not in FINAL_ERRORS


def _wait_for_retry(run: RunRecord | None) -> timedelta | None:
    """How long until the next attempt; None: there is none. `run`: as it was fired; None: its job is paused."""
    if run is None or run.attempt > run.snapshot.get("max_retry", 0):
        return None
    return RETRY_AFTER[min(run.attempt, len(RETRY_AFTER)) - 1]


def _attempt(turn: Turn) -> QuerySet[RunRecord]:
    if not turn.origin_run:  # several share it
        return RunRecord.objects.filter(turn=turn, not_before=None)
    return RunRecord.objects.filter(run_id=turn.origin_run, attempt=turn.origin_attempt)


def first_line(text: str) -> str:
    """The first line of a reply, at most 200 characters."""
    return next(iter(text.strip().splitlines()), "")[:200]
