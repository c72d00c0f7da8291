"""The panel of appointments in a browser: what one makes there runs, and each slot says what became of it."""

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from agent_core.llm.protocol import ModelReply
from agent_core.types import ToolCall
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from interfaces.web.transcript import SETTLED
from sessions_app.models import ConsentState, Message, Session
from sessions_app.models.message import BY_AUTOMATION
from tests.admin.conftest import make_turn
from tests.automations.jobs.made import new, past_run
from tests.browser import IN_BROWSER, Visitor, serious
from tests.fleet import until
from tests.stories.test_main_job import due

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
    return new(session, message="news", name=name)


def panel(visitor: Visitor, **options: Any) -> tuple[Page, CronJob]:
    """A conversation with an automation and the panel open."""
    session = visitor.person.session()
    job, page = automation(session), visitor.conversation(session, **options)
    open_panel(page)
    return page, job


@pytest.mark.long("slots of an automation come, one a second, in an open page")
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


@pytest.mark.long("a worker that runs two turns")
@pytest.mark.rule("11.4")
def test_a_question_of_the_night_is_answered_in_the_morning(visitor: Visitor) -> None:
    session = visitor.person.session()
    bins = new(session, message="bins", name="Bins")
    remove = {"action": "remove", "job_id": bins.pk}
    asked = ModelReply(text="", calls=(ToolCall(id="c1", name="cron", arguments=remove),))
    visitor.model.answer_with(asked, ModelReply(text="I may not."))
    job = due(session, "Tidy up.", name="Tidy the archive")
    fire_due_jobs()
    page = visitor.conversation(session)
    question = page.get_by_role("region", name="A question for you")
    expect(question).to_contain_text(job.name)
    expect(page.locator(".dot.ask")).to_be_visible()
    expect(page.locator("#asking")).to_have_text("1 waiting for your answer")
    assert serious(page) == []
    expect(question.get_by_text("Remove “Bins” (every day at 09:00")).to_be_visible()
    expect(question.get_by_text(bins.pk)).to_be_hidden()
    page.goto("/upcoming/")
    expect(page.locator(".notices").get_by_text("Remove “Bins”")).to_be_visible()
    chat = visitor.conversation(session)
    expect(chat.locator(".entry input.asks")).to_have_count(1)
    visitor.model.answer_with(ModelReply(text="It is gone."))
    page.locator(".notices").get_by_role("button", name="Allow").click()
    expect(page.locator(".notices [role=status]")).to_have_text("Allowed. It is gone.")
    expect(page.locator("#asking")).to_be_hidden()
    expect(chat.get_by_role("region", name="A question for you")).to_have_count(0)
    expect(chat.locator(".entry .chip[id^=asked-]")).to_have_text(SETTLED[ConsentState.GRANTED])
    expect(chat.locator(".entry.agent:not(.live) .text").last).to_have_text("It is gone.")
    assert not CronJob.objects.filter(pk=bins.pk).exists()


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


def test_an_automation_is_edited_and_paused(visitor: Visitor) -> None:
    page, job = panel(visitor)
    page.get_by_role("link", name="Edit Morning news").click()
    expect(page.get_by_label("Repeat")).to_have_value("daily")
    expect(page.get_by_label("Time", exact=True)).to_have_value("09:00")
    page.get_by_label("Time", exact=True).fill("10:15")
    page.locator(".schedule").get_by_text("More", exact=True).click()
    page.get_by_label("Call this address").fill("ftp://pings.example.com/")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".field-ping_url .error")).to_contain_text("It ")
    page.get_by_label("Call this address").fill("https://pings.example.com/1")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".appointment")).to_contain_text("every day at 10:15 (Europe/Berlin)")
    page.get_by_role("link", name="Pause Morning news for a time").click()
    page.get_by_label("Pause from").fill("2098-12-30T00:00")
    page.get_by_label("Pause until").fill("2099-01-01T00:00")
    expect(page.locator("#coming")).to_contain_text("2 runs are left out.")
    page.get_by_label("Pause from").fill("")
    expect(page.locator("#coming time").first).to_have_attribute("datetime", "2099-01-01T09:15:00+00:00")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".appointment .chip")).to_have_text("paused")
    job.refresh_from_db()
    assert (job.expr, job.message, job.name) == ("15 10 * * *", "news", "Morning news")
    assert job.ping_url == "https://pings.example.com/1"
    expect(page.get_by_role("button", name="Skip the next run")).to_have_count(0)
    page.get_by_role("link", name="Edit Morning news").click()
    expect(page.locator("#coming time").first).to_have_attribute("datetime", "2099-01-01T09:15:00+00:00")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Resume Morning news").click()
    expect(page.locator(".appointment .chip")).to_have_text("scheduled")
    assert JobClock.objects.get().paused_until is None
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".appointment .chip")).to_have_text("paused")
    assert JobClock.objects.get().paused_until


@pytest.mark.parametrize("width", [1280, 390])
def test_no_card_moves_under_the_pointer_and_each_action_is_undone(visitor: Visitor, width: int) -> None:
    session = visitor.person.session()
    job, _ = (
        new(session, name=f"{each}", schedule={"kind": "every", "seconds": each}) for each in (999, 1500)
    )
    page = visitor.conversation(session, viewport={"width": width, "height": 800})
    open_panel(page)
    names, undo = page.locator(".appointment h3"), page.get_by_role("button", name="Undo")

    def press(name: str, sign: Locator, number: int) -> None:
        box: Any = page.locator(f"#{name}-{job.pk}").bounding_box()
        point = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.click(*point)
        expect(sign).to_have_count(number)
        under = page.evaluate("([x, y]) => document.elementFromPoint(x, y).closest('[id]').id", point)
        assert (under, names.all_inner_texts()) == (f"{name}-{job.pk}", ["999", "1500"])

    skipped, paused = page.locator(".strip a[aria-label^=skipped]"), page.locator(".appointment.paused")
    for name, sign in (("skip", skipped), ("switch", paused)):
        press(name, sign, 1)
        undo.click()
        expect(sign).to_have_count(0)
    press("switch", paused, 1)
    press("switch", paused, 0)
    assert not RunRecord.objects.exists()
    assert CronJob.objects.get(pk=job.pk).enabled


def test_the_panel_hears_of_a_pause_elsewhere_and_a_toast_goes_by_itself(visitor: Visitor) -> None:
    session = visitor.person.session()
    job, page = automation(session), visitor.conversation(session)
    page.clock.install()
    open_panel(page)
    update_job(job.pk, {"enabled": False})
    page.clock.run_for(10_000)
    page.get_by_role("button", name="Resume Morning news").click()
    toast = page.locator("#toast > *")
    expect(toast).to_have_count(1)
    page.clock.run_for(8_000)
    expect(toast).to_have_count(0)


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
    size: Any = phone.locator(".to-come").first.bounding_box()
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
