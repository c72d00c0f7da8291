"""How a run ends that no turn will end: it gave way, was paused, or cannot be tried again (rules 4.7, 6.3).

One verb for all of it, so that nothing of an end is left out: the outcome, the archive of a slot's own session, and
the mail when nobody has asked for this end.
"""

from __future__ import annotations

import uuid

from django.db.models.functions import Now

from automations import told
from automations.models import CronJob, ExecutionMode, RunRecord, RunState
from sessions_app.archive import archive
from sessions_app.mailbox import Mail
from sessions_app.models import Priority, Session

# what nobody asked for is told; whoever paused, changed or deleted a routine knows
TOLD = {
    "superseded": "its next slot has come",
    "session_closed": "its session takes no input any more",
    "retry_error": "its next attempt could not be queued",
}


def has_own_session(run: RunRecord) -> bool:
    """Whether the run is done in a session that is its slot's alone."""
    return run.session_key.startswith("job:")


def end_run(run: RunRecord, reason: str, detail: str = "") -> bool:
    """QUEUED → CANCELLED, in the caller's transaction; the clock is locked. False: it does not wait any more."""
    # the session first, as everybody locks: a commit that gives the run a further turn holds it, too
    if run.session_id is not None:
        Session.objects.select_for_update(no_key=True).filter(pk=run.session_id).first()
    waits = RunRecord.objects.filter(pk=run.pk, state=RunState.QUEUED)
    if not waits.exists():
        return False
    if has_own_session(run) and run.session_id is not None:
        archive(run.session_id)
    ended = {"state": RunState.CANCELLED, "reason": reason, "not_before": None, "finished_at": Now()}
    if detail:
        ended["error_detail"] = detail[:2000]
    done = bool(waits.update(**ended))
    if done and reason in TOLD and run.of_job.execution_mode != ExecutionMode.SESSION:
        _tell(run.of_job, run, reason)
    return done


def _tell(job: CronJob, run: RunRecord, reason: str) -> None:
    tried = max(1, run.attempt - 1)
    times = "once" if tried == 1 else f"{tried} times"
    failure = run.response_summary or "This did not work."
    text = f"{job.name}: {failure} It was tried {times}; {TOLD[reason]}."
    mail = Mail(
        event_id=uuid.uuid5(told.NAMESPACE, f"{run.pk}:{reason}"),
        event_type="job_failed" if has_own_session(run) else "routine_failed",
        summary=told.first_sentence(text),
        detail=text,
        source_key=run.session_key,
        priority=Priority.HIGH,
        dedupe_key=f"run_failed:{job.pk}",  # a routine that fails slot by slot is one line
    )
    told.tell(job.home_id, job.agent_id, mail)
