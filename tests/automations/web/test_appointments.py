"""The panel of appointments in a browser: what one makes there runs, and each slot says what became of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from automations.jobs.edit import NewJob, create_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.routines.edit import NewRoutine, add_routine
from sessions_app.models import Message, Session
from sessions_app.models.message import BY_AUTOMATION
from tests.admin.conftest import make_turn
from tests.browser import IN_BROWSER, Visitor, say, serious
from tests.fleet import until

pytestmark = IN_BROWSER


def open_panel(page: Page) -> None:
    page.get_by_role("link", name="Appointments").click()
    expect(page.get_by_role("heading", name="Appointments")).to_be_visible()


def make(page: Page, message: str, count: str, unit: str) -> None:
    """Make an automation at an interval in the form."""
    page.get_by_role("link", name="Automation", exact=True).click()
    page.get_by_label("What should the agent do?").fill(message)
    page.get_by_label("Repeat").select_option("every")
    page.get_by_label("Every", exact=True).fill(count)
    page.get_by_label("Unit").select_option(label=unit)
    page.get_by_role("button", name="Create").click()


def automation(session: Session, name: str = "Morning news") -> CronJob:
    schedule = {"kind": "cron", "expr": "0 9 * * *", "timezone": "Europe/Berlin"}
    return create_job(NewJob(session_id=session.pk, message="news", name=name, schedule=schedule))


def panel(visitor: Visitor, **options: Any) -> tuple[Page, CronJob]:
    """A conversation with an automation and the panel open."""
    session = visitor.person.session()
    job = automation(session)
    page = visitor.conversation(session, **options)
    open_panel(page)
    return page, job


def past_run(job: CronJob, days: int, state: RunState, reason: str = "", **about: Any) -> RunRecord:
    """Store a run of a slot so many days ago."""
    slot = datetime.now(UTC).replace(microsecond=0) - timedelta(days=days)
    about |= {"run_id": f"{job.pk}:{days}", "scheduled_for": slot, "finished_at": slot}
    return RunRecord.objects.create(job=job, session=job.session, state=state, reason=reason, **about)


def test_an_automation_from_the_form_runs_in_view(visitor: Visitor, beat: None) -> None:
    page = visitor.conversation()
    open_panel(page)
    make(page, "my favourite colour is blue", "1", "seconds")
    expect(page.locator(".appointment h3")).to_have_text("my favourite colour is blue")
    expect(page.get_by_role("heading", name="Appointments")).to_be_focused()
    page.get_by_label("Message", exact=True).fill("half a sen")
    expect(page.locator(".entry.trigger")).not_to_have_count(0, timeout=15_000)
    expect(page.locator(".entry.agent").first).to_contain_text("blue")
    expect(page.locator(".strip a[aria-label^=ran]").first).to_be_visible(timeout=15_000)
    page.keyboard.type("tence")
    expect(page.get_by_label("Message", exact=True)).to_have_value("half a sentence")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".appointment.paused")).to_be_visible()
    assert not CronJob.objects.get().enabled


@pytest.mark.full
def test_a_slot_waits_while_the_conversation_is_busy(visitor: Visitor, beat: None) -> None:
    page = visitor.conversation()
    say(page, "[[hold:busy]] hello")
    expect(page.locator("#live")).to_be_visible()
    open_panel(page)
    make(page, "water the garden", "1", "seconds")
    expect(page.locator(".strip a[aria-label^=waiting]")).to_be_visible(timeout=15_000)
    expect(page.locator(".now-text")).to_contain_text("the conversation is busy with a person's message")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".appointment.paused")).to_be_visible()  # which cancels what waits
    visitor.model.release("busy")
    expect(page.locator(".entry.agent:not(.live)")).to_have_count(1)


@pytest.mark.full
def test_a_list_that_comes_late_does_not_replace_a_form(visitor: Visitor) -> None:
    page = visitor.conversation()
    open_panel(page)
    late: list[Route] = []
    page.route("**/appointments/", lambda route: late.append(route))  # noqa: PLW0108 - Playwright inspects it
    page.evaluate("document.body.dispatchEvent(new Event('appointments-due'))")
    until(lambda: page.evaluate("1") and late)  # evaluating lets Playwright see requests
    page.get_by_role("link", name="Automation", exact=True).click()
    page.get_by_label("What should the agent do?").fill("water the garden")
    with page.expect_response("**/appointments/") as answered:
        late[0].continue_()
    answered.value.finished()
    page.evaluate("() => new Promise(requestAnimationFrame)")  # what the answer would change is changed
    expect(page.get_by_label("What should the agent do?")).to_have_value("water the garden")


@pytest.mark.full
def test_the_form_shows_the_sentence_the_next_times_and_mistakes(visitor: Visitor) -> None:
    page = visitor.conversation()
    open_panel(page)
    page.get_by_role("link", name="Automation", exact=True).click()
    page.get_by_label("Repeat").select_option("cron")
    page.get_by_label("Cron expression").fill("30 2 28 3 *")  # 2027-03-28: the clocks go forward
    page.get_by_label("Time zone").fill("Europe/Berlin")
    expect(page.locator("#coming .warning").first).to_contain_text("2027-03-28")
    page.get_by_label("Repeat").select_option("weekdays")
    page.get_by_label("Time", exact=True).fill("09:30")
    expect(page.locator("#coming b")).to_have_text("On weekdays at 09:30 (Europe/Berlin)")
    expect(page.locator("#coming li")).to_have_count(5)
    page.get_by_label("Time zone").fill("Europe/Nowhere")
    expect(page.locator("#coming")).to_contain_text("Europe/Nowhere")
    page.get_by_label("What should the agent do?").fill("news")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("Europe/Nowhere")
    expect(page.get_by_label("What should the agent do?")).to_have_value("news")
    assert not CronJob.objects.exists()


def test_an_automation_is_edited_and_paused(visitor: Visitor) -> None:
    page, job = panel(visitor)
    page.get_by_role("link", name="Edit Morning news").click()
    expect(page.get_by_label("Repeat")).to_have_value("daily")
    expect(page.get_by_label("Time", exact=True)).to_have_value("09:00")
    page.get_by_label("Time", exact=True).fill("10:15")
    page.locator(".schedule summary").click()
    page.get_by_label("Pause until").fill("2099-01-01T00:00")
    page.get_by_label("Call this address").fill("ftp://pings.example.com/")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".field-ping_url .error")).to_contain_text("It ")
    page.get_by_label("Call this address").fill("https://pings.example.com/1")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".appointment")).to_contain_text("every day at 10:15 (Europe/Berlin)")
    expect(page.locator(".appointment .chip")).to_have_text("paused")
    job.refresh_from_db()
    assert (job.expr, job.message, job.name) == ("15 10 * * *", "news", "Morning news")
    assert job.ping_url == "https://pings.example.com/1"
    expect(page.get_by_role("button", name="Skip the next run")).to_have_count(0)
    page.get_by_role("link", name="Edit Morning news").click()
    expect(page.get_by_label("Pause until")).to_have_value("2099-01-01T00:00")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Resume Morning news").click()
    expect(page.locator(".appointment .chip")).to_have_text("scheduled")
    assert JobClock.objects.get().paused_until is None


@pytest.mark.full
def test_slots_are_left_out_and_only_those(visitor: Visitor) -> None:
    page, job = panel(visitor)
    before = job.clock.next_run_at
    assert before is not None
    page.get_by_role("button", name="Skip the next run of Morning news").click()
    expect(page.locator(".strip a[aria-label^=skipped]")).to_have_count(1)
    run, clock = RunRecord.objects.get(), JobClock.objects.get()
    assert (run.state, run.reason, run.scheduled_for) == (RunState.SKIPPED, "skipped_by_user", before)
    assert clock.next_run_at is not None
    assert timedelta(hours=23) <= clock.next_run_at - before <= timedelta(hours=25)
    page.get_by_role("link", name="Why?").click()
    page.get_by_label("Leave out the next").fill("3")
    page.get_by_role("button", name="Skip", exact=True).click()
    until(lambda: JobClock.objects.get().next_run_at != clock.next_run_at, 10)
    left = JobClock.objects.get().next_run_at
    assert left is not None
    assert timedelta(hours=71) <= left - clock.next_run_at <= timedelta(hours=73)


@pytest.mark.full
def test_why_and_each_slot_are_explained(visitor: Visitor) -> None:
    session = visitor.person.session()
    past_run(automation(session), 1, RunState.FAILED, "model_unavailable")
    page = visitor.conversation(session)
    open_panel(page)
    expect(page.locator(".appointment.failing")).to_be_visible()
    mark = page.locator(".strip a")
    mark.hover()
    expect(mark.locator(".tip")).to_contain_text("the model did not answer")
    mark.click()
    body = page.locator("#panel-body")
    expect(body).to_contain_text("Failed: the model did not answer.")
    page.get_by_role("link", name="Why?").click()
    expect(page.get_by_role("heading", name="Morning news")).to_be_visible()
    expect(page.get_by_role("heading", name="Next")).to_be_visible()
    expect(body).to_contain_text("every day at 09:00 (Europe/Berlin)", ignore_case=True)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_panel_is_accessible(visitor: Visitor, scheme: str) -> None:
    """In states; `tests/injection/test_every_page.py` has every page as it opens."""
    page, job = panel(visitor, color_scheme=scheme)
    assert serious(page) == []
    page.get_by_role("link", name="Edit Morning news").click()
    expect(page.locator("#coming b")).to_be_visible()
    assert serious(page) == []
    phone = visitor.conversation(job.session, viewport={"width": 390, "height": 780}, has_touch=True)
    phone.get_by_role("link", name="Appointments").click()
    expect(phone.locator(".appointment")).to_be_visible()
    size = phone.locator(".to-come").first.bounding_box()
    assert size is not None
    assert min(size["width"], size["height"]) >= 24  # for a finger


@pytest.mark.full
def test_without_scripts_an_automation_is_made_and_paused(visitor: Visitor) -> None:
    page = visitor.conversation(java_script_enabled=False)
    page.get_by_role("link", name="Appointments").click()
    make(page, "news", "5", "minutes")
    expect(page.locator(".appointment h3")).to_have_text("news")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".appointment.paused")).to_be_visible()


@pytest.mark.full
def test_a_routine_is_changed_in_a_form(visitor: Visitor) -> None:
    session = visitor.person.session()
    agent = visitor.person.agent.pk
    routine = add_routine(
        NewRoutine(agent_id=agent, title="Read the news", schedule="2h", session_id=session.pk)
    )
    page = visitor.conversation(session)
    open_panel(page)
    page.get_by_role("link", name="Edit Read the news").click()
    expect(page.get_by_label("Every", exact=True)).to_have_value("2")
    expect(page.locator("#coming li")).to_have_count(5)
    page.get_by_label("Name").fill("Read the papers")
    page.get_by_label("Repeat").select_option("weekdays")
    page.get_by_label("Time", exact=True).fill("07:30")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".appointment h3")).to_have_text("Read the papers")
    expect(page.locator(".appointment.routine")).to_contain_text("on weekdays at 07:30 (Europe/Berlin)")
    routine.refresh_from_db()
    assert (routine.expr, routine.timezone, routine.max_retry) == ("30 7 * * 1-5", "Europe/Berlin", 3)


@pytest.mark.full
def test_a_slot_that_is_opened_is_shown_in_the_conversation(visitor: Visitor) -> None:
    session = visitor.person.session()
    job = automation(session)
    told: dict[str, Any] = {"snapshot": {"message": "What happened?"}, "response_summary": "All quiet."}
    run = past_run(job, 1, RunState.SUCCEEDED, turn_id=make_turn(session).pk, **told)
    trigger = {"metadata": {BY_AUTOMATION: True, "automation_run_id": run.pk}}
    said = [{"role": "user", "content": "What happened?"} | trigger]
    said += [{"role": "assistant", "content": text} for text in ("All quiet.", *["word " * 300] * 8)]
    Message.objects.bulk_create(Message(session=session, seq=n, **each) for n, each in enumerate(said, 1))
    Session.objects.filter(pk=session.pk).update(last_seq=len(said))
    page = visitor.conversation(session)
    entry = page.locator(".entry.trigger")
    expect(entry).not_to_be_in_viewport()
    open_panel(page)
    page.locator(".strip a").click()
    expect(page.locator("#panel-body")).to_contain_text("What the agent was told")
    expect(page.locator("#panel-body")).to_contain_text("All quiet.")
    expect(entry).to_be_in_viewport()
    expect(page.locator(".entry.shown")).to_have_count(1)
