"""Appointments by keyboard alone: the form with all its fields, the strip, and what is done with an automation."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from automations.models import CronJob, RunState, ScheduledMessage
from sessions_app.models import Session
from tests.automations.jobs.made import past_run
from tests.automations.web.test_appointments import automation
from tests.browser import IN_BROWSER, Visitor
from tests.fleet import until
from tests.keyboard import choose, expect_focus, go_to, press, write

pytestmark = [*IN_BROWSER, pytest.mark.full]


def open_panel(visitor: Visitor, session: Session | None = None) -> Page:
    page = visitor.conversation(session)
    press(page.get_by_role("link", name="Appointments"), back="Shift+Tab")
    expect_focus(page.get_by_role("heading", name="Appointments"))
    return page


def new_automation(visitor: Visitor) -> Page:
    page = open_panel(visitor)
    press(page.get_by_role("link", name="Automation", exact=True))
    expect_focus(page.get_by_label("What should the agent do?"))
    page.keyboard.type("water the garden")
    return page


def test_each_way_to_repeat_is_chosen_by_keyboard(visitor: Visitor) -> None:
    page = new_automation(visitor)
    repeat, words = page.get_by_label("Repeat"), page.locator("#coming b")
    choose(repeat, "On days of the week")
    for day in ("Mon", "Thu"):
        press(page.get_by_role("checkbox", name=day), "Space")
    go_to(page.get_by_label("Time", exact=True))
    page.keyboard.type("0930AM")
    write(page.get_by_label("Time zone"), "Europe/Berlin")
    page.keyboard.press("Escape")
    expect(words).to_contain_text("Monday and Thursday at 09:30 (Europe/Berlin)", ignore_case=True)
    go_to(repeat, "Shift+Tab")
    choose(repeat, "On a day of the month")
    write(page.get_by_label("Day of the month"), "15")
    expect(words).to_contain_text("15")
    go_to(repeat, "Shift+Tab")
    choose(repeat, "Cron expression")
    write(page.get_by_label("Cron expression"), "0 7 * * *")
    expect(words).to_contain_text("at 07:00")
    go_to(repeat, "Shift+Tab")
    choose(repeat, "Once")
    go_to(page.get_by_label("When"))
    page.keyboard.type("010220990930AM")
    expect(words).to_contain_text("Fri 2 Jan 2099 09:30")
    go_to(repeat, "Shift+Tab")
    choose(repeat, "At an interval")
    write(page.get_by_label("Every", exact=True), "5")
    choose(page.get_by_label("Unit"), "hours")
    expect(words).to_have_text("Every 5 hours")
    page.keyboard.press("Escape")  # a form is not thrown away
    expect(repeat).to_be_visible()


def test_an_automation_is_made_with_all_its_fields_by_keyboard(visitor: Visitor) -> None:
    page = new_automation(visitor)
    choose(page.get_by_label("Repeat"), "Monday to Friday")
    go_to(page.get_by_label("Time", exact=True))
    page.keyboard.type("0815AM")
    write(page.get_by_label("Time zone"), "Europe/Nowhere")
    press(page.get_by_role("button", name="Create"))
    expect(page.get_by_role("alert")).to_contain_text("Europe/Nowhere")
    expect_focus(page.get_by_label("What should the agent do?"))
    write(page.get_by_label("Time zone"), "Europe/Berlin")
    page.keyboard.press("Escape")
    press(page.locator("summary", has_text="More"), "Space")
    write(page.get_by_label("Name"), "Garden")
    go_to(page.locator("[name=ends_at]"))
    page.keyboard.type("010220990930AM")
    write(page.locator("[name=max_runs]"), "7")
    for name in ("overlap", "catch_up"):
        go_to(page.locator(f"[name={name}]"))
        page.keyboard.press("ArrowDown")
    write(page.locator("[name=max_retry]"), "2")
    write(page.locator("[name=timeout_seconds]"), "90")
    write(page.locator("[name=jitter_seconds]"), "5")
    write(page.locator("[name=ping_url]"), "https://pings.example.com/garden")
    shown = {name: page.locator(f"[name={name}]").input_value() for name in ("overlap", "catch_up")}
    press(page.get_by_role("button", name="Create"))
    expect(page.locator(".appointment h3")).to_have_text("Garden")
    expect_focus(page.get_by_role("heading", name="Appointments"))
    job: Any = CronJob.objects.get()
    assert (job.expr, job.timezone, job.max_runs) == ("15 8 * * 1-5", "Europe/Berlin", 7)
    assert (job.max_retry, job.timeout_seconds, job.jitter_seconds) == (2, 90, 5)
    assert job.ping_url == "https://pings.example.com/garden"
    assert {"overlap": job.overlap, "catch_up": job.catch_up} == shown
    assert job.ends_at.year == 2099


def test_slots_are_reached_by_keyboard(visitor: Visitor) -> None:
    session = visitor.person.session()
    job = automation(session)
    past_run(job, 2, RunState.SKIPPED, "overlap")
    past_run(job, 1, RunState.SKIPPED, "missed")
    page = open_panel(visitor, session)
    marks = page.locator(".strip a")
    expect(marks).to_have_count(2)
    go_to(marks.nth(1))  # the newest; the strip is one stop of Tab
    expect(marks.nth(1).locator(".tip")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect_focus(page.locator(".to-come").first)
    expect(page.locator(".to-come .tip").first).to_be_visible()
    page.keyboard.press("End")
    expect_focus(page.locator(".to-come").last)
    page.keyboard.press("Home")
    expect_focus(marks.nth(0))
    page.keyboard.press("Tab")
    expect_focus(page.get_by_role("link", name="Edit Morning news"))
    press(marks.nth(0), back="Shift+Tab")
    expect(page.locator("#panel-body")).to_contain_text("the previous run had not ended")
    expect_focus(page.get_by_role("heading", name="Morning news"))
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect_focus(page.get_by_role("link", name="Appointments"))


def test_an_automation_is_skipped_paused_and_deleted_by_keyboard(visitor: Visitor) -> None:
    session = visitor.person.session()
    automation(session)
    page = open_panel(visitor, session)
    skip = page.get_by_role("button", name="Skip the next run of Morning news")
    press(skip, "Space")
    expect(page.locator(".strip a[aria-label^=skipped]")).to_have_count(1)
    expect_focus(skip)  # which can be pressed again
    press(page.get_by_role("button", name="Pause Morning news"), back="Shift+Tab")
    expect_focus(page.get_by_role("button", name="Resume Morning news"))
    page.keyboard.press("Control+z")
    expect_focus(page.get_by_role("button", name="Pause Morning news"))
    delete = page.get_by_role("link", name="Delete Morning news")
    press(delete)
    expect_focus(page.get_by_role("heading", name="Delete “Morning news”?"))
    press(page.get_by_role("link", name="Keep it"))
    expect_focus(page.get_by_role("heading", name="Appointments"))
    assert CronJob.objects.exists()
    press(delete)
    expect_focus(page.get_by_role("heading", name="Delete “Morning news”?"))
    press(page.get_by_role("button", name="Delete it"))
    expect(page.get_by_text("Nothing is planned here.")).to_be_visible()
    expect_focus(page.get_by_role("heading", name="Appointments"))
    assert not CronJob.objects.exists()


def test_a_message_for_later_is_made_and_cancelled_by_keyboard(visitor: Visitor) -> None:
    page = open_panel(visitor)
    press(page.get_by_role("link", name="Message for later"))
    expect_focus(page.get_by_label("Text", exact=True))
    page.keyboard.type("Happy New Year!")
    go_to(page.get_by_label("When"))
    page.keyboard.type("010120991200AM")
    press(page.get_by_role("button", name="Schedule it"))
    expect(page.locator(".appointment.message")).to_contain_text("Happy New Year!")
    expect_focus(page.get_by_role("heading", name="Appointments"))
    press(page.get_by_role("button", name="Cancel the message"))
    until(lambda: ScheduledMessage.objects.get().status == "cancelled", 10)
    expect_focus(page.get_by_role("heading", name="Appointments"))


def test_the_list_is_loaded_again_around_the_focus(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = open_panel(visitor, session)
    new = page.get_by_role("link", name="Automation", exact=True)
    go_to(new)
    automation(session)
    page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
    expect(page.locator(".appointment h3")).to_have_text("Morning news")
    expect_focus(new)
    go_to(page.get_by_role("link", name="Why? Morning news"))
    automation(session, "Evening news")
    with page.expect_response(lambda answer: "/updates/" in answer.url):
        page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
    expect(page.locator(".appointment h3")).to_have_text(["Morning news", "Evening news"])
    expect_focus(page.get_by_role("link", name="Why? Morning news"))
    press(page.get_by_role("button", name="Pause Morning news"))
    expect(page.locator(".appointment.paused")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
