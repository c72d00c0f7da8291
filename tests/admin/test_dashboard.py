"""The first page of the admin: what fails, what waits, what ran; who sees which part; what it reads."""

import re
from datetime import UTC, timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from automations.models import Attention, CronJob, JobClock, JobHealth, RunRecord, RunState
from automations.runs.describe import NEEDS_LOOK
from automations.runs.figures import failing_jobs, recent_runs
from config.operations.dashboard import GROUPS, dashboard, sidebar
from interfaces.admin.panels import instant
from sessions_app.models import Delivery, DeliveryState, Session, Turn, TurnState
from sessions_app.operations.figures import tokens_by_agent
from tests.admin.conftest import make_job, make_turn, shown
from tests.admin.test_rights import new_staff, signed_in
from tests.conftest import Person

HOME = "/admin/"


def add_run(job: CronJob, state: RunState, minutes: float = 5, **fields: Any) -> RunRecord:
    """A run that was fired so many minutes ago."""
    at = timezone.now() - timedelta(minutes=minutes)
    ended = None if state in {RunState.QUEUED, RunState.RUNNING} else at
    skipped = "overlap" if state == RunState.SKIPPED else ""
    given = {"created_at": at, "state": state, "finished_at": ended, "reason": skipped} | fields
    run_id = f"{job.pk}:{at.timestamp() * 1000:.0f}"
    return RunRecord.objects.create(run_id=run_id, job=job, scheduled_for=at, **given)


def page_of(client: Client) -> str:
    answer = client.get(HOME)
    assert answer.status_code == 200
    return answer.content.decode()


def fail_turn(session: Session) -> None:
    """A turn that has just failed."""
    turn = make_turn(session, TurnState.FAILED, error_code="tool_hung")
    Turn.objects.filter(pk=turn.pk).update(finished_at=timezone.now())


def panel(request: Any, title: str) -> Any:
    (found,) = [each for each in dashboard(request, {})["panels"] if each.title == title]
    return found


@pytest.fixture
def request_of_root(db: None) -> Any:
    request = RequestFactory().get(HOME)
    request.user = User.objects.create_superuser("head", password="pw")
    return request


def test_an_automation_fails_until_a_later_run_succeeds(person: Person) -> None:
    session = person.session()
    failing, mended, skipping = (make_job(session, name) for name in ("a", "b", "c"))
    add_run(failing, RunState.FAILED, 9, reason="timeout")
    add_run(failing, RunState.FAILED, 5, reason="timeout")
    add_run(mended, RunState.FAILED, 9)
    add_run(mended, RunState.SUCCEEDED, 5)
    add_run(skipping, RunState.FAILED, 9)
    add_run(skipping, RunState.SKIPPED, 5)
    found = failing_jobs(10)
    assert [(run.job, failures) for run, failures in found.newest] == [(failing, 2), (skipping, 1)]
    assert (found.count, found.cut) == (2, False)
    assert failing_jobs(1).count == 2


def empty_runs(job: CronJob, failures: int) -> None:
    """Runs that succeeded without an answer, of which so many count as failures."""
    for minutes in range(failures, 0, -1):
        add_run(job, RunState.SUCCEEDED, minutes, attention=Attention.EMPTY)
    now = timezone.now()
    JobHealth.objects.create(job=job, failures_in_a_row=failures, failing_since=now, failed_last=now)


def test_an_automation_fails_after_three_runs_that_need_attention(
    staff: Client, person: Person, request_of_root: Any
) -> None:
    session = person.session()
    silent, twice = make_job(session, "silent"), make_job(session, "twice")
    empty_runs(silent, 3)
    add_run(twice, RunState.SUCCEEDED, attention=Attention.NEEDS_CONSENT)
    assert [(run.job, failures) for run, failures in failing_jobs(10).newest] == [(silent, 3)]
    (row,) = panel(request_of_root, "Automations that fail now").rows
    assert NEEDS_LOOK[Attention.EMPTY] in row
    listed = shown(staff, silent, "changelist")
    assert "succeeded: needs consent" in listed
    add_run(silent, RunState.SUCCEEDED, 0.1)
    assert failing_jobs(10).count == 0


def test_a_slowed_down_automation_is_not_announced_for_its_next_slot(
    person: Person, request_of_root: Any
) -> None:
    job = make_job(person.session(), "soon")
    JobClock.objects.filter(pk=job.pk).update(next_run_at=timezone.now() + timedelta(minutes=2))
    empty_runs(job, 5)
    until = JobHealth.objects.get(pk=job.pk).backoff_until
    assert instant(until) in panel(request_of_root, "Next slots").rows[0][1]


def test_the_page_says_what_fails_and_why(staff: Client, rows: dict[str, Any], person: Person) -> None:
    session = person.session()
    job = make_job(session, "the failing one")
    add_run(job, RunState.FAILED, reason="max_tool_calls")
    aside = make_job(session, "the broken one")
    CronJob.objects.filter(pk=aside.pk).update(enabled=False, fault="ScheduleError: no such day")
    fail_turn(session)
    delivery = rows["delivery"]
    Delivery.objects.filter(pk=delivery.pk).update(state=DeliveryState.FAILED, last_error="503 from there")
    page = page_of(staff)
    for words in (
        *("the failing one", "it made too many tool calls", "the broken one", "ScheduleError: no such day"),
        *("a tool did not return", "503 from there"),
    ):
        assert words in page, words


@pytest.mark.full
def test_every_number_leads_to_a_list_that_answers(
    staff: Client, rows: dict[str, Any], person: Person, request_of_root: Any
) -> None:
    job = make_job(person.session())
    before = add_run(job, RunState.FAILED, 125)
    for n, state in enumerate(RunState):
        add_run(job, state, n + 1, lag_ms=7)
    fail_turn(person.session())
    links = set(re.findall(r'href="(/admin/[^"]+\?[^"]+)"', page_of(staff)))
    assert len(links) > 20
    for link in links:
        answer = staff.get(link.replace("&amp;", "&"))
        assert answer.status_code == 200, link  # a filter that is not offered would redirect
    of_hours = [row[3] for row in panel(request_of_root, "Runs per hour").rows]
    (link,) = re.findall(r'href="([^"]+)">1</a>', of_hours[-1])
    listed = staff.get(link.replace("&amp;", "&")).context["cl"].result_list
    assert [run.pk for run in listed] == [before.pk], "an hour leads to its runs"


def test_runs_are_counted_by_hour_and_lateness(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(person.session())
    for n in range(100):
        add_run(job, RunState.SUCCEEDED, 0.1 + n / 1000, lag_ms=n)
    add_run(job, RunState.SKIPPED, 60 * 23)
    add_run(job, RunState.SUCCEEDED, 60 * 25, lag_ms=10**6)  # too old
    found = recent_runs()
    assert found.count == 101
    assert sum(sum(counts.values()) for counts in found.hours.values()) == 101
    assert found.lateness == pytest.approx((49.5, 94.05, 98.01))
    assert found.since is None
    monkeypatch.setattr("automations.runs.figures.NEWEST", 10)
    cut = recent_runs()
    assert cut.count == 10
    assert cut.since is not None


def test_tokens_are_counted_by_agent(person: Person) -> None:
    session = person.session()
    used = {"requests": 2, "input_tokens": 1_000, "output_tokens": 20}
    make_turn(session, usage=used, model="openai-chat:gpt-4o")
    make_turn(person.session(), usage=used, model="offline")
    (tokens,) = tokens_by_agent(5)
    assert (tokens.turns, tokens.input_tokens, tokens.output_tokens) == (2, 2_000, 40)
    assert tokens.cost.dollars > 0
    assert not tokens.cost.is_partial


def test_next_slots_and_waiting_runs_are_shown(person: Person, request_of_root: Any) -> None:
    job = make_job(person.session(), "soon")
    JobClock.objects.filter(pk=job.pk).update(next_run_at=timezone.now() + timedelta(minutes=2))
    add_run(job, RunState.QUEUED, not_before=timezone.now() + timedelta(hours=1))
    assert "soon" in str(panel(request_of_root, "Next slots").rows[0])
    waits = {row[0]: row[2] for row in panel(request_of_root, "What waits, and on whom").rows}
    assert ">1</a>" in waits["runs before another attempt"]


def test_the_sidebar_has_every_list_by_task_and_nobody_sees_more_than_they_may(request_of_root: Any) -> None:
    titles = [group.get("title") for group in sidebar(request_of_root)]
    assert titles == [None, *GROUPS]
    assert titles[-1] == "Internals"
    links = {item["link"] for group in sidebar(request_of_root) for item in group["items"]}
    metas = [model._meta for model in admin.site._registry]
    lists = {reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist") for meta in metas}
    assert lists == links - {reverse("admin:index")}
    page = page_of(signed_in(new_staff("clerk")))
    assert reverse("admin:sessions_app_session_changelist") in page
    assert reverse("admin:auth_user_changelist") not in page
    request_of_root.user = User.objects.create_user("somebody")
    nothing = dashboard(request_of_root, {})
    assert nothing["tiles"] == nothing["panels"] == []
    assert len(sidebar(request_of_root)) == 1
    assert Client().get(HOME).status_code == 302


def test_runs_are_filtered_by_state_reason_agent_and_time(staff: Client, person: Person) -> None:
    session = person.session()
    old = add_run(make_job(session, "Water the tomatoes"), RunState.FAILED, 60 * 30, reason="timeout")
    new = add_run(make_job(session, "Feed the cat"), RunState.SKIPPED, 5, reason="overlap")
    today = {"created_at_to_0": f"{new.created_at.astimezone(UTC):%Y-%m-%d}"}
    noon = new.created_at.astimezone(UTC) - timedelta(hours=1)
    for query, expected in (
        ({"state__exact": "failed"}, {old}),
        ({"reason__exact": "overlap"}, {new}),
        ({"job__agent__id__exact": person.agent.pk + 1}, set()),
        ({"created_at_from_0": f"{noon:%Y-%m-%d}", "created_at_from_1": f"{noon:%H:%M:%S}"}, {new}),
        ({"created_at_to_0": f"{noon:%Y-%m-%d}", "created_at_to_1": f"{noon:%H:%M:%S}"}, {old}),
        ({"created_at_from_0": "nonsense", "created_at_to_1": "x"}, {old, new}),
        (today, {old, new}),  # until the end of the day
        (today | {"created_at_to_1": "00:00"}, {old}),
        ({"created_at_to_1": "00:00"}, {old, new}),  # of no day
        ({"q": "tomatoes water"}, {old}),
    ):
        page = shown(staff, old, "changelist", **query)
        assert {run for run in (old, new) if quote(run.pk) in page} == expected, query
