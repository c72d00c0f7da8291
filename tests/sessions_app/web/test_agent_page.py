"""The page of an agent in a real browser: documents, the heartbeat, tests of channels, hostile texts, phones."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from playwright.sync_api import Locator, Page, expect

from automations.models import CronJob
from sessions_app.agents.documents import put_document
from sessions_app.hooks.edit import NewHook, add_hook
from sessions_app.mailbox.updates import Mail, deposit
from sessions_app.memory.preferences import put_preference
from sessions_app.models import Agent, Delivery, Document, Session
from sessions_app.models.agent import DOCUMENTS
from tests.browser import IN_BROWSER, Visitor, serious

pytestmark = IN_BROWSER
PAGE = "/agents/demo/"


def document(name: str) -> str:
    return f"{PAGE}documents/{name}/"


def listing(*tasks: Mapping[str, object]) -> str:
    return f"My plans.\n\n```json\n{json.dumps({'version': 2, 'tasks': tasks})}\n```\n"


def opened(visitor: Visitor, path: str = PAGE, **options: object) -> Page:
    page = visitor.window(**options)
    page.goto(path)
    return page


def edit(page: Page, text: str) -> None:
    page.get_by_label("Text").fill(text)


def press(part: Page | Locator, button: str, said: str) -> None:
    """Press a button and wait until the part says this."""
    part.get_by_role("button", name=button).click()
    expect(part.get_by_role("status").first).to_contain_text(said)


def test_a_document_is_edited_and_restored(visitor: Visitor) -> None:
    page = opened(visitor, document("USER.md"))
    for text in ("I live in Berlin.", "I live in Hamburg."):
        edit(page, text)
        press(page, "Save", "Saved")
    page.get_by_role("link", name="Restore revision 1").click()
    expect(page.get_by_label("Text")).to_have_value("I live in Berlin.")
    press(page, "Save", "Saved")
    row = Document.objects.get(name="USER.md")
    assert (row.content, row.revision) == ("I live in Berlin.", 3)
    page.goto(PAGE)
    expect(page.locator("#documents li", has_text="USER.md")).to_contain_text("17 characters · revision 3")


@pytest.mark.full
def test_two_windows_cannot_overwrite_each_other_unseen(visitor: Visitor) -> None:
    one, other = (opened(visitor, document("USER.md")) for _ in range(2))
    edit(one, "from one")
    edit(other, "from the other")
    press(one, "Save", "Saved")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_label("Your text")).to_have_value("from the other")
    expect(other.get_by_label("Stored now")).to_have_value("from one")
    assert Document.objects.get(name="USER.md").content == "from one"
    press(other, "Save", "Saved")
    assert Document.objects.get(name="USER.md").content == "from the other"


def test_heartbeat_md_is_checked_before_it_is_applied(visitor: Visitor) -> None:
    page = opened(visitor, document("HEARTBEAT.md"))
    edit(page, listing({"title": "Water the plants", "schedule": "0 9 * * 1"}))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".changes li")).to_have_text(["added Water the plants 0 9 * * 1"])
    assert not CronJob.objects.filter(name="Water the plants").exists()
    press(page, "Apply", "Applied")
    job = CronJob.objects.get(name="Water the plants")
    edit(
        page, listing({"id": job.pk, "title": "Water the plants", "schedule": "0 8 * * 1"}, {"title": "New"})
    )
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".changes li")).to_have_text(["changed Water the plants schedule", "added New once"])
    edit(page, listing({"title": "New"}))  # another text than the one that was checked
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".changes li")).to_have_text(["disabled Water the plants", "added New once"])
    assert not CronJob.objects.filter(name="New").exists()
    press(page, "Apply", "Applied")
    assert CronJob.objects.filter(name="New").exists()
    assert not CronJob.objects.get(pk=job.pk).enabled


@pytest.mark.full
def test_a_broken_heartbeat_md_names_the_place_and_is_kept(visitor: Visitor) -> None:
    page = opened(visitor, document("HEARTBEAT.md"))
    broken = 'Prose.\n\n```json\n{"tasks": [\n  {"title": "A"\n]}\n```\n'
    edit(page, broken)
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert").first).to_contain_text("line 6, column 1")
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    expect(page.get_by_label("Text")).to_have_value(broken)
    assert not Document.objects.filter(name="HEARTBEAT.md").exists()


@pytest.mark.full
def test_the_heartbeat_is_switched_and_timed(visitor: Visitor) -> None:
    page = opened(visitor)
    part = page.locator("#heartbeat")
    part.get_by_label("Heartbeat on").uncheck()
    part.get_by_label("Every").fill("2")
    part.get_by_label("Unit").select_option("hours")
    part.get_by_label("From hour").fill("22")
    part.get_by_label("To hour").fill("6")
    press(part, "Save", "Saved")
    heartbeat = Agent.objects.get(pk=visitor.person.agent.pk).heartbeat
    assert heartbeat["enabled"] is False
    assert heartbeat["interval_seconds"] == 7200
    assert heartbeat["active_hours"] == [22, 6]
    # the other sections of the same window know of the change
    page.locator("#model").get_by_label("Time zone").fill("Europe/Berlin")
    press(page.locator("#model"), "Save", "Saved")
    expect(page.locator("#about")).to_contain_text("Europe/Berlin")
    part.get_by_label("To hour").fill("25")
    part.get_by_role("button", name="Save").click()
    expect(part.get_by_role("alert")).to_contain_text("two hours from 0 to 24")
    expect(part.get_by_label("To hour")).to_have_value("25")


@pytest.mark.full
def test_a_changed_agent_keeps_what_was_typed(visitor: Visitor) -> None:
    page = opened(visitor)
    Agent.objects.filter(pk=visitor.person.agent.pk).update(timezone="Asia/Tokyo", revision=7)
    part = page.locator("#model")
    part.get_by_label("Time zone").fill("Europe/Berlin")
    part.get_by_role("button", name="Save").click()
    expect(part.get_by_role("alert")).to_contain_text("Asia/Tokyo")
    expect(part.get_by_label("Time zone")).to_have_value("Europe/Berlin")
    press(part, "Save", "Saved")
    assert Agent.objects.get(pk=visitor.person.agent.pk).timezone == "Europe/Berlin"


@pytest.mark.full
@pytest.mark.usefixtures("telegram")
def test_a_test_message_shows_the_state_of_its_delivery(visitor: Visitor, beat: None) -> None:
    session = visitor.person.session(channel="telegram", address="42", title="Phone")
    page = opened(visitor)
    part = page.locator("#channels li", has_text="Phone")
    press(part, "Send a test", "Test message: sent")
    delivery = Delivery.objects.get(session=session)
    assert (delivery.state, delivery.address) == ("sent", "42")
    sent = visitor.site.fleet.folder / "telegram.sent"
    assert "This is a test message" in sent.read_text()
    part.get_by_role("button", name="Send a test").click()
    expect(page.locator("#alert")).to_contain_text("try again in")
    assert Delivery.objects.filter(session=session).count() == 1


@pytest.mark.full
def test_the_name_in_a_conversation_leads_to_the_page(visitor: Visitor) -> None:
    page = visitor.conversation()
    page.locator(".bar").get_by_role("link", name="demo").click()
    expect(page.get_by_role("heading", name="demo", level=1)).to_be_visible()
    expect(page.locator("#model-state .chip")).to_have_text("Not set up")  # this web process has no key
    assert "test-key" not in page.content()
    page.get_by_role("link", name="Heartbeat", exact=True).click()
    expect(page.get_by_role("heading", name="Heartbeat")).to_be_in_viewport()


def fill_with(visitor: Visitor, text: str) -> None:
    """Put the text into everything of the agent that its page shows."""
    agent = visitor.person.agent
    for name in DOCUMENTS:
        put_document(agent.pk, name, text)
        put_document(agent.pk, name, text)  # so that there is an older revision
    put_preference(agent, visitor.person.user.pk, text)
    primary = Session.objects.get(agent=agent, type="primary")
    deposit(primary.pk, Mail(event_type="result", summary=text[:200], detail=text))
    add_hook(NewHook(agent_id=agent.pk, name=text[:64]))
    visitor.person.session(channel="telegram", address=text[:200], title=text[:200])
    servers = {text: {"url": "https://tools.example.org/mcp", "trusted": False}}
    Agent.objects.filter(pk=agent.pk).update(mcp_servers=servers, allow_tools=[text])


@pytest.mark.full
@pytest.mark.usefixtures("telegram")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_needs_no_sideways_scroll(visitor: Visitor, scheme: str) -> None:
    fill_with(visitor, "A text " + "x" * 300)
    page = opened(visitor, color_scheme=scheme)
    expect(page.locator("#model-state .chip")).to_be_visible()
    assert serious(page) == []
    page.goto(document("HEARTBEAT.md"))
    edit(page, listing({"title": "Water the plants"}))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".changes li")).to_have_count(1)
    assert serious(page) == []
    page.goto(document("USER.md"))
    put_document(visitor.person.agent.pk, "USER.md", "another")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Stored now")).to_be_visible()
    assert serious(page) == []
    phone = opened(visitor, viewport={"width": 390, "height": 780}, has_touch=True)
    for path in (PAGE, document("HEARTBEAT.md"), document("USER.md")):
        phone.goto(path)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390
        assert phone.evaluate("document.querySelector('.scroll').scrollWidth") <= 390
