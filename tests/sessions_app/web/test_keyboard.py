"""Conversations by keyboard alone: the focus is always visible, and goes to a sensible place when its own goes away."""

import re

import pytest
from playwright.sync_api import Page, expect

from sessions_app.models import Message, Session, SessionState
from tests.admin.conftest import make_job
from tests.agent_core.planner.plans import says
from tests.browser import IN_BROWSER, Visitor, say
from tests.inside import call, makes
from tests.keyboard import check_visible, expect_focus, go_to, press, write
from tests.plugins import calls

pytestmark = [*IN_BROWSER, pytest.mark.full]


def box_of(page: Page) -> None:
    expect_focus(page.get_by_label("Message", exact=True))


def type_message(page: Page, text: str) -> None:
    box_of(page)
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    box_of(page)


def test_a_message_and_a_command_are_sent_by_keyboard(visitor: Visitor) -> None:
    page = visitor.conversation()
    box_of(page)
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    type_message(page, "two")
    expect(page.locator(".entry.person .said").first).to_have_text(re.compile("one\ntwo"))
    page.keyboard.type("/")
    expect(page.get_by_role("option", name="/clear")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("option", name="/schedule")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()
    box_of(page)
    page.keyboard.type("cl")
    page.keyboard.press("Enter")
    expect(page.locator(".entry.agent:not(.live) .text").last).to_contain_text("Conversation cleared")
    box_of(page)
    write(page.get_by_label("Message", exact=True), "three")
    press(page.get_by_role("button", name="Send"), "Space")
    expect(page.locator(".entry.person:not(.pending) .said").last).to_have_text("three")
    box_of(page)


def test_a_command_opens_a_form_and_escape_leads_back(visitor: Visitor) -> None:
    page = visitor.conversation()
    box_of(page)
    page.keyboard.type("/later")
    page.keyboard.press("Enter")  # the focus goes on to the form, at once
    expect_focus(page.get_by_label("Text", exact=True))
    press(page.get_by_role("link", name="← Appointments"), back="Shift+Tab")
    expect_focus(page.get_by_role("heading", name="Appointments"))
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect_focus(page.get_by_role("link", name="Appointments"))


def test_an_answer_is_stopped_by_keyboard(visitor: Visitor) -> None:
    page = visitor.conversation()
    place = page.locator("#composer").bounding_box()
    type_message(page, "[[pause:k]] [[reply:One and two and three and four]]")
    expect(page.locator("#live .text")).to_contain_text("One")
    assert page.locator("#composer").bounding_box() == place
    stop = page.get_by_role("button", name="Stop")
    go_to(stop)
    with page.expect_response(re.compile("/updates/")):  # replaces the button
        page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
    expect_focus(stop)
    page.keyboard.press("Enter")
    expect(page.locator(".chip")).to_have_text(["Stopped"])
    expect(stop).to_have_count(0)
    box_of(page)


def test_the_menu_renames_and_archives_by_keyboard(visitor: Visitor) -> None:
    session = visitor.person.session()
    page, other = visitor.conversation(session), visitor.conversation(session)
    more = page.get_by_role("button", name="More")
    press(more, back="Shift+Tab")
    page.keyboard.press("Tab")
    expect_focus(page.get_by_label("Title", exact=True))
    page.keyboard.press("Escape")
    expect_focus(more)
    page.keyboard.press("Enter")
    write(page.get_by_label("Title", exact=True), "Garden")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Garden")
    box_of(page)
    press(more, back="Shift+Tab")
    press(page.locator("summary", has_text="Archive…"))
    press(page.get_by_role("button", name="Archive it"))
    expect(page.get_by_text("This conversation is archived")).to_be_visible()
    expect_focus(page.locator("#scroll"))  # there is no box to write in
    assert Session.objects.get(pk=session.pk).state == SessionState.ARCHIVED
    expect(other.get_by_text("This conversation is archived")).to_be_visible()
    expect(other.get_by_label("Message", exact=True)).to_have_count(0)
    expect(other.locator(".conversation[aria-current] .preview")).to_contain_text("Archived")
    press(other.get_by_role("button", name="Unarchive it"))
    for each in (page, other):
        box_of(each)
        expect(each.locator(".conversation[aria-current] .preview")).not_to_contain_text("Archived")
    assert Session.objects.get(pk=session.pk).state == SessionState.OPEN


def test_a_conversation_is_deleted_in_two_steps_by_keyboard(visitor: Visitor) -> None:
    session, kept = visitor.person.session(title="Old"), visitor.person.session(title="Kept")
    make_job(session, name="Morning news")
    page = visitor.conversation(session)
    press(page.get_by_role("button", name="More"), back="Shift+Tab")
    press(page.get_by_role("link", name="Delete…"))
    expect_focus(page.get_by_role("link", name="Keep it"))  # Enter alone deletes nothing
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Old")
    press(page.get_by_role("button", name="More"), back="Shift+Tab")
    press(page.get_by_role("link", name="Delete…"))
    expect_focus(page.get_by_role("link", name="Keep it"))
    expect(page.get_by_text("Morning news")).to_be_visible()
    press(page.get_by_role("button", name="Delete"), back="Shift+Tab")
    expect(page.locator("#title")).to_have_text("Kept")
    box_of(page)
    assert list(Session.objects.filter(pk__in=[session.pk, kept.pk])) == [kept]


def test_a_conversation_is_searched_and_opened_by_keyboard(visitor: Visitor) -> None:
    for title in ("Boats", "Trains", "Planes"):
        visitor.person.session(title=title)
    page = visitor.conversation(visitor.person.session(title="This"))
    page.keyboard.press("Escape")
    go_to(page.locator("#search"), "Shift+Tab")
    page.keyboard.type("train")
    expect(page.locator(".conversation")).to_have_count(1)
    expect_focus(page.locator("#search"))
    page.keyboard.press("Tab")
    trains = page.locator(".conversation", has_text="Trains")
    expect_focus(trains)
    with page.expect_response(re.compile(r"/sessions/\?")):  # replaces the list
        page.evaluate("document.body.dispatchEvent(new Event('list-changed'))")
    expect_focus(trains)
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Trains")
    box_of(page)


def test_the_first_tab_skips_the_list(visitor: Visitor) -> None:
    page = visitor.window()
    page.goto(f"/sessions/{visitor.person.session().pk}/deleting/")
    page.locator("body").evaluate("each => { document.activeElement.blur(); each.focus(); }")
    go_to(page.get_by_role("link", name="Skip to the conversation"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect_focus(page.locator("#main"))
    page.keyboard.press("Tab")
    check_visible(page)
    assert page.evaluate("document.getElementById('main').contains(document.activeElement)")


def test_earlier_messages_are_shown_by_keyboard(visitor: Visitor) -> None:
    session = visitor.person.session(title="Long")
    rows = (Message(session=session, seq=n, role="user", content=f"number {n}") for n in range(1, 121))
    Message.objects.bulk_create(rows)
    Session.objects.filter(pk=session.pk).update(last_seq=120)
    page = visitor.conversation(session)
    expect(page.locator(".entry")).to_have_count(50)
    expect(page.locator(".entry").last).to_be_in_viewport()
    page.locator(".skip").focus()  # where the keyboard begins on a page
    page.keyboard.press("Enter")
    go_to(page.locator("#scroll"))
    page.keyboard.press("Home")
    expect(page.locator(".entry")).to_have_count(100)
    expect_focus(page.locator("#scroll"))
    earlier = page.get_by_role("link", name="Show earlier messages")
    page.keyboard.press("Tab")  # to the link, which comes into view, which loads the rest and takes it away
    expect(page.locator(".entry")).to_have_count(120)
    expect(earlier).to_have_count(0)
    page.wait_for_function("document.activeElement !== document.body")
    check_visible(page)


def refresh(page: Page, name: str, path: str) -> None:
    """As when an event comes. Returns when the page has asked the server and got its answer."""
    with page.expect_response(lambda answer: path in answer.url) as answered:
        page.evaluate(f"document.body.dispatchEvent(new Event('{name}'))")
    answered.value.finished()
    page.evaluate("() => new Promise((done) => setTimeout(done, 50))")  # htmx swaps in tasks of its own


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_button_is_pressed_although_its_question_is_shown_anew(visitor: Visitor, by: str) -> None:
    visitor.model.answer_with(makes(call("erase", name="kept")))
    page = visitor.conversation()
    say(page, "erase the disk")
    question = page.get_by_role("region", name="A question for you")
    refuse = question.get_by_role("button", name="Refuse")
    go_to(refuse, "Shift+Tab")
    visitor.model.answer_with(says("As you like."))
    if by == "mouse":
        refuse.hover()
        page.mouse.down()
        refresh(page, "refresh", "/updates/")
        page.mouse.up()
    else:
        page.keyboard.down("Space")
        refresh(page, "refresh", "/updates/")
        page.keyboard.up("Space")
    expect(question).to_have_count(0)
    expect_focus(page.get_by_label("Message", exact=True))
    expect(page.locator(".entry.agent:not(.live) .text").last).to_have_text("As you like.")
    assert calls(visitor.site.fleet.folder, "kept") == 0


def test_what_changes_during_a_press_is_shown_after_it(visitor: Visitor) -> None:
    other = visitor.person.session(title="The other one")
    page = visitor.conversation()
    link = page.locator(f"#to-{other.pk}")
    link.hover()
    page.mouse.down()
    other.title = "Its new name"
    other.save()
    refresh(page, "list-changed", "/sessions/?")
    expect(link).to_contain_text("The other one")
    page.mouse.move(1000, 10)  # a press that becomes no click
    page.mouse.up()
    expect(link).to_contain_text("Its new name")
