"""Cancel queued runs when their job is paused, removed or deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from automations.models import CronJob, RunRecord, RunState
from automations.models.run import TASKS_KEY
from automations.runs.record import end_run
from sessions_app.models import Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES, RUNS_KEY
from sessions_app.queue.cancel import cancel_waiting


def cancel_queued_runs(job: CronJob, reason: str) -> int:
    """Cancel the job's queued runs; running ones go on. Returns how many of them had never begun."""
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
    tasks = [task for task in turn.metadata[TASKS_KEY] if task["run"] != run.pk]
    left = {TASKS_KEY: tasks, RUNS_KEY: [task["run"] for task in tasks]}
    Turn.objects.rewrite(turn.pk, due_line(tasks), turn.metadata | left)
    return end_run(run, reason)


def due_line(tasks: Iterable[dict[str, Any]]) -> str:
    """The text of a queued turn with these tasks."""
    return ("Due: " + ", ".join(task["title"] for task in tasks))[:2000]
