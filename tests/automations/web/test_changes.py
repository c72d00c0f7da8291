"""The panel in a browser: pauses until a time, slots that are left out, routines, a slot and its place."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from automations.models import JobClock, RunRecord, RunState
from automations.routines.edit import NewRoutine, add_routine
from sessions_app.models import Message, Session, TurnState
from sessions_app.models.message import BY_AUTOMATION
from tests.admin.conftest import make_turn
from tests.automations.web.test_appointments import automation, open_panel, past_run
from tests.browser import NEEDS_CHROMIUM, Visitor

pytestmark = [
    pytest.mark.full,
    NEEDS_CHROMIUM,
    pytest.mark.processes,
    pytest.mark.django_db(transaction=True),
]


def test_an_automation_is_paused_until_a_time_and_resumed(visitor: Visitor) -> None:
    session = visitor.person.session()
    job = automation(session)
    page = visitor.conversation(session)
    open_panel(page)
    page.get_by_role("link", name="Edit Morning news").click()
    page.locator(".schedule summary").click()
    page.get_by_label("Pause until").fill("2099-01-01T00:00")
    page.get_by_label("Call this address").fill("ftp://pings.example.com/")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".field-ping_url .error")).to_contain_text("It ")
    page.get_by_label("Call this address").fill("https://pings.example.com/1")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".appointment .chip")).to_have_text("paused")
    job.refresh_from_db()
    assert job.ping_url == "https://pings.example.com/1"
    expect(page.get_by_role("button", name="Skip the next run")).to_have_count(0)
    page.get_by_role("link", name="Edit Morning news").click()
    expect(page.get_by_label("Pause until")).to_have_value("2099-01-01T00:00")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Resume Morning news").click()
    expect(page.locator(".appointment .chip")).to_have_text("scheduled")
    clock = JobClock.objects.get()
    assert clock.paused_until is None
    assert clock.next_run_at is not None
    page.get_by_role("link", name="Why?").click()
    page.get_by_label("Leave out the next").fill("3")
    page.get_by_role("button", name="Skip", exact=True).click()
    expect(page.locator(".strip a[aria-label^=skipped]")).to_have_count(1)
    assert JobClock.objects.get().next_run_at == clock.next_run_at + timedelta(days=3)


def test_a_routine_is_changed_in_a_form(visitor: Visitor) -> None:
    session = visitor.person.session()
    given = NewRoutine(
        agent_id=visitor.person.agent.pk, title="Read the news", schedule="2h", session_id=session.pk
    )
    routine = add_routine(given)
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


def test_a_slot_that_is_opened_is_shown_in_the_conversation(visitor: Visitor) -> None:
    session = visitor.person.session()
    job = automation(session)
    past_run(job, 1, RunState.SUCCEEDED, "")
    turn, run = make_turn(session, TurnState.SUCCEEDED), RunRecord.objects.get()
    told = {"snapshot": {"message": "What happened?"}, "response_summary": "All quiet."}
    RunRecord.objects.update(turn_id=turn.pk, **told)
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
