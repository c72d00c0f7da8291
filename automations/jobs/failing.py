"""Pause a job that keeps failing, and try a failed slot again (rule 11.2)."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from agent_core.exceptions import PASSING_CODES
from automations.exceptions import JobNotFound, JobPaused, RunNotFailed
from automations.jobs.clock import database_now, notify_beats
from automations.jobs.edit import lock_job, update_job
from automations.models import JobHealth, RunRecord, RunState
from automations.models.health import PausedReason, Told
from automations.runs.health import tell
from automations.runs.record import has_own_session
from sessions_app.connections.edit import agents_using
from sessions_app.exceptions import NotFound, SessionClosed
from sessions_app.models import Connection, Priority, Session, SessionState

MOST_FREED = 1_000  # jobs that a connection frees at a time
FREED_AGAIN = timedelta(
    days=1
)  # after a job was freed or resumed, so that a connection that comes and goes slows it
_MENDED = {"model_auth", "model_quota", "superseded", *PASSING_CODES}  # reasons of runs


def free_slowed(connection_id: int) -> None:
    """Begin the jobs afresh that are slowed down only because of this connection, if it works again or was changed."""
    row = Connection.objects.filter(pk=connection_id, last_error="").first()
    if row is None:
        return
    own = Q(job__model="") | Q(job__model__startswith=f"{row.name}:")
    counted = Q(counts_from=None) | Q(counts_from__lt=Now() - FREED_AGAIN)
    failed = RunRecord.objects.ended_by_itself().filter(
        job=OuterRef("pk"), scheduled_for__gte=OuterRef("failing_since")
    )
    slowed = JobHealth.objects.slowed().filter(own, counted, job__agent__in=agents_using(row))
    with transaction.atomic():
        freed = slowed.exclude(Exists(failed.exclude(reason__in=_MENDED))).order_by("pk")
        locked = freed.select_for_update(no_key=True, skip_locked=True, of=("self",))
        ids = list(locked.values_list("pk", flat=True)[:MOST_FREED])
        JobHealth.objects.free(ids)


def pause_failing(job_id: str) -> None:
    """Pause a job with too many failed runs in a row and tell its owner, unless it runs well again or is paused."""
    with transaction.atomic():
        try:
            _clock, job = lock_job(job_id, None)
        except JobNotFound:
            return
        if not job.enabled:
            return
        job = update_job(job_id, {"enabled": False})
        # the health last: the pause may have locked sessions and cancelled runs
        health = JobHealth.objects.lock(job_id)
        if not health.is_hopeless:
            transaction.set_rollback(True)
            return
        if JobHealth.objects.tell(job_id, Told.PAUSED, paused_reason=PausedReason.FAILING):
            text = f'"{job.name}" was paused: {health.failed_text}.'
            tell(job, "paused", f"{text} It runs again when it is resumed.", priority=Priority.URGENT)


def try_again(run_id: str) -> RunRecord:
    """Queue another attempt of a failed run, with the same input. Beat makes its turn, as of any attempt.

    NotFound, RunNotFailed, JobPaused, SessionClosed.
    """
    with transaction.atomic():
        found = RunRecord.objects.filter(pk=run_id).values_list("job_id", flat=True).first()
        if found is None:
            raise NotFound("there is no such run of an automation")
        clock, job = lock_job(found, None)
        if not job.enabled or clock.pause_at(database_now()):
            raise JobPaused
        run = RunRecord.objects.filter(pk=run_id).first()
        if run is None or run.state != RunState.FAILED:
            raise RunNotFailed
        _open_session(run)
        if not RunRecord.objects.try_again(run_id):
            raise RunNotFailed
        transaction.on_commit(notify_beats, robust=True)
    return RunRecord.objects.get(pk=run_id)


def try_last_again(job_id: str) -> RunRecord:
    """Try the last run of a job again that was not skipped. What `try_again` raises."""
    ran = RunRecord.objects.filter(job=job_id).exclude(state=RunState.SKIPPED).order_by("-scheduled_for")
    last = ran.values_list("pk", flat=True).first()
    if last is None:
        raise RunNotFailed
    return try_again(last)


def _open_session(run: RunRecord) -> None:
    """Lock the run's session. A session of this run alone was archived when the run ended; open it again."""
    locked = Session.objects.select_for_update(no_key=True)
    session = locked.filter(pk=run.session_id).first() if run.session_id and run.turn_id else None
    if session is None:
        raise SessionClosed("the session of the run, or its turn in it, was deleted")
    if has_own_session(run):
        Session.objects.filter(pk=session.pk).unarchive()
    elif session.state != SessionState.OPEN:
        raise SessionClosed(f"the session is {session.state}")
