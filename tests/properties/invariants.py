"""What must hold of one agent's rows after every step, asked of the database (DESIGN, invariants)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count

from automations.models import CronJob, RunRecord
from automations.plan import plan_of
from automations.schedule import next_slot
from sessions_app.models import Agent, Message, Session, Turn, TurnState

MOST_SLOTS = 3_000  # of one job that are walked through

COMMITTED = "committed turns"
SQL = {
    "two turns run in one session": "SELECT session_id FROM sessions_app_turn WHERE state = 'running'"
    " GROUP BY session_id HAVING count(*) > 1",
    "seqs with a gap": "SELECT session_id FROM sessions_app_message m JOIN sessions_app_session s"
    " ON s.id = m.session_id GROUP BY session_id, s.last_seq"
    " HAVING count(*) <> max(seq) OR min(seq) <> 1 OR max(seq) <> s.last_seq",
    "revisions that are no commits": "SELECT s.id FROM sessions_app_session s WHERE revision <>"
    " (SELECT count(*) FROM sessions_app_turn t WHERE t.session_id = s.id AND t.started_at IS NOT NULL"
    "  AND t.state IN ('succeeded', 'failed', 'cancelled'))",
    "runs and turns apart": "SELECT r.run_id, r.state, t.state FROM automations_runrecord r JOIN sessions_app_turn t"
    " ON t.id = r.turn_id WHERE NOT CASE r.state WHEN 'queued' THEN CASE WHEN r.not_before IS NULL"
    " THEN t.state = 'queued' ELSE t.state = 'failed' END WHEN 'running' THEN t.state = 'running'"
    " WHEN 'cancelled' THEN t.state IN ('cancelled', 'failed') ELSE t.state = r.state END",
    "open runs without a turn": "SELECT run_id FROM automations_runrecord WHERE state IN ('queued', 'running')"
    " AND turn_id IS NULL",
    "automations that ended without a closure": "SELECT t.id FROM sessions_app_turn t WHERE kind = 'automation'"
    " AND started_at IS NOT NULL AND state IN ('succeeded', 'failed', 'cancelled') AND NOT EXISTS (SELECT 1 FROM"
    " sessions_app_message m WHERE m.turn_id = t.id AND m.role = 'assistant' AND m.content <> '')",
    "automation turns without a run": "SELECT t.id FROM sessions_app_turn t WHERE kind = 'automation' AND state IN"
    " ('queued', 'running') AND NOT EXISTS (SELECT 1 FROM automations_runrecord r WHERE r.turn_id = t.id)"
    " AND EXISTS (SELECT 1 FROM automations_cronjob j WHERE j.id = split_part(t.origin_run, ':', 1))"
    " AND state = 'queued'",
    "a guest of a turn that ended": "SELECT g.id FROM sessions_app_turn g JOIN sessions_app_turn h ON h.id = g.host_id"
    " WHERE g.state = 'queued' AND h.state <> 'running'",
    "messages that were taken along and lost": "SELECT g.id FROM sessions_app_turn g JOIN sessions_app_turn h"
    " ON h.id = g.host_id WHERE g.state = 'merged' AND h.state <> 'succeeded'",
    "mail that a turn acknowledged and that did not succeed": "SELECT m.id FROM sessions_app_mailboxevent m"
    " JOIN sessions_app_turn t ON t.id = m.acknowledged_by_id WHERE t.state <> 'succeeded'",
    "journals with a gap": "SELECT turn_id FROM sessions_app_turnstep GROUP BY turn_id HAVING count(*) <> max(n) + 1",
}


def check(agent: Agent) -> None:
    """AssertionError with the invariant that does not hold."""
    with connection.cursor() as cursor:
        for broken, query in SQL.items():
            cursor.execute(query)
            assert not cursor.fetchall(), broken
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
    last: datetime | None = None
    for run in runs:
        begins, ends = run.slots_from or run.scheduled_for, run.slots_to or run.scheduled_for
        assert last is None or last < begins, "a slot is in two runs"
        last = ends
    if clock.last_slot is None:
        assert not runs
        return
    plan = plan_of(job, 0)
    slot, walked = next_slot(plan.slots, clock.planned_from), 0
    while slot is not None and slot <= clock.last_slot and walked < MOST_SLOTS:
        assert any(
            (run.slots_from or run.scheduled_for) <= slot <= (run.slots_to or run.scheduled_for)
            for run in runs
        ), f"{slot} is not accounted for"
        slot, walked = next_slot(plan.slots, slot), walked + 1
    # one that was paused before it began does not count against `max_runs`
    started = sum(1 for run in runs if run.state != "skipped" and run.reason != "paused")
    assert clock.runs_started >= started


def nothing_waits(agent: Agent) -> None:
    """Everything that was accepted came to an end."""
    left = Turn.objects.filter(
        session__agent=agent, state__in=[TurnState.QUEUED, TurnState.RUNNING]
    ).values_list("kind", "state", "session__state")
    assert not list(left)


def nothing_is_left(agent_id: int, session_ids: set[Any], job_ids: set[str]) -> None:
    """After the agent was deleted, no row of it is found anywhere."""
    assert not Session.objects.filter(agent_id=agent_id).exists()
    assert not CronJob.objects.filter(agent_id=agent_id).exists()
    assert not RunRecord.objects.filter(job_id__in=job_ids).exists()
    for model in (Turn, Message):
        left = model.objects.filter(session_id__in=session_ids).aggregate(n=Count("pk"))["n"]
        assert not left, model.__name__
