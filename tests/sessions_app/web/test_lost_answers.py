"""A window whose server answers late or never, or whose conversation was deleted elsewhere: nothing typed is lost."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Request, Route, expect

from sessions_app.models import Turn
from sessions_app.sessions.delete import delete_session
from tests.browser import IN_BROWSER, Visitor, say

pytestmark = [*IN_BROWSER, pytest.mark.full]
SENDING = re.compile("/messages/$")


def once(page: Page, handle: Callable[[Route, Request], None]) -> None:
    """Treat the next message that the page sends like this."""
    page.route(SENDING, handle, times=1)


def test_what_is_typed_while_a_message_is_sent_stays(visitor: Visitor) -> None:
    page = visitor.conversation()
    held: list[Route] = []
    once(page, lambda route, _: held.append(route))
    box = page.get_by_label("Message", exact=True)
    with page.expect_request(SENDING):
        box.fill("one")
        box.press("Enter")
    box.press_sequentially(" and two")
    held[0].continue_()
    expect(page.locator(".entry.person .said").first).to_have_text("one")
    expect(box).to_have_value("and two")
    page.reload()
    expect(box).to_have_value("and two")
    box.press("Enter")
    expect(page.locator(".entry.person .said").last).to_have_text("and two")
    page.reload()
    expect(box).to_have_value("")


@pytest.mark.parametrize("again", ["one", "two"])
def test_a_text_whose_answer_was_lost_is_sent_again_once(visitor: Visitor, again: str) -> None:
    def lose_the_answer(route: Route, _: Request) -> None:
        route.fetch()
        route.abort()

    page = visitor.conversation()
    once(page, lose_the_answer)
    box = page.get_by_label("Message", exact=True)
    box.fill("one")
    box.press("Enter")
    expect(page.locator("#alert")).to_contain_text("Your text is kept")
    if again != "one":
        box.fill(again)  # which makes it another message
    box.press("Enter")
    expect(box).to_have_value("")
    sent = list(dict.fromkeys(["one", again]))
    expect(page.locator(".entry.person:not(.pending) .said")).to_have_text(sent)
    assert Turn.objects.count() == len(sent)


def test_a_server_that_does_not_answer_is_named(visitor: Visitor) -> None:
    page = visitor.conversation()
    visitor.site.web.signal(signal.SIGSTOP)
    try:
        box = page.get_by_label("Message", exact=True)
        box.fill("one")
        box.press("Enter")
        expect(page.locator("#alert")).to_contain_text("The server does not answer. Your text is kept")
        expect(box).to_have_value("one")
    finally:
        visitor.site.web.signal(signal.SIGCONT)
    box.press("Enter")
    expect(page.locator(".entry.person .said")).to_have_text("one")
    expect(box).to_have_value("")
    assert Turn.objects.filter(content="one").count() == 1


def test_a_window_says_that_its_conversation_was_deleted_elsewhere(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = visitor.conversation(session)
    say(page, "hello")
    expect(page.locator(".entry.agent:not(.live)")).to_have_count(1)
    assert delete_session(session.pk).deleted
    expect(page.locator("#writing")).to_have_text("This conversation was deleted.")
    expect(page.locator("#connection")).to_have_text("")
    expect(page.locator(f"#to-{session.pk}")).to_have_count(0)
    expect(page.get_by_role("button", name="New conversation")).to_be_visible()


def test_a_button_works_at_the_moment_it_appears(visitor: Visitor) -> None:
    page = visitor.conversation()
    say(page, "[[hold:b]] first")
    expect(page.locator("#live")).to_be_visible()
    page.evaluate("""() => new MutationObserver((_, observer) => {
      const button = document.querySelector(".pending button");
      if (button) { observer.disconnect(); button.click(); }
    }).observe(document.getElementById("now"), { childList: true, subtree: true })""")
    with page.expect_request(re.compile("/stop/$")) as pressed:
        say(page, "/clear")
    assert (
        pressed.value.headers.get("hx-request") == "true"
    )  # not as without scripts, which loads the page again
    expect(page.locator(".entry.pending", has_text="/clear")).to_have_count(0)
    visitor.model.release("b")


def test_a_message_is_copied_where_the_browser_has_no_clipboard(visitor: Visitor) -> None:
    """As on pages that came by plain HTTP from another machine."""
    page = visitor.window()
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.goto(f"/sessions/{visitor.person.session().pk}/")
    say(page, "copy me")
    page.locator(".entry.person").hover()
    copy = page.locator(".entry.person").get_by_role("button", name="Copy the message")
    copy.click()
    expect(copy).to_be_focused()
    box = page.get_by_label("Message", exact=True)
    box.focus()
    page.keyboard.press("Control+V")
    expect(box).to_have_value("copy me")
