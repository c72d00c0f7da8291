"""What must hold of one agent's rows after every step, asked of the database (DESIGN, invariants)."""

from itertools import pairwise
from typing import Any

from django.db.models import Count

from automations.models import CronJob, RunRecord
from automations.schedules.plan import plan_of
from sessions_app.models import Agent, Message, Session, Turn, TurnState
from tests.queries import queries
from tests.races import selected

MOST_SLOTS = 3_000  # of one job that are walked through


def check(agent: Agent) -> None:
    """AssertionError with the invariant that does not hold."""
    for broken, query in queries("invariants").items():
        assert not selected(query), broken
    for job in CronJob.objects.filter(agent=agent).select_related("clock"):
        _clock_is_right(job)
        _slots_are_accounted_for(job)


def _clock_is_right(job: CronJob) -> None:
    """The next firing is that of the first slot that is not accounted for."""
    clock = job.clock
    if not job.enabled:
        assert clock.next_run_at is None, "a paused job is due"
        return
    assert not job.fault, job.fault
    after = max(clock.planned_from, clock.last_slot) if clock.last_slot else clock.planned_from
    assert clock.next_run_at == plan_of(job, clock.runs_started).next_firing(after), job.schedule_kind


def _slots_are_accounted_for(job: CronJob) -> None:
    """From where the plan counts to the last slot, each is in one run or in one gap, and nowhere twice."""
    clock, runs = job.clock, list(RunRecord.objects.filter(job=job).order_by("scheduled_for"))
    assert len({run.scheduled_for for run in runs}) == len(runs)
    spans = [(run.slots_from or run.scheduled_for, run.slots_to or run.scheduled_for) for run in runs]
    assert all(before[1] < after[0] for before, after in pairwise(spans)), "a slot is in two runs"
    if clock.last_slot is None:
        assert not runs
        return
    plan = plan_of(job, 0)
    slot, walked = plan.slots.next(clock.planned_from), 0
    while slot is not None and slot <= clock.last_slot and walked < MOST_SLOTS:
        assert any(begins <= slot <= ends for begins, ends in spans), f"{slot} is not accounted for"
        slot, walked = plan.slots.next(slot), walked + 1
    # one that was paused before it began does not count against `max_runs`
    started = sum(1 for run in runs if run.state != "skipped" and run.reason != "paused")
    assert clock.runs_started >= started


def nothing_waits(agent: Agent) -> None:
    """Everything that was accepted came to an end."""
    left = Turn.objects.filter(session__agent=agent, state__in=[TurnState.QUEUED, TurnState.RUNNING])
    waiting = list(left.values_list("kind", "state", "session__state"))
    assert not waiting, waiting


def nothing_is_left(agent_id: int, session_ids: set[Any], job_ids: set[str]) -> None:
    """After the agent was deleted, no row of it is found anywhere."""
    assert not Session.objects.filter(agent_id=agent_id).exists()
    assert not CronJob.objects.filter(agent_id=agent_id).exists()
    assert not RunRecord.objects.filter(job_id__in=job_ids).exists()
    for model in (Turn, Message):
        left = model.objects.filter(session_id__in=session_ids).aggregate(n=Count("pk"))["n"]
        assert not left, model.__name__
