"""The page of an agent in a real browser: documents, what applying HEARTBEAT.md does, where its links lead."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from playwright.sync_api import Locator, Page, expect

from automations.models import CronJob
from sessions_app.models import Document
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


def test_heartbeat_md_is_checked_before_it_is_applied(visitor: Visitor) -> None:
    page = opened(visitor, document("HEARTBEAT.md"))
    edit(page, listing({"title": "Water the plants", "schedule": "0 9 * * 1"}))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".changes li")).to_have_text(["added Water the plants 0 9 * * 1"])
    assert serious(page) == []
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
def test_the_name_in_a_conversation_leads_to_the_page(visitor: Visitor) -> None:
    page = visitor.conversation()
    page.locator(".bar").get_by_role("link", name="demo").click()
    expect(page.get_by_role("heading", name="demo", level=1)).to_be_visible()
    expect(page.locator("#model-state .chip")).to_have_text("Not set up")  # this web process has no key
    assert "test-key" not in page.content()
    page.get_by_role("link", name="Heartbeat", exact=True).click()
    expect(page.get_by_role("heading", name="Heartbeat")).to_be_in_viewport()
