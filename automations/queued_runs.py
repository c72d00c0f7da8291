"""Runs that wait when their job is paused, removed or deleted."""

from __future__ import annotations

from automations.deterministic import TASKS_KEY, due_line
from automations.endings import end_run
from automations.models import CronJob, RunRecord, RunState
from automations.runs import OPEN_RUNS
from sessions_app.cancel import cancel_waiting
from sessions_app.models import Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES


def cancel_queued_runs(job: CronJob, reason: str) -> int:
    """What waits is not run any more; what runs goes on. How many of them had never begun."""
    fresh = 0
    for run in RunRecord.objects.filter(job=job, state=RunState.QUEUED).select_related("job"):
        if run.not_before is not None:  # its turn has ended, and with it whatever it shared
            end_run(run, reason)
        elif _left_the_others(run, reason) or (
            run.turn_id is not None and not _is_shared(run) and cancel_waiting(run.turn_id, reason)
        ):
            fresh += run.attempt == 1
        elif not (run.turn_id and Turn.objects.filter(pk=run.turn_id, state__in=OPEN_STATES).exists()):
            end_run(run, reason)  # the turn is gone, or ended without its run
    return fresh


def _is_shared(run: RunRecord) -> bool:
    """A heartbeat's turn that others wait in, too."""
    others = RunRecord.objects.filter(turn=run.turn_id, state__in=OPEN_RUNS, not_before=None)
    return run.turn_id is not None and others.exclude(pk=run.pk).exists()


def _left_the_others(run: RunRecord, reason: str) -> bool:
    """The run alone ends: its task is taken out of the turn, which goes on waiting for the others."""
    if run.turn_id is None or run.session_id is None or not _is_shared(run):
        return False
    # the session, then the turn: whoever claims it reads its tasks behind this lock
    Session.objects.select_for_update(no_key=True).filter(pk=run.session_id).first()
    turn = Turn.objects.select_for_update(no_key=True).filter(pk=run.turn_id, state=TurnState.QUEUED).first()
    if turn is None:
        return False
    tasks = [task for task in turn.metadata[TASKS_KEY] if task["run"] != run.pk]
    Turn.objects.filter(pk=turn.pk).update(
        metadata=turn.metadata | {TASKS_KEY: tasks}, content=due_line(tasks)
    )
    return end_run(run, reason)
