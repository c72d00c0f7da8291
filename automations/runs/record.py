"""Record a turn's outcome in its run, which ends or waits for another attempt (4.7, 11.2), and cancel queued runs.

Each function is part of the transaction that changes the turn, so the two always agree. A turn changes its run only
while the run is at the turn's attempt.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db.models import BigIntegerField, DurationField, ExpressionWrapper, F
from django.db.models.functions import Cast, Extract, Now

from agent_core.exceptions import FINAL_CODES, PASSING_CODES, CapReached
from agent_core.text.formats import says_something, utc_text
from agent_core.types import Ended, Ending, StepKind, TurnResult
from automations.models import Attention, CronJob, ExecutionMode, RunRecord, RunState
from automations.models.health import health_of
from automations.models.run import CANCELLED_BY_ERROR, LONGEST_ERROR, RunTransitions, part_of, with_usage
from automations.runs import report
from automations.runs.health import count_done, count_failure, tell_stopped
from automations.runs.with_turn import end_runs_well
from sessions_app import metrics
from sessions_app.deliveries.system_events import (
    EventName,
    fail_address,
    report_event,
    send_notice,
    store_ping,
)
from sessions_app.mailbox.deposit import NewUpdate
from sessions_app.models import Priority, Session, Turn, TurnKind, TurnState, TurnStep
from sessions_app.models.session import WEB
from sessions_app.models.turn import OPEN_STATES
from sessions_app.queue.cancel import cancel_waiting
from sessions_app.sessions.open import archive

# reasons that are reported; a person who paused, changed or deleted a routine knows already
REPORTED = {
    "superseded": "its next slot was due",
    "session_closed": "its session was closed",
    "retry_error": "its next attempt could not be queued",
    "owner_inactive": "the account was inactive when its next attempt was due",
}

# by the database's clock, as `started_at`; null for a run that never started
_ELAPSED = ExpressionWrapper(Now() - F("started_at"), DurationField())
_MILLISECONDS = Cast(Extract(_ELAPSED, "epoch") * 1000, BigIntegerField())

RETRY_AFTER = (timedelta(minutes=5), timedelta(minutes=15), timedelta(minutes=30))  # the last one repeats
REPEAT_AFTER = (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=15))  # if nothing was done
_BEFORE_ANY_ANSWER = PASSING_CODES | {"timeout", CapReached.HELD}
_DONE = (StepKind.RESPONSE, StepKind.INTENT, StepKind.RESULT)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a turn's runs. `failed`: those of people's jobs that failed for good, in the order of their slots;
    without those whose failure is no news, because the job failed before or its owner is told more.

    `is_news`: whether the turn's text is to leave the server. It is not while another attempt follows, nor while the
    job keeps failing.
    """

    failed: Sequence[RunRecord] = ()
    is_news: bool = True


def record_outcome(turn: Turn, result: TurnResult, closure: str) -> Outcome:
    """Store the turn's outcome in its run, or in each run that shares it. It ends, or waits for another attempt."""
    if result.skipped:
        _skip(turn, _unfinished(turn), result)
        return Outcome()
    if result.ending is Ending.FAILED:
        return _fail(turn, _unfinished(turn), result, closure)
    if not turn.origin_run:  # several rows: locked in their order, against deadlocks
        list(_unfinished(turn).select_for_update().values_list("pk"))
    if result.ending is Ending.SUCCEEDED:
        _succeed(turn, result, closure)
    else:
        _end(turn, _unfinished(turn), result, closure)
    return Outcome()


def _unfinished(turn: Turn) -> RunTransitions:
    return RunRecord.objects.of_turn(turn).unfinished().order_by("scheduled_for", "pk")


def _fail(turn: Turn, runs: RunTransitions, result: TurnResult, closure: str) -> Outcome:
    failed, is_news = [], True
    did_nothing = _did_nothing(turn, result)
    for run in runs.select_related("job__clock", "job__health"):
        attempt = runs.filter(pk=run.pk)
        repeats = did_nothing and run.fruitless < len(REPEAT_AFTER)
        if was_stopped(turn, result) and run.attempt - run.fruitless == 1:
            columns = _outcome_columns(turn, result, closure)
            is_news = tell_stopped(run, columns["error"]) and is_news
            attempt.skip(columns.pop("reason"), **columns)
        elif (wait := _wait_for_next(run, result, repeats=repeats)) is not None:
            if attempt.retry(wait, _outcome_columns(turn, result, closure), fruitless=repeats):
                metrics.count_failed_attempt(result.error_code)
            is_news = False
        elif _end(turn, attempt, result, closure, _asked(result)):
            _notify_program(
                run, turn.session_id, result.error_code or "", run.attempt, result.error_text or ""
            )
            run.reason, run.error = result.error_code or "", result.error_text or ""
            if count_failure(run):
                failed.append(run)
            else:
                is_news = False
    people = [run for run in failed if run.job and not run.job.system_event]
    return Outcome(failed=people, is_news=is_news)


def _did_nothing(turn: Turn, result: TurnResult) -> bool:
    """Whether the attempt ended before any answer of a model and any tool call, so that nothing is done twice."""
    if result.error_code not in _BEFORE_ANY_ANSWER or turn.input.next_turn:
        return False
    if turn.kind == TurnKind.HEARTBEAT and not turn.input.tasks:  # it has a backoff of its own
        return False
    if result.entries or result.usage.requests:
        return False
    return not TurnStep.objects.filter(turn=turn, kind__in=[str(kind) for kind in _DONE]).exists()


def _wait_for_next(run: RunRecord, result: TurnResult, *, repeats: bool) -> timedelta | None:
    """The wait before the attempt after this failed one; None: there is none, or the job is paused or slowed down.

    `repeats`: this one had done nothing, so it does not count against `max_retry`.
    """
    job = run.job
    if job is None or not job.enabled or health_of(job).is_slowed:
        return None
    if job.clock.pause_at(datetime.now(UTC)):
        return None
    if repeats:
        return REPEAT_AFTER[run.fruitless]
    counted = run.attempt - run.fruitless
    if not _may_be_retried(result) or counted > run.snapshot.get("max_retry", 0):
        return None
    return RETRY_AFTER[min(counted, len(RETRY_AFTER)) - 1]


def _may_be_retried(result: TurnResult) -> bool:
    """Whether another attempt may follow, if the job still has one."""
    return result.ending is Ending.FAILED and result.error_code not in {*FINAL_CODES, CapReached.code}


def _succeed(turn: Turn, result: TurnResult, closure: str) -> None:
    """End runs as SUCCEEDED: in one statement if their jobs are well and the answer is whole."""
    attention = _attention(turn, result)
    is_plain = attention is Attention.NONE and not turn.input.gate_warning
    if is_plain and _end_well(turn, result, closure):
        return
    runs = _unfinished(turn)
    left = list(runs.select_related("job"))
    if not _end(turn, runs, result, closure, attention):
        return
    if attention is Attention.NONE:
        if not _leaves(turn):  # else the job is well when the answer was sent
            count_done([run.job_id for run in left if run.job_id])
        return
    for run in left:
        run.reason, run.error, run.attention = "", "", attention  # not those of an earlier attempt
        count_failure(run)


def _end_well(turn: Turn, result: TurnResult, closure: str) -> bool:
    """End the runs whose jobs are well. Returns whether these are all runs of the turn."""
    shared = len(turn.input.runs) or 1
    used, seen = part_of(result.usage, shared), _seen(turn).get("gate_seen")
    ended = end_runs_well(turn, used, first_line(closure), seen)
    if ended:
        _count_ended(turn, result, ended)
    if ended < shared:  # those with earlier attempts
        ended += _end(turn, _unfinished(turn).of_well_jobs(), result, closure)
    return ended == shared


def _attention(turn: Turn, result: TurnResult) -> Attention:
    """Why a run with this answer needs attention; empty: it does not. A heartbeat without tasks may have nothing to
    say.
    """
    if (asked := _asked(result)) is not Attention.NONE:
        return asked
    if turn.kind == TurnKind.SYSTEM or (turn.kind == TurnKind.HEARTBEAT and not turn.input.tasks):
        return Attention.NONE
    if not says_something(result.reply):
        return Attention.EMPTY
    return Attention.NONE if result.ended_by in (None, Ended.STOP) else Attention.CUT_SHORT


def _asked(result: TurnResult) -> Attention:
    return Attention.NEEDS_CONSENT if result.needs_consent else Attention.NONE


def _leaves(turn: Turn) -> bool:
    """Whether the turn's answer is delivered outside the server."""
    return turn.kind == TurnKind.AUTOMATION and turn.session.standing_route["channel"] != WEB


def was_stopped(turn: Turn, result: TurnResult) -> bool:
    """Whether a cap stopped the turn before its first model call: no attempt of the session had a reply."""
    return result.error_code == CapReached.code and not result.usage.requests and not turn.input.next_turn


def _outcome_columns(turn: Turn, result: TurnResult, closure: str) -> dict[str, Any]:
    return {
        "reason": result.error_code or "",
        "error": (result.error_text or _gate_failed(turn))[:LONGEST_ERROR],
        "cap": result.cap,
        "provider_message": result.provider_message[:LONGEST_ERROR],
        "error_detail": (result.error_detail or "").replace("\x00", ""),
        "response_summary": first_line(closure),
        "usage": with_usage(part_of(result.usage, len(turn.input.runs) or 1)),
        "duration_ms": _MILLISECONDS,
    }


def _gate_failed(turn: Turn) -> str:
    given = turn.input
    try:  # only the host: the rest of an address may hold a secret
        host = urlsplit(str((given.gate or {}).get("url", ""))).hostname
    except ValueError:
        host = None
    of, why = f" of {host[:100]}" if host else "", given.gate_warning
    return f"Its check{of} failed: {why}; the model was asked all the same." if why else ""


def _skip(turn: Turn, runs: RunTransitions, result: TurnResult) -> None:
    """End runs as SKIPPED, because the turn found nothing to do, or a cap stopped it as the one before it. A dead man's
    switch gets its ping if there was nothing to do.
    """
    reason, why = result.error_code or "", result.error_text or ""
    is_stopped = reason == CapReached.code
    columns = _seen(turn) | {"duration_ms": _MILLISECONDS, "error": "", "cap": result.cap}
    if is_stopped:
        columns["error"] = why[:LONGEST_ERROR]
    done = runs.skip(reason, response_summary=first_line(why), **columns)
    if done and turn.input.pings and not is_stopped:
        _ping(turn, failed=False)


def _seen(turn: Turn) -> dict[str, Any]:
    """The column of the turn's run for what its gate remembers."""
    given = turn.input
    return {} if given.gate_seen is None else {"gate_seen": {"gate": given.gate, "seen": given.gate_seen}}


def _end(
    turn: Turn,
    runs: RunTransitions,
    result: TurnResult,
    closure: str,
    attention: Attention = Attention.NONE,
) -> int:
    columns = _outcome_columns(turn, result, closure) | _seen(turn) | {"attention": attention}
    ended = runs.end(RunState(result.ending.value), **columns)
    if ended:
        _count_ended(turn, result, ended, attention)
    return ended


def _count_ended(turn: Turn, result: TurnResult, ended: int, attention: Attention = Attention.NONE) -> None:
    """Count runs that ended as their turn, and store the ping of a dead man's switch."""
    metrics.count_run(result.ending, result.error_code, ended)
    if turn.input.pings and result.ending in (Ending.SUCCEEDED, Ending.FAILED):
        _ping(turn, failed=result.ending is Ending.FAILED or attention is not Attention.NONE)


def _ping(turn: Turn, *, failed: bool) -> None:
    """Store the ping of a run for a dead man's switch. A cancelled run has none: it neither went well nor badly."""
    url = CronJob.objects.filter(runs=turn.origin_run).values_list("ping_url", flat=True).first()
    if url:
        address = fail_address(url) if failed else url
        store_ping(turn.session_id, address, run_id=turn.origin_run, attempt=turn.origin_attempt)


def _notify_program(run: RunRecord, session_id: uuid.UUID, reason: str, attempts: int, error: str) -> None:
    """Report a failed run to the owner's program, if there is one."""
    data = {
        "run": run.pk,
        "automation": run.job_id,
        "automation_name": run.snapshot.get("name", ""),
        "scheduled_for": utc_text(run.scheduled_for),
        "attempts": attempts,
        "reason": reason,
        "error": error[:LONGEST_ERROR],
    }
    report_event(session_id, EventName.RUN_FAILED, data, of=run.pk)


def first_line(text: str) -> str:
    """The first line of a reply, at most 200 characters."""
    return next(iter(text.strip().splitlines()), "")[:200]


def has_own_session(run: RunRecord) -> bool:
    """Whether the run has a session of its own, as each slot of an isolated routine has."""
    return run.session_key.startswith("job:")


def end_run(run: RunRecord, reason: str, detail: str = "") -> bool:
    """Cancel a queued run, in the caller's transaction; the clock is locked. False: it is not queued any more."""
    # the session first, as everywhere: a commit that gives the run another turn also locks it
    if run.session_id is not None:
        Session.objects.select_for_update(no_key=True).filter(pk=run.session_id).first()
    waits = RunRecord.objects.filter(pk=run.pk, state=RunState.QUEUED)
    if not waits.exists():
        return False
    if has_own_session(run) and run.session_id is not None:
        archive(run.session_id)
    done = bool(waits.cancel_queued(reason, **({"error_detail": detail[:2000]} if detail else {})))
    is_news = True
    if done and reason in CANCELLED_BY_ERROR:
        is_news = count_failure(run)
        if run.session_id is not None:
            _notify_program(run, run.session_id, reason, _tried(run), run.error)
    if done and is_news and reason in REPORTED:
        _report_cancelled(run.of_job, run, reason)
    return done


def _tried(run: RunRecord) -> int:
    """How many attempts a run has had that waited for another one, whose number it has already."""
    return max(1, run.attempt - 1)


def _report_cancelled(job: CronJob, run: RunRecord, reason: str) -> None:
    """Report a run cancelled while it waited for an attempt: to a routine's home, or to a bound job's channel."""
    tried = _tried(run)
    times = "once" if tried == 1 else f"{tried} times"
    failure = run.response_summary or "The run failed."
    text = f"{job.name}: {failure} It was tried {times}; {REPORTED[reason]}."
    if job.execution_mode == ExecutionMode.SESSION:
        if job.session_id is not None and reason in CANCELLED_BY_ERROR:
            about = {"automation": job.pk, "automation_name": job.name}
            send_notice(job.session_id, text, about=about, key=f"{run.pk}_{reason}")
        return
    mail = NewUpdate(
        event_id=uuid.uuid5(report.NAMESPACE, f"{run.pk}:{reason}"),
        event_type="job_failed" if has_own_session(run) else "routine_failed",
        summary=report.first_sentence(text),
        detail=text,
        source_key=run.session_key,
        priority=Priority.HIGH,
        dedupe_key=report.failure_dedupe_key(job.pk),
    )
    report.report_to_home(job.home_id, job.agent_id, mail)


def cancel_queued_runs(job: CronJob, reason: str) -> int:
    """Cancel the job's queued runs; running ones go on. Returns the number of runs that had never begun."""
    fresh = 0
    for run in RunRecord.objects.filter(job=job, state=RunState.QUEUED).select_related("job"):
        if run.not_before is not None:  # its turn has ended already
            end_run(run, reason)
        elif _leave_shared_turn(run, reason) or (
            run.turn_id is not None and not _is_shared(run) and cancel_waiting(run.turn_id, reason)
        ):
            fresh += run.attempt == 1
        elif not (run.turn_id and Turn.objects.filter(pk=run.turn_id, state__in=OPEN_STATES).exists()):
            end_run(run, reason)  # the turn was deleted, or has ended without its run
    return fresh


def _is_shared(run: RunRecord) -> bool:
    """Whether other runs wait in the same heartbeat turn."""
    others = RunRecord.objects.open().filter(turn=run.turn_id, not_before=None)
    return run.turn_id is not None and others.exclude(pk=run.pk).exists()


def _leave_shared_turn(run: RunRecord, reason: str) -> bool:
    """Cancel only this run, and remove its task from the queued turn that it shares. False: it shares none."""
    if run.turn_id is None or run.session_id is None or not _is_shared(run):
        return False
    # the session, then the turn: a worker that claims the turn reads its tasks after this lock
    Session.objects.select_for_update(no_key=True).filter(pk=run.session_id).first()
    turn = Turn.objects.select_for_update(no_key=True).filter(pk=run.turn_id, state=TurnState.QUEUED).first()
    if turn is None:
        return False
    left = tuple(task for task in turn.input.tasks if task["run"] != run.pk)
    runs = tuple(task["run"] for task in left)
    Turn.objects.change_queued(turn, due_line(left), tasks=left, runs=runs)
    return end_run(run, reason)


def due_line(tasks: Iterable[dict[str, Any]]) -> str:
    """The text of a queued turn with these tasks."""
    return ("Due: " + ", ".join(task["title"] for task in tasks))[:2000]
