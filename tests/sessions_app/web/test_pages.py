"""The pages as a whole: accessibility, hostile text, phones, restarts, long histories, deletes."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from sessions_app.models import Message, Session
from tests.api.conftest import start_web
from tests.browser import ENVIRON, IN_BROWSER, Visitor, say, serious

pytestmark = IN_BROWSER


def add_messages(session: Session, *texts: str) -> None:
    """Store answers as a commit would."""
    texts_by_number = enumerate(texts, session.last_seq + 1)
    rows = [Message(session=session, seq=n, role="assistant", content=text) for n, text in texts_by_number]
    Message.objects.bulk_create(rows)
    session.last_seq += len(texts)
    session.save(update_fields=["last_seq"])


@pytest.mark.long("axe reads each main page in a browser")
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.full)])
def test_axe_finds_nothing_serious(visitor: Visitor, scheme: str) -> None:
    """In states of the main pages; `tests/injection/test_every_page.py` has every page as it opens."""
    session = visitor.person.session(title="A talk")
    add_messages(
        session, "# Title\n\n`code`, [a link](https://example.com)\n\n```python\nx = 'text'  # why\n```"
    )
    page = visitor.conversation(session, color_scheme=scheme)
    say(page, "[[hold:a]] hello")
    expect(page.locator("#live")).to_be_visible()
    assert serious(page) == []
    visitor.model.release("a")
    page.get_by_role("button", name="More").click()
    assert serious(page) == []
    for address in (f"/sessions/{session.pk}/appointments/", f"/agents/{visitor.person.agent.name}/"):
        page.goto(address)
        assert serious(page) == []


@pytest.mark.full
def test_a_phone_shows_one_column_and_opens_the_list(visitor: Visitor) -> None:
    session = visitor.person.session(title="On the road")
    add_messages(
        session,
        "word " * 50 + "x" * 300,
        "```\n" + "wide " * 60 + "\n```",
        "|a|b|\n|-|-|\n|" + "c" * 90 + "|d|",
    )
    page = visitor.conversation(session, viewport={"width": 390, "height": 780}, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.locator("#sidebar")).to_be_hidden()
    page.get_by_role("button", name="Conversations").click()
    expect(page.locator("#sidebar")).to_be_visible()
    page.locator(".conversation", has_text="On the road").click()
    expect(page.locator("#sidebar")).to_be_hidden()
    say(page, "hello")
    expect(page.locator(".entry.agent:not(.live)")).to_have_count(4)


@pytest.mark.full
def test_a_window_goes_on_after_a_restart_of_the_server(visitor: Visitor) -> None:
    page = visitor.conversation()
    say(page, "[[hold:r]] hello")
    expect(page.locator("#live")).to_be_visible()
    port = visitor.site.url.rpartition(":")[2]
    visitor.site.web.kill()
    expect(page.locator("#connection")).to_have_text("Reconnecting…")
    visitor.model.release("r")
    _, visitor.site.web = start_web(visitor.site.fleet.folder, PORT=port, **ENVIRON)
    visitor.site.fleet.processes.append(visitor.site.web)
    expect(page.locator(".entry.agent:not(.live)")).to_have_count(1, timeout=20_000)
    expect(page.locator("#connection")).to_have_text("")


@pytest.mark.full
def test_a_window_says_that_it_is_offline_and_goes_on(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = visitor.conversation(session)
    page.context.set_offline(True)
    expect(page.locator("#connection")).to_have_text("You are offline")
    page.get_by_label("Message", exact=True).fill("hello")
    page.keyboard.press("Enter")
    expect(page.locator("#alert")).to_contain_text("Your text is kept")
    expect(page.get_by_label("Message", exact=True)).to_have_value("hello")
    add_messages(session, "It came meanwhile.")
    page.context.set_offline(False)
    expect(page.locator("#connection")).to_have_text("")
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.locator(".entry.person .said")).to_have_text("hello")
    expect(page.locator(".entry.agent .text").first).to_have_text("It came meanwhile.")


@pytest.mark.full
def test_without_scripts_messages_are_sent_and_shown(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = visitor.conversation(session, java_script_enabled=False)
    page.get_by_label("Message", exact=True).fill("hello")
    page.get_by_label("Send").click()
    expect(page.locator(".entry.person .said")).to_have_text("hello")


@pytest.mark.full
def test_a_window_whose_sign_in_ended_asks_for_it_again(visitor: Visitor) -> None:
    page = visitor.conversation()
    expect(page.locator("#connection")).to_have_text("")
    page.context.clear_cookies()
    page.get_by_label("Search in titles and messages").fill("hello")
    expect(page.get_by_label("Password")).to_be_visible()
    expect(page.locator("#conversations")).to_have_count(0)
