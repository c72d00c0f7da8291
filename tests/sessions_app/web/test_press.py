"""What the server sends in the middle of a press takes no click from the person, by mouse or by keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.agent_core.planner.plans import says
from tests.browser import IN_BROWSER, Visitor, say
from tests.inside import call, makes
from tests.keyboard import expect_focus, go_to
from tests.plugins import calls

pytestmark = [*IN_BROWSER, pytest.mark.full]


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
