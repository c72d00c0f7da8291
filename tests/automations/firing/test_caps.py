"""Slots that a cap stops: the first one in its turn, before its model call, the next ones when they are due (11.1)."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from agent_core.exceptions import ModelUnavailable
from agent_core.llm.protocol import ModelReply
from agent_core.spending import Amount, Budget
from agent_core.types import Usage
from automations.appointments.notices import attention
from automations.appointments.panel import why
from automations.jobs.edit import update_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.preflight import CHECKS
from automations.routines.edit import update_routine
from automations.runs.describe import SlotState, describe_run, slot_state
from sessions_app import metrics
from sessions_app.agents.edit import new_agent, update_agent
from sessions_app.connections.listing import ModelLists
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Allowance, Counter, MailboxEvent, Message, Spending, Turn
from sessions_app.spending.accounts import reserve, set_user_caps
from sessions_app.spending.caps import cap_rows, fits_none
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.turn_kinds.test_bound import repeated
from tests.automations.turn_kinds.test_heartbeat import DAY, routine
from tests.automations.turn_kinds.test_isolated import job_of
from tests.inside import Inside, call, during
from tests.sessions_app.spending.test_calls import PLENTY, cap, says

pytestmark = pytest.mark.rule("11.1")


def due(inside: Inside, job: CronJob) -> RunRecord:
    """The next slot of the job, from its instant to its end."""
    JobClock.objects.filter(job=job).update(next_run_at=Now(), last_slot=F("last_slot") - timedelta(hours=2))
    inside.beat()
    return RunRecord.objects.filter(job=job).latest("scheduled_for")


def inline_due() -> None:
    earlier = F("last_slot") - timedelta(hours=2)
    JobClock.objects.filter(inline=True).update(next_run_at=Now(), last_slot=earlier)


@pytest.mark.parametrize("of", ["agent", "automation"])
def test_slots_are_skipped_until_the_cap_begins_anew_or_is_raised(inside: Inside, of: str) -> None:
    session, few = inside.person.session(), {"day": {"tokens": 500}}
    job = due_job(session, limits=few if of == "automation" else {})
    if of == "agent":
        update_agent(inside.person.agent.pk, {"limits": few})
    first = due(inside, job)
    assert (first.state, first.reason, first.slots_count) == (RunState.SKIPPED, "budget", 1)
    assert "500 of 500 tokens" in first.error
    assert "500 of 500 tokens" in describe_run(first, UTC), "people are told which cap it was"
    assert "anew" not in first.error, "tomorrow it stops the call, too"
    [_, said] = Message.objects.filter(session=session).order_by("seq")
    assert (Turn.objects.count(), said.content) == (1, f"Stopped: {first.error}")
    later = due(inside, job)
    assert (later.state, later.reason, Turn.objects.count()) == (RunState.SKIPPED, "budget", 1)
    [notice] = attention(inside.person.user)
    assert (notice.id, notice.what, first.error in notice.text) == (job.pk, "stopped", True)
    assert why(inside.person.user, "automation", job.pk).now == notice.text
    assert inside.model.calls == []
    assert MailboxEvent.objects.filter(event_type="budget_reached").count() == 1
    metrics.flush_counters()
    [refusals] = Counter.objects.filter(name=Counted.CAP_REFUSAL)
    assert (refusals.labels, refusals.value) == ({"scope": of, "period": "day"}, 1)
    if of == "agent":
        update_agent(inside.person.agent.pk, {"limits": {"day": None}})
    else:
        update_job(job.pk, {"limits": {"day": {"tokens": PLENTY}}})
    assert attention(inside.person.user) == []
    assert due(inside, job).state == RunState.SUCCEEDED
    Allowance.objects.all().delete()


@pytest.mark.parametrize("period", ["run", "day"])
def test_a_cap_that_is_raised_to_what_is_said_allows_the_call_though_it_grows(
    inside: Inside, period: str
) -> None:
    job = due_job(inside.person.session(), limits={period: {"tokens": 5_000}})
    refused = due(inside, job)
    [enough] = re.findall(r"Raise it to ([\d,]+) tokens", refused.error)
    RunRecord.objects.update(error="Any words.")  # what is known hangs on none
    user = inside.person.user
    [notice], shown = attention(user), why(user, "automation", job.pk)
    assert (notice.what, notice.text, shown.next) == ("stopped", shown.now, ())
    assert f"to {enough} tokens" in shown.now
    assert fits_none(due(inside, job).cap), "further slots say it, with a turn or without"
    if period == "day":
        [problem] = CHECKS[-1](CronJob.objects.select_related("agent", "clock").get(), ModelLists())
        assert f"to {enough} tokens" in problem.text
    update_job(job.pk, {"limits": {period: {"tokens": int(enough.replace(",", ""))}}})
    assert why(user, "automation", job.pk).next
    assert [due(inside, job).state for _ in range(3 if period == "run" else 1)][-1] == "succeeded"


def test_only_a_change_that_may_free_an_automation_has_it_tried_again(inside: Inside) -> None:
    own, job = inside.person.agent.pk, due_job(inside.person.session(), limits={"month": {"tokens": 5_000}})
    other, mark = (
        new_agent(inside.person.user, "other", {}).pk,
        Allowance.objects.filter(key__startswith="budget:"),
    )
    due(inside, job)
    update_agent(own, {"heartbeat": {"enabled": False}, "limits": {}})
    update_agent(other, {"limits": {"day": {"tokens": 1}}})
    update_job(job.pk, {"name": "Another name"})
    set_user_caps(inside.person.user.pk, {})
    assert mark.exists()
    update_agent(own, {"model_settings": {"max_tokens": 10}})
    assert not mark.exists()


def test_a_cap_that_is_raised_during_a_turn_stops_no_later_slot(inside: Inside) -> None:
    for limits in ({"day": {"tokens": 20_000}}, {}):
        job = due_job(inside.person.session(), limits=limits)
        if not limits:
            update_agent(inside.person.agent.pk, {"limits": {"day": {"tokens": 60_000}}})

        def free(job: CronJob = job, *, is_own: bool = bool(limits)) -> None:
            raised = {"limits": {"day": {"tokens": PLENTY}}}
            update_job(job.pk, raised) if is_own else update_agent(inside.person.agent.pk, raised)

        asks = replace(says("", Usage(input_tokens=60_000, output_tokens=1)), calls=(call("current_time"),))
        inside.model.answer_with(during(free, asks))
        assert due(inside, job).reason == "budget", "the turn keeps the caps with which it began"
        inside.model.replies.clear()
        assert due(inside, job).state == RunState.SUCCEEDED


def test_only_the_automation_that_does_not_fit_is_skipped(inside: Inside) -> None:
    cap(inside, day={"tokens": PLENTY})
    jobs = [due_job(inside.person.session(), limits=limits) for limits in ({"month": {"tokens": 1}}, {})]
    assert [due(inside, job).state for job in jobs] == [RunState.SKIPPED, RunState.SUCCEEDED]


def test_the_slot_of_an_isolated_routine_is_skipped_without_a_report(inside: Inside) -> None:
    cap(inside, day={"tokens": 500})
    run: Any = due(inside, job_of(inside.person, "look"))
    assert (run.state, run.reason) == (RunState.SKIPPED, "budget")
    assert run.session.state == "archived"
    assert list(MailboxEvent.objects.values_list("event_type", flat=True)) == ["budget_reached"]


def test_an_inline_routine_with_a_cap_stops_no_other_one(inside: Inside) -> None:
    update_agent(inside.person.agent.pk, {"heartbeat": {"enabled": True, "active_hours": DAY}})
    few = {"day": {"tokens": 1}}
    jobs = [routine(inside.person, title, limits=limits) for title, limits in (("a", few), ("b", {}))]
    for expected in ({"skipped", "succeeded"}, {"skipped", "succeeded"}, {"succeeded"}):
        if len(expected) == 1:
            update_routine(jobs[0].pk, {"limits": {"day": None}})
        inline_due()
        inside.beat()
        runs = [RunRecord.objects.filter(job=job).latest("scheduled_for") for job in jobs]
        assert {run.state for run in runs} == expected
        assert runs[1].state == RunState.SUCCEEDED
    assert len(inside.model.calls) == 3, "once both are free they share a turn"


def test_the_cap_of_a_run_is_for_all_attempts_of_routines_that_share_a_turn(inside: Inside) -> None:
    heartbeat = {"heartbeat": {"enabled": True, "active_hours": DAY}}
    update_agent(inside.person.agent.pk, heartbeat | {"limits": {"run": {"tokens": 50_000}}})
    jobs = [routine(inside.person, title) for title in "ab"]
    asks = replace(says("", Usage(input_tokens=30_000)), calls=(call("current_time"),))
    inside.model.answer_with(asks, ValueError("a bug"))
    inside.beat()
    assert RunRecord.objects.filter(job__in=jobs, attempt=2).count() == Spending.objects.count() == 2
    Spending.objects.update(spent_tokens=49_000)
    RunRecord.objects.update(not_before=Now())
    inside.beat()
    assert {(run.state, run.reason) for run in RunRecord.objects.all()} == {(RunState.FAILED, "budget")}
    assert len(inside.model.calls) == 2


@pytest.mark.parametrize(("room", "state", "calls"), [(PLENTY, "succeeded", 3), (50_000, "failed", 2)])
def test_the_cap_of_a_run_is_for_all_its_turns(inside: Inside, room: int, state: str, calls: int) -> None:
    job = job_of(inside.person, "two steps", limits={"run": {"tokens": room}})
    further = ModelReply(
        text="", calls=(call("next_turn", task="step two"),), usage=Usage(input_tokens=8, output_tokens=1)
    )
    used = [Usage(input_tokens=tokens, output_tokens=1) for tokens in (48_999, 4)]
    steps = [says(f"{n}.", each) for n, each in enumerate(used, 1)]
    inside.model.answer_with(further, *steps)
    run = due(inside, job)
    inside.model.replies.clear()
    assert (run.state, len(inside.model.calls)) == (state, calls)
    [spent] = Spending.objects.values_list("key", "spent_tokens")
    assert spent == (f"automation:{job.pk}:run:{run.pk}", 49_014 if state == "succeeded" else 49_009)
    assert run.usage["input_tokens"] + run.usage["output_tokens"] == spent[1]


def test_a_further_attempt_has_only_what_its_run_has_left(inside: Inside) -> None:
    job = due_job(inside.person.session(), limits={"run": {"tokens": 50_000}}, max_retry=1)
    asks = replace(says("", Usage(input_tokens=30_000)), calls=(call("current_time"),))
    inside.model.answer_with(asks, ValueError("a bug"))
    run = due(inside, job)
    assert run.state == RunState.QUEUED
    Spending.objects.update(spent_tokens=49_000)
    repeated(inside, run)
    assert (run.state, run.reason, run.attempt) == (RunState.FAILED, "budget", 2)
    assert (len(inside.model.calls), Spending.objects.get().spent_tokens) == (2, 49_000)


def test_a_request_that_failed_is_not_taken_for_a_cap_that_allows_no_other(inside: Inside) -> None:
    """The run is repeated; a repeat that does nothing but meet the cap is a slot that the cap stops."""
    Agent.objects.update(policy={"backoff_seconds": 0})
    job = due_job(inside.person.session(), limits={"day": {"tokens": 20_000}})

    def spend() -> ModelReply:
        Spending.objects.update(spent_tokens=19_999)
        connection.close()
        raise ModelUnavailable("busy")

    inside.model.answer_with(spend)
    run = due(inside, job)
    assert (run.state, run.reason, run.fruitless) == (RunState.QUEUED, "model_unavailable", 1)
    assert len(inside.model.calls) == 1
    repeated(inside, run)
    assert (run.state, run.reason, run.attempt) == (RunState.SKIPPED, "budget", 2)


def test_a_run_repeats_while_others_hold_the_room(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_core.turn.charge.HELD_SECONDS", 0.0)
    job = due_job(inside.person.session(), limits={"run": {"tokens": 20_000}, "day": {"tokens": 20_000}})
    whole = Budget(scope="automation", subject=job.pk, name=job.name, limits=job.limits)
    held = cap_rows([whole], datetime.now(UTC), ["another run"])
    assert isinstance(reserve(None, Amount(tokens=19_000), held), int)
    run = due(inside, job)
    assert (run.state, run.reason, run.fruitless) == (RunState.QUEUED, "budget_held", 1)
    assert "anew" not in run.error
    update_job(job.pk, {"limits": {"day": {"tokens": PLENTY}}})
    repeated(inside, run)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)


@pytest.mark.parametrize("how", ["bound", "isolated", "inline"])
def test_a_cap_of_a_run_that_stops_each_slot_is_told_once(inside: Inside, how: str) -> None:
    few: dict[str, Any] = {"run": {"tokens": 1}}
    if how == "inline":
        update_agent(inside.person.agent.pk, {"heartbeat": {"enabled": True, "active_hours": DAY}})
        job = routine(inside.person, "a", limits=few)
    elif how == "isolated":
        job = job_of(inside.person, "look", limits=few)
    else:
        few["run"]["usd"] = "0.000001"
        job = due_job(
            inside.person.session(), limits=few, name="A name that fills the column of the reason " * 3
        )
    for _ in range(3):
        inline_due()
        run = due(inside, job)
        assert (run.state, run.reason) == (RunState.SKIPPED, "budget")
        assert "1 of 1 tokens" in describe_run(run, UTC)
        assert slot_state(run) == SlotState.SKIPPED
        [told] = MailboxEvent.objects.all()
        assert (told.event_type, job.name in told.summary) == ("failing", True)
        if how == "bound":
            assert Message.objects.filter(session=job.session).count() == 2, "the conversation has it once"
