"""Connections on the page of an agent, in a real browser; the key is shown nowhere."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from sessions_app.models import Agent, Connection
from tests.browser import IN_BROWSER, Visitor, serious

pytestmark = [*IN_BROWSER, pytest.mark.full]
PAGE = "/agents/demo/"
KEY = "own-key-of-a-person-4711"


def opened(visitor: Visitor, **options: object) -> Page:
    page = visitor.window(**options)
    page.goto(PAGE)
    return page


def add(page: Page, name: str, address: str) -> None:
    part = page.locator("#connections")
    form = part.locator("details.add")
    if form.get_attribute("open") is None:
        form.locator("summary").click()
    form.get_by_label("Name").fill(name)
    form.get_by_label("API key").fill(KEY)
    form.get_by_label("Address").fill(address)
    form.get_by_label("Allowed models").fill("small, large")
    form.get_by_role("button", name="Add").click()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_connection_is_added_and_its_key_is_shown_nowhere(visitor: Visitor, *, scripts: bool) -> None:
    page = opened(visitor, java_script_enabled=scripts)
    add(page, "work", "https://models.example.org/v1")
    line = page.locator("#connections li")
    expect(line).to_contain_text("openai-chat · https://models.example.org/v1 · with a key · small, large")
    row = Connection.objects.get()
    assert (row.owner_id, row.allowed_models) == (visitor.person.user.pk, ["small", "large"])
    add(page, "work", "https://models.example.org/v1")
    expect(page.locator("#connections").get_by_role("alert")).to_contain_text("already a connection named")
    expect(page.locator("details.add").get_by_label("Address")).to_have_value("https://models.example.org/v1")
    assert KEY not in page.content()
    assert row.secret_ciphertext not in page.content()


def test_a_connection_is_used_tested_changed_and_deleted(visitor: Visitor) -> None:
    page = opened(visitor)
    add(page, "work", "https://models.invalid/v1")
    part = page.locator("#connections")
    expect(page.locator("#models option[value='work:small']")).to_have_count(1)
    part.get_by_role("button", name="Test work").click()
    expect(part.get_by_role("status")).to_contain_text("small did not answer:", timeout=40_000)
    expect(part.locator(".chip.failed")).to_have_text("Last call failed")
    assert serious(page) == []
    model = page.locator("#model")
    model.get_by_label("Model", exact=True).fill("work:small")
    model.get_by_role("button", name="Save").click()
    expect(model.get_by_role("status").first).to_contain_text("Saved")
    part.get_by_text("Delete work").first.click()
    part.get_by_role("button", name="Delete work").click()
    expect(part.get_by_role("alert")).to_contain_text("demo")  # an agent uses it
    part.get_by_text("Change work").click()
    elsewhere = "https://elsewhere.example.org/v1"
    part.get_by_label("Address").first.fill(elsewhere)
    part.get_by_role("button", name="Save").click()
    expect(part.get_by_role("alert")).to_contain_text("Enter the secret again")
    expect(part.get_by_label("Address").first).to_have_value(elsewhere)
    part.get_by_label("Address").first.fill("https://models.invalid/v1")
    part.get_by_label("Allowed models").first.fill("small")
    part.get_by_role("button", name="Save").click()
    expect(part.get_by_role("status")).to_contain_text("Saved")
    row = Connection.objects.get()
    assert (row.allowed_models, row.base_url) == (["small"], "https://models.invalid/v1")
    Agent.objects.filter(pk=visitor.person.agent.pk).update(model="offline")
    part.get_by_text("Delete work").first.click()
    part.get_by_role("button", name="Delete work").click()
    expect(part.locator("li")).to_have_count(0)
    assert not Connection.objects.exists()
