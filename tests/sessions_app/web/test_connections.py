"""Connections on the page of an agent, in a real browser; the key is shown nowhere."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from sessions_app.connections.edit import add_connection
from sessions_app.models import Agent, Connection
from tests.browser import NEEDS_CHROMIUM, Visitor, serious
from tests.conftest import new_person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, NEEDS_CHROMIUM]
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
    part.get_by_label("Allowed models").first.fill("small")
    part.get_by_role("button", name="Save").click()
    expect(part.get_by_role("status")).to_contain_text("Saved")
    assert Connection.objects.get().allowed_models == ["small"]
    Agent.objects.filter(pk=visitor.person.agent.pk).update(model="offline")
    part.get_by_text("Delete work").first.click()
    part.get_by_role("button", name="Delete work").click()
    expect(part.locator("li")).to_have_count(0)
    assert not Connection.objects.exists()


def test_another_address_needs_the_key_again(visitor: Visitor) -> None:
    given = {"provider": "openai-chat", "base_url": "https://models.example.org/v1", "secret": KEY}
    add_connection(visitor.person.user, "work", given)
    page = opened(visitor)
    part = page.locator("#connections")
    part.get_by_text("Change work").click()
    part.get_by_label("Address").first.fill("https://elsewhere.example.org/v1")
    part.get_by_role("button", name="Save").click()
    expect(part.get_by_role("alert")).to_contain_text("Enter the secret again")
    expect(part.get_by_label("Address").first).to_have_value("https://elsewhere.example.org/v1")
    assert Connection.objects.get().base_url == "https://models.example.org/v1"


def test_only_own_connections_are_changed(visitor: Visitor) -> None:
    given = {"provider": "openai-chat", "secret": KEY}
    add_connection(new_person("eve").user, "hers", given)
    add_connection(None, "shared", given)
    page = opened(visitor)
    lines = page.locator("#connections li")
    expect(lines).to_have_count(1)
    expect(lines.locator(".chip")).to_contain_text("The server")
    expect(lines.get_by_text("Change")).to_have_count(0)
    send = """async (path) => {
        const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
        const body = new URLSearchParams({ provider: "openai-chat", csrfmiddlewaretoken: token });
        return (await fetch(path, { method: "POST", body })).status;
    }"""
    for name in ("hers", "shared"):
        for verb in ("", "delete/"):
            assert page.evaluate(send, f"{PAGE}connections/{name}/{verb}") == 404
    assert page.evaluate(send, f"{PAGE}connections/hers/test/") == 404
    assert Connection.objects.count() == 2
