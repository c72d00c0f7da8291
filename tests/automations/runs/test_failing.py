"""Failed runs are repeated, counted, slowed down, paused, and tried again by people (rules 11.2, 11.3)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agent_core import models
from agent_core.exceptions import ModelRefused, ModelUnavailable
from agent_core.llm.protocol import ModelReply
from agent_core.text.formats import says_something
from agent_core.types import Ended
from automations.jobs.edit import update_job
from automations.jobs.explain import explain
from automations.jobs.failing import try_again
from automations.models import (
    Attention,
    CronJob,
    ExecutionMode,
    JobClock,
    JobHealth,
    RunRecord,
    RunState,
)
from automations.models.health import LONGEST_FAILING, PAUSED_AFTER, SLOWED_AFTER
from automations.runs.describe import ENDS_SLOWING, NEEDS_LOOK
from automations.runs.skips import GapReason, run_id
from sessions_app.connections.usable import CURES
from sessions_app.models import Agent, MailboxEvent, Turn
from sessions_app.sessions.open import archive_session
from tests.api.conftest import problem
from tests.automations.jobs import made
from tests.automations.turn_kinds.test_bound import fire, ran, repeated
from tests.automations.turn_kinds.test_heartbeat import routine
from tests.automations.turn_kinds.test_isolated import job_of
from tests.conftest import Person
from tests.deletion import caller
from tests.inside import Inside, Reply, Script, call, listening, makes

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.2")]
DOWN = ModelUnavailable("down")
REFUSED = ModelRefused("no")


def new(person: Person, **more: Any) -> CronJob:
    Agent.objects.update(policy={"max_attempts": 1})
    return made.new(person.session(), **{"schedule": made.HOURLY, "message": "look"} | more)


def failed_before(job: CronJob, count: int, apart: timedelta = timedelta(minutes=1)) -> None:
    """So many failed runs in a row, the last one a little while ago."""
    now = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    slots = [now - apart * number for number in range(count)]
    RunRecord.objects.bulk_create(
        RunRecord(
            run_id=run_id(job.pk, slot), job=job, session=job.session, scheduled_for=slot, finished_at=slot,
            state=RunState.FAILED, reason="model_refused",
        )
        for slot in slots
    )  # fmt: skip


def health(job: CronJob) -> JobHealth:
    return JobHealth.objects.get(pk=job.pk)


def mail(kind: str) -> int:
    return MailboxEvent.objects.filter(event_type=kind).count()


def test_only_an_attempt_in_which_nothing_was_done_is_repeated(inside: Inside) -> None:
    limited = ModelUnavailable("busy", code="rate_limited")
    with listening(lambda: "heard"):
        cases: list[tuple[list[Reply], bool]] = [([DOWN], True), ([limited], True)]
        works, out_of_quota = makes(call("listen")), ModelRefused("no", code="model_quota")
        cases += [([works, DOWN], False), ([RuntimeError("a bug")], False), ([out_of_quota], False)]
        for replies, is_repeated in cases:
            run = ran(inside, new(inside.person), *replies)
            expected = RunState.QUEUED if is_repeated else RunState.FAILED
            assert (run.state, run.fruitless) == (expected, int(is_repeated)), replies


def test_a_run_is_repeated_if_its_model_is_away_and_its_fallback_model_refuses(inside: Inside) -> None:
    spare = Script()
    models.register("scripted-spare", lambda: spare)
    job = new(inside.person, fallback_model="scripted-spare")
    spare.answer_with(ModelRefused("no", code="model_auth", reason="The key has expired"))
    run = ran(inside, job, ModelUnavailable("down", reason="It is away"))
    assert (run.state, run.reason, run.fruitless) == (RunState.QUEUED, "model_unavailable", 1)
    assert "It is away" in run.error
    assert "The key has expired" in run.error
    assert repeated(inside, run).state == RunState.SUCCEEDED


def test_repeats_do_not_use_up_the_retries_that_a_person_gave(inside: Inside) -> None:
    run = ran(inside, new(inside.person, max_retry=1), DOWN)
    for reply in (DOWN, DOWN, DOWN, RuntimeError("a bug")):
        repeated(inside, run, reply)
    assert (run.state, run.attempt, run.fruitless) == (RunState.FAILED, 5, 3)


@pytest.mark.rule("11.3")
@pytest.mark.parametrize("how", ["resume", "change"])
def test_a_person_ends_the_slowing_down_by_resuming_or_changing_the_job(inside: Inside, how: str) -> None:
    job = new(inside.person, schedule={"kind": "every", "seconds": 60})
    failed_before(job, SLOWED_AFTER - 1)
    RunRecord.objects.update(state=RunState.SUCCEEDED, reason="", attention=Attention.EMPTY)
    ran(inside, job, ModelReply(text=" "))
    explained = explain(inside.person.user, job.pk)
    assert ENDS_SLOWING in " ".join(explained.warnings)
    first, second, *_ = explained.next
    assert second - first == timedelta(hours=1), "it promises no run that will be skipped"
    browser = Client()
    browser.force_login(inside.person.user)
    page = reverse("appointments", args=[job.session_id])
    assert "slowed down</span>" in browser.get(page).content.decode()
    if how == "resume":
        browser.post(reverse("switch", args=[job.session_id, "automation", job.pk]), {"to": "on"})
    else:
        update_job(job.pk, {"message": "look closer"})
    assert "slowed down</span>" not in browser.get(page).content.decode()
    assert ran(inside, job).state == RunState.SUCCEEDED
    assert mail("works_again") == 1


@pytest.mark.parametrize("how", ["twenty", "three days"])
def test_a_hopeless_job_is_paused_until_a_person_resumes_it(inside: Inside, how: str) -> None:
    job = new(inside.person)
    failed_before(job, *((PAUSED_AFTER - 1,) if how == "twenty" else (4, LONGEST_FAILING / 3)))
    ran(inside, job, REFUSED)
    job.refresh_from_db()
    assert (job.enabled, health(job).paused_reason, mail("paused")) == (False, "failing", 1)
    shown = caller(inside.person).get(f"/api/automations/{job.pk}/").json()["health"]
    assert (shown["paused_reason"], shown["preflight"]) == ("failing", [])
    assert shown["failures_in_a_row"] == health(job).failures_in_a_row
    assert "runs in a row failed" in explain(inside.person.user, job.pk).now
    update_job(job.pk, {"enabled": True})
    assert (health(job).failures_in_a_row, health(job).paused_reason) == (0, "")
    ran(inside, job, REFUSED)
    assert health(job).failures_in_a_row == 1, "what failed before the pause does not count any more"
    for _ in range(2):
        ran(inside, job)
        assert (health(job).told, mail("works_again")) == ("", 1)


def test_a_resumed_job_that_works_at_once_is_told_once(inside: Inside) -> None:
    job = new(inside.person)
    failed_before(job, PAUSED_AFTER - 1)
    ran(inside, job, REFUSED)
    update_job(job.pk, {"enabled": True})
    ran(inside, job, ModelReply(text=" "))
    assert mail("works_again") == 0
    for _ in range(2):
        ran(inside, job)
        assert mail("works_again") == 1


def test_beat_pauses_a_hopeless_job_that_nobody_paused(inside: Inside) -> None:
    job = new(inside.person)
    slots = {"failing_since": Now(), "failed_last": Now() - timedelta(hours=2)}
    JobHealth.objects.create(job=job, failures_in_a_row=PAUSED_AFTER, **slots)
    assert ran(inside, job).reason == GapReason.BACKOFF
    job.refresh_from_db()
    assert (job.enabled, JobClock.objects.get(job=job).next_run_at) == (False, None)


@pytest.mark.parametrize("reply", [ModelReply(text="Fine."), ModelReply(text=" ")])
def test_a_run_that_ends_after_its_job_was_paused_leaves_that(inside: Inside, reply: ModelReply) -> None:
    job = new(inside.person)
    inside.model.answer_with(reply)
    run = fire(job)
    CronJob.objects.update(enabled=False)
    paused = {"told": "paused", "paused_reason": "failing", "failures_in_a_row": PAUSED_AFTER}
    JobHealth.objects.create(job=job, failing_since=Now(), failed_last=Now(), **paused)
    inside.run_all()
    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED
    assert (health(job).paused_reason, health(job).failures_in_a_row) == ("failing", PAUSED_AFTER)
    assert mail("works_again") == 0


def test_what_ends_well_costs_a_well_job_no_statement(inside: Inside) -> None:
    fire(new(inside.person))
    with CaptureQueriesContext(connection) as captured:
        inside.run_all()
    about = [each["sql"] for each in captured if "jobhealth" in each["sql"]]
    assert len(about) == 1
    assert about[0].replace('"', "").startswith("UPDATE automations_runrecord")
    assert not JobHealth.objects.exists()


def test_a_refusal_is_told_once_with_its_cure(inside: Inside) -> None:
    job = new(inside.person)
    for _ in range(2):
        ran(inside, job, ModelRefused("no", code="model_quota", reason="It refused (402)"))
    [told] = MailboxEvent.objects.filter(event_type="failing")
    assert "402" in told.summary
    assert CURES["model_quota"] in told.summary


def test_a_refusal_of_a_connection_is_told_once_for_all_that_it_stops(inside: Inside) -> None:
    """Of several agents, too; and once when it works again, whichever runs first."""
    other = Agent.objects.create(name="other", owner=inside.person.user, model=inside.person.agent.model)
    jobs = [new(inside.person, name="Look 0"), new(replace(inside.person, agent=other), name="Look 1")]
    for job in jobs:
        ran(inside, job, ModelRefused("no", code="model_quota", reason="It refused (402)"))
    [told] = MailboxEvent.objects.filter(event_type="failing")
    assert [f"Look {number}" in told.summary + told.detail for number in range(2)] == [True, True]
    for job in reversed(jobs):
        ran(inside, job, ModelReply(text="Done."))
    assert mail("works_again") == 1
    ran(inside, jobs[0], ModelRefused("no", code="model_quota"))
    assert mail("failing") == 2, "it came back, which is news"


@pytest.mark.parametrize("due", [job_of, routine])
def test_a_failing_routine_is_told_once(inside: Inside, due: Callable[..., CronJob]) -> None:
    """Isolated and inline: a failure without a cure as its text, one with a cure as what to do."""
    Agent.objects.update(policy={"max_attempts": 1})
    quota = ModelRefused("no", code="model_quota")
    bug = RuntimeError("a bug"), {"job_failed", "routine_failed"}
    for failure, kinds in (bug, (quota, {"failing"})):
        MailboxEvent.objects.all().delete()
        job = due(inside.person, "look", max_retry=0)
        for _ in range(2):
            inside.model.answer_with(failure)
            JobClock.objects.filter(job=job).update(next_run_at=Now())
            inside.beat()
        assert RunRecord.objects.filter(job=job, state=RunState.FAILED).count() == 2
        assert MailboxEvent.objects.get().event_type in kinds


@pytest.mark.parametrize("mode", ["session", "isolated"])
def test_a_person_tries_a_failed_slot_again(inside: Inside, mode: str) -> None:
    job = new(inside.person)
    if mode == "isolated":
        CronJob.objects.update(execution_mode=ExecutionMode.ISOLATED, session=None)
        job.refresh_from_db()
    run = ran(inside, job, REFUSED)
    api = caller(inside.person)
    answer = api.post(f"/api/runs/{run.pk}/retry/")
    assert answer.status_code == 202, answer.content
    assert (answer.json()["state"], answer.json()["attempt"]) == ("queued", 2)
    problem(api.post(f"/api/runs/{run.pk}/retry/"), 409, "run_not_failed")
    if mode == "session":
        update_job(job.pk, {"message": "something else"})
    inside.beat()
    run.refresh_from_db()
    assert (run.state, run.attempt, health(job).failures_in_a_row) == (RunState.SUCCEEDED, 2, 0)
    first, second = Turn.objects.filter(origin_run=run.pk).order_by("pk")
    assert (first.content, first.session_id) == (second.content, second.session_id)
    assert RunRecord.objects.filter(job=job).count() == 1, "there is no run outside the schedule"


def test_a_run_that_a_person_tries_again_is_repeated_if_nothing_was_done(inside: Inside) -> None:
    """Their attempt finds the provider away, as the first one and its three repeats did."""
    run = ran(inside, new(inside.person), DOWN)
    for _ in range(3):
        repeated(inside, run, DOWN)
    assert run.state == RunState.FAILED
    try_again(run.pk)
    repeated(inside, run, DOWN)
    assert (run.state, run.attempt, run.fruitless) == (RunState.QUEUED, 6, 1)
    repeated(inside, run, RuntimeError("a bug"))
    assert (run.state, run.attempt) == (RunState.FAILED, 6), "`max_retry` gives it no attempt more"


def test_a_retry_is_refused_where_it_could_not_run(inside: Inside) -> None:
    job: Any = new(inside.person)
    run = ran(inside, job, REFUSED)
    api, address = caller(inside.person), f"/api/runs/{run.pk}/retry/"
    update_job(job.pk, {"enabled": False})
    problem(api.post(address), 409, "job_paused")
    update_job(job.pk, {"enabled": True})
    archive_session(job.session)
    problem(api.post(address), 409, "session_closed")
    run.refresh_from_db()
    assert (run.state, run.attempt) == (RunState.FAILED, 1)


@pytest.mark.rule("11.3")
def test_an_answer_says_what_it_lacks(inside: Inside) -> None:
    job, api = new(inside.person), caller(inside.person)
    for reply, attention in (
        (ModelReply(text="Fine."), None),
        (ModelReply(text="<p>\u200b</p>\n"), "empty"),
        (ModelReply(text="", ended_by=Ended.FILTER), "empty"),
        (ModelReply(text="Once upon", ended_by=Ended.LENGTH), "cut_short"),
    ):
        run = ran(inside, job, reply)
        shown = api.get(f"/api/runs/{run.pk}/").json()
        assert (shown["state"], shown["attention"]) == ("succeeded", attention)
        if attention:
            assert api.get(f"/api/runs/?attention={attention}").json()["results"][0]["run_id"] == run.pk
    assert health(job).failures_in_a_row == 3
    problem(api.get("/api/runs/?attention=nothing"), 400, "bad_parameter")


EMPTY = ("\u200b", "\ufeff \u2060", "\u2800", "<br>", "<p> </p>", "&nbsp;", "---", "```\n```")


@pytest.mark.rule("11.3")
def test_an_answer_of_which_nothing_is_seen_is_empty() -> None:
    assert [text for text in EMPTY if says_something(text)] == []
    texts = ("?", "👍", "<https://example.org>", "- a", "# 1", "<3")
    assert [text for text in texts if not says_something(text)] == []


@pytest.mark.rule("11.3")
def test_the_error_of_an_earlier_attempt_is_not_told_as_that_of_an_empty_answer(inside: Inside) -> None:
    job = new(inside.person)
    failed_before(job, SLOWED_AFTER)
    run = ran(inside, job, ModelUnavailable("down", reason="It was away"))
    assert "It was away" in run.error
    RunRecord.objects.filter(pk=run.pk).update(not_before=Now())
    inside.model.answer_with(ModelReply(text=" "))
    inside.beat()
    told = MailboxEvent.objects.get(event_type="failing")
    assert "It was away" not in told.summary + told.detail
    assert NEEDS_LOOK[Attention.EMPTY] in told.summary


@pytest.mark.rule("11.3")
def test_the_database_refuses_what_no_state_names(inside: Inside) -> None:
    ran(inside, new(inside.person), REFUSED)
    changes: list[dict[str, Any]] = [{"told": "odd"}, {"paused_reason": "odd"}, {"failing_since": None}]
    odd: list[tuple[Any, dict[str, Any]]] = [(RunRecord, {"attention": "odd"})]
    odd += [(JobHealth, change) for change in (*changes, {"failures_in_a_row": 0})]
    for model, change in odd:
        with pytest.raises(IntegrityError), transaction.atomic():
            model.objects.update(**change)


@pytest.mark.rule("11.3")
def test_the_pages_show_what_a_run_lacks_and_try_a_failed_one_again(inside: Inside) -> None:
    job = new(inside.person)
    ran(inside, job, ModelReply(text=" "))
    run = ran(inside, job, REFUSED)
    browser = Client()
    browser.force_login(inside.person.user)
    retry = reverse("retry-run", args=[job.session_id, run.pk])
    for page, args in (("appointments", []), ("why", ["automation", job.pk]), ("run", [run.pk])):
        shown = browser.get(reverse(page, args=[job.session_id, *args])).content.decode()
        assert retry in shown, page
        assert "slot attention" in shown or page == "run"
    assert browser.post(retry).status_code == 303
    run.refresh_from_db()
    assert (run.state, run.attempt) == (RunState.QUEUED, 2)
    assert browser.post(retry).status_code == 409
