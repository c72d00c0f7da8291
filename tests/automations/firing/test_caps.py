"""Slots that a cap stops: the first one in its turn, before its model call, the next ones when they are due (11.1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from agent_core.types import Usage
from automations.jobs.edit import update_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app import metrics
from sessions_app.agents.edit import update_agent
from sessions_app.metrics import Counted
from sessions_app.models import Allowance, Counter, MailboxEvent, Message, Spending, Turn
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.turn_kinds.test_isolated import job_of
from tests.inside import Inside
from tests.sessions_app.limits.test_calls import PLENTY, cap, says

pytestmark = pytest.mark.rule("11.1")


def due(inside: Inside, job: CronJob) -> RunRecord:
    """The next slot of the job, from its instant to its end."""
    JobClock.objects.filter(job=job).update(next_run_at=Now(), last_slot=F("last_slot") - timedelta(hours=2))
    inside.beat()
    return RunRecord.objects.filter(job=job).latest("scheduled_for")


@pytest.mark.parametrize("of", ["agent", "automation"])
def test_slots_are_skipped_until_the_cap_begins_anew_or_is_raised(inside: Inside, of: str) -> None:
    session, few = inside.person.session(), {"day": {"tokens": 500}}
    job = due_job(session, limits=few if of == "automation" else {})
    if of == "agent":
        update_agent(inside.person.agent.pk, {"limits": few})
    first = due(inside, job)
    assert (first.state, first.reason, first.slots_count) == (RunState.SKIPPED, "budget", 1)
    assert "500 tokens" in first.error
    assert (Turn.objects.count(), Message.objects.filter(session=session).count()) == (1, 2)
    later = due(inside, job)
    assert (later.state, later.reason, Turn.objects.count()) == (RunState.SKIPPED, "budget", 1)
    assert inside.model.calls == []
    assert MailboxEvent.objects.filter(event_type="budget_reached").count() == 1
    metrics.flush_counters()
    [refusals] = Counter.objects.filter(name=Counted.CAP_REFUSAL)
    assert (refusals.labels, refusals.value) == ({"scope": of, "period": "day"}, 1)
    if of == "agent":
        update_agent(inside.person.agent.pk, {"limits": {"day": None}})
    else:
        update_job(job.pk, {"limits": {"day": {"tokens": PLENTY}}})
    assert due(inside, job).state == RunState.SUCCEEDED
    Allowance.objects.all().delete()


def test_only_the_automation_that_does_not_fit_is_skipped(inside: Inside) -> None:
    cap(inside, day={"tokens": PLENTY})
    jobs = [due_job(inside.person.session(), limits=limits) for limits in ({"month": {"tokens": 1}}, {})]
    assert [due(inside, job).state for job in jobs] == [RunState.SKIPPED, RunState.SUCCEEDED]


def test_the_cap_of_a_run_is_for_all_its_attempts(inside: Inside) -> None:
    job = due_job(inside.person.session(), limits={"run": {"tokens": PLENTY}}, max_retry=1)
    inside.model.answer_with(says("Hello.", Usage(input_tokens=3, requests=1)), ValueError("a bug"))
    assert due(inside, job).state == RunState.SUCCEEDED
    assert due(inside, job).state == RunState.QUEUED, "it waits for its second attempt"
    RunRecord.objects.filter(not_before__isnull=False).update(not_before=Now())
    inside.beat()
    spent: dict[str, int] = {row.key.split(":run:")[1]: row.spent_tokens for row in Spending.objects.all()}
    runs = RunRecord.objects.filter(job=job).order_by("scheduled_for")
    assert [run.attempt for run in runs] == [1, 2]
    assert spent[runs[0].pk] == 3
    assert spent[runs[1].pk] > 1_000, "the first attempt in full"


def test_the_slot_of_an_isolated_routine_is_skipped_without_a_report(inside: Inside) -> None:
    cap(inside, day={"tokens": 500})
    run: Any = due(inside, job_of(inside.person, "look"))
    assert (run.state, run.reason) == (RunState.SKIPPED, "budget")
    assert run.session.state == "archived"
    assert list(MailboxEvent.objects.values_list("event_type", flat=True)) == ["budget_reached"]
