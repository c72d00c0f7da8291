"""The pages as a whole: accessibility, phones, restarts, and answers of the server that come late or never.

Nothing that was typed is lost, also where the conversation was deleted elsewhere. At the end: the page of an agent.
"""

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now
from playwright.sync_api import Page, Request, Route, expect

from sessions_app.models import Delivery, Message, Session, Turn
from sessions_app.sessions.delete import delete_session
from tests.api.conftest import start_web
from tests.browser import ENVIRON, IN_BROWSER, Visitor, say, serious
from tests.fleet import until

pytestmark = [*IN_BROWSER, pytest.mark.full]
MOST_BYTES = 120_000  # of the first page, compressed


def add_messages(session: Session, *texts: str) -> None:
    """Store answers as a commit would."""
    texts_by_number = enumerate(texts, session.last_seq + 1)
    rows = [Message(session=session, seq=n, role="assistant", content=text) for n, text in texts_by_number]
    Message.objects.bulk_create(rows)
    session.last_seq += len(texts)
    session.save(update_fields=["last_seq"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
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
    page.get_by_text("Archive…").click()
    assert page.locator("#archiving .note").evaluate("(each) => each.scrollWidth <= each.clientWidth")
    assert serious(page) == []


def test_the_first_page_is_light_with_its_font(visitor: Visitor) -> None:
    page = visitor.conversation()
    page.evaluate("document.fonts.ready")
    assert page.evaluate("[...document.fonts].map((each) => each.status)") == ["loaded"]
    sizes = page.evaluate("performance.getEntries().map((each) => [each.name, each.encodedBodySize ?? 0])")
    assert 50_000 < sum(size for _, size in sizes) <= MOST_BYTES, sizes


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
    assert page.evaluate("parseFloat(getComputedStyle(document.getElementById('box')).fontSize)") >= 16
    page.get_by_role("button", name="Conversations").click()
    expect(page.locator("#sidebar")).to_be_visible()
    page.locator(".conversation", has_text="On the road").click()
    expect(page.locator("#sidebar")).to_be_hidden()
    say(page, "hello")
    expect(page.locator(".entry.agent:not(.live)")).to_have_count(4)


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


def test_a_page_hears_of_another_conversation_and_its_worker_shows_pushes(visitor: Visitor) -> None:
    """The browser of the tests shows no notifications, so its own part is replaced: what it is asked to show."""
    session = visitor.person.session(title="The list")
    page = visitor.window()
    page.add_init_script(
        "window.shown = []; window.Notification = class { static permission = 'granted';"
        " constructor(title, more) { window.shown.push([title, more.body, more.tag]); }"
        " static requestPermission() { window.asked = true; } };"
    )
    page.clock.install()
    page.goto("/account/")
    plain = page.locator("link[rel=icon]").get_attribute("href")
    assert not page.evaluate("window.asked"), "nobody is asked before they click"
    page.get_by_label("Open pages show notifications").check()
    assert page.evaluate("window.asked")
    page.locator("#notifications ~ form").get_by_role("button", name="Save").click()
    expect(page.locator(".saved")).to_be_visible()
    add_messages(session, "New words.")
    told = {"type": "notice", "data": {"told": "answer", "seq": 1}}
    Delivery.objects.create(
        session=session, session_key=session.key, channel="page", idempotency_key="k", event=told, state="sent",
        ended_at=Now(),
    )  # fmt: skip
    for _ in range(2):
        page.clock.fast_forward(10_000)
        expect(page).to_have_title(re.compile(r"^\(1\) Your account"))
        expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("^data:image/svg"))
        assert page.evaluate("window.shown") == [["The list", "Something new", str(session.pk)]], "once"
    page.goto(f"/sessions/{session.pk}/")
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", str(plain))
    with page.context.expect_event("serviceworker") as started:
        page.evaluate(
            "navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready)"
        )
    started.value.evaluate(
        "() => { self.shown = []; ServiceWorkerRegistration.prototype.showNotification ="
        " async (title, more) => { self.shown.push([title, more.body, more.tag]); }; }"
    )
    chromium, registered = page.context.new_cdp_session(page), list[Any]()
    chromium.on(
        "ServiceWorker.workerRegistrationUpdated", lambda found: registered.extend(found["registrations"])
    )
    chromium.send("ServiceWorker.enable")
    until(lambda: bool(page.title() and registered), 10, "the worker is known")
    where = {"origin": visitor.site.url, "registrationId": registered[0]["registrationId"]}
    pushed = {"session": "s", "title": "The list", "body": "Something new"}
    chromium.send("ServiceWorker.deliverPushMessage", where | {"data": json.dumps(pushed)})
    until(lambda: bool(started.value.evaluate("self.shown.length")), 10, "the push is shown")
    assert started.value.evaluate("self.shown") == [["The list", "Something new", "s"]]


def test_without_scripts_messages_are_sent_and_shown(visitor: Visitor) -> None:
    session = visitor.person.session()
    page = visitor.conversation(session, java_script_enabled=False)
    page.get_by_label("Message", exact=True).fill("hello")
    page.get_by_label("Send").click()
    expect(page.locator(".entry.person .said")).to_have_text("hello")


def test_a_window_whose_sign_in_ended_asks_for_it_again(visitor: Visitor) -> None:
    page = visitor.conversation()
    expect(page.locator("#connection")).to_have_text("")
    page.context.clear_cookies()
    page.get_by_label("Search in titles and messages").fill("hello")
    expect(page.get_by_label("Password")).to_be_visible()
    expect(page.locator("#conversations")).to_have_count(0)


def test_no_page_is_taller_than_its_window(visitor: Visitor) -> None:
    rows = [visitor.person.session(title=f"Talk {number}") for number in range(30)]
    Session.objects.filter(pk__in=[row.pk for row in rows]).update(last_seq=1)  # unread
    page = visitor.window(viewport={"width": 1280, "height": 700})
    for address in (
        f"/agents/{visitor.person.agent.name}/#spending",
        "/account/",
        f"/sessions/{rows[0].pk}/",
    ):
        page.goto(address)
        expect(page.locator(".conversation")).not_to_have_count(0)
        assert page.evaluate("document.scrollingElement.scrollHeight <= innerHeight"), address
        assert page.evaluate("document.querySelector('.bar').getBoundingClientRect().top") == 0, address
        expect(page).to_have_title(re.compile(r"^\((29|30)\) "))  # of them are new


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


def test_the_name_in_a_conversation_leads_to_the_page(visitor: Visitor) -> None:
    page = visitor.conversation()
    page.locator(".bar").get_by_role("link", name="demo").click()
    expect(page.get_by_role("heading", name="demo", level=1)).to_be_visible()
    expect(page.locator("#model-state .chip")).to_have_text("Not set up")  # this web process has no key
    assert "test-key" not in page.content()
    page.get_by_role("link", name="Heartbeat", exact=True).click()
    expect(page.get_by_role("heading", name="Heartbeat")).to_be_in_viewport()
