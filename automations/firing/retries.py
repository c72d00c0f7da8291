"""Retries: queue the next attempt of a failed run, or cancel it when the job's next slot comes (rule 4.7).

Lock order, as everywhere: clock, session, run.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import sqlalchemy as sa
import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models.functions import Now

from automations.models import ExecutionMode, JobClock, RunRecord
from automations.runs.record import end_run
from sessions_app.hints import Hint
from sessions_app.models import Lane, OnBusy, Session, SessionState, Turn, TurnKind
from sessions_app.postgres.statements import Statement, table
from sessions_app.queue import enqueue

log = structlog.get_logger(__name__)

_run, _session = table(RunRecord), table(Session)
_IDS = sa.bindparam("ids", type_=sa.ARRAY(sa.Text()))
_DUE = _run.c.not_before <= sa.func.now()

LOCK_SESSIONS = Statement(
    sa.select(_session.c.id)
    .where(_session.c.id.in_(sa.select(_run.c.session_id).where(_run.c.job_id == sa.any_(_IDS), _DUE)))
    .order_by(_session.c.id)
    .with_for_update(read=True, key_share=True)
)


def queue_due_retries(limit: int) -> list[Hint]:
    """Queue the next attempt of runs whose delay is over. Returns the hints to send."""
    # attempts of inline routines are part of a heartbeat's turn
    waiting = RunRecord.objects.filter(not_before__lte=Now(), job__clock__inline=False).order_by("not_before")
    due = list(waiting.values_list("job_id", flat=True)[:limit])
    if not due:
        return []
    with transaction.atomic():
        clocks = JobClock.objects.filter(pk__in=due).order_by("pk").select_for_update(skip_locked=True)
        jobs = list(clocks.values_list("pk", flat=True))
        LOCK_SESSIONS.all(ids=jobs)
        runs = (
            RunRecord.objects.filter(job_id__in=jobs, not_before__lte=Now())
            .select_for_update(of=("self",), no_key=True)
            .select_related("job__agent__owner", "job__clock", "session", "turn")
            .order_by("run_id")
        )
        return [hint for run in runs if (hint := _queue_or_give_up(run)) is not None]


def _queue_or_give_up(run: RunRecord) -> Hint | None:
    """Queue the run's next attempt. If that fails, cancel the run, so that it stops neither other runs nor firing."""
    try:
        with transaction.atomic():
            return _queue(run)
    except (OperationalError, InterfaceError):
        raise  # the database is away
    except Exception as error:
        log.exception("attempt_not_queued", run=run.pk)
        end_run(run, "retry_error", f"{type(error).__name__}: {error}")
        return None


def _queue(run: RunRecord) -> Hint | None:
    """Queue a copy of the run's previous turn, with the job's caps of now, or cancel a run that cannot run any more."""
    if not run.of_job.enabled or run.of_job.clock.pause_at(datetime.now(UTC)):
        end_run(run, "paused")
        return None
    if not run.of_job.agent.owner.is_active:
        end_run(run, "owner_inactive")
        return None
    if not (run.turn and run.session) or run.session.state != SessionState.OPEN:
        end_run(run, "session_closed")
        return None
    if run.of_job.execution_mode == ExecutionMode.ISOLATED and run.turn.kind != TurnKind.JOB:
        end_run(run, "edited")  # the routine was inline: its turn also has the tasks of other routines
        return None
    job = run.of_job
    given = replace(run.turn.input, caps={job.pk: job.limits} if job.limits else {})
    turn = Turn(
        session=run.session,
        kind=run.turn.kind,
        lane=Lane.AUTO,
        content=run.turn.content,
        metadata=given.to_json(),
        origin_run=run.pk,
        origin_attempt=run.attempt,
        on_busy=OnBusy.ENQUEUE,
        idempotency_key=f"run:{run.pk}:{run.attempt}",
        due_at=run.scheduled_for,
    )
    enqueue.enqueue(turn)
    RunRecord.objects.filter(pk=run.pk).queue_in(turn)
    return Hint(session_id=turn.session_id, lane=Lane.AUTO)


def supersede(job_ids: list[str]) -> None:
    """Cancel runs of these jobs that wait for a retry, because the next slot is due. Their clocks are locked."""
    if job_ids:
        waiting = RunRecord.objects.filter(job_id__in=job_ids, not_before__isnull=False)
        for run in waiting.select_related("job").order_by("session_id", "run_id"):
            end_run(run, "superseded")
