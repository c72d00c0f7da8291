"""What a model sends while a window is open: text, tool calls, plans, questions, errors. It is told over real HTTP."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from agent_core.llm.protocol import ModelReply
from agent_core.types import ToolCall
from tests.browser import IN_BROWSER, Visitor, say
from tests.injection.corpus import BLOCKS, LINES, RAN
from tests.injection.watch import Watched, window

pytestmark = [*IN_BROWSER, pytest.mark.rule("10.5")]
EVERYTHING = "\n\n".join([*LINES, *BLOCKS])
ONE_LINE = " ".join(" ".join(LINES).split())
# a tool of the tests makes a file of this name
FOR_A_FILE = " ".join(each for each in ONE_LINE.split() if "/" not in each)[:120]
ALLOWED = [
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote"),
    *("ul", "ol", "li", "a", "span", "div"),
    *("h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "button"),
]


def talk(visitor: Visitor) -> tuple[Watched, Page]:
    """A new conversation in a window under watch."""
    watched = window(visitor, visitor.person.user)
    watched.open(f"/sessions/{visitor.person.session().pk}/")
    return watched, watched.page


def unwanted(page: Page) -> list[str]:
    """Elements and attributes in answers that markdown cannot make."""
    found: list[str] = page.evaluate(
        """(allowed) => [...document.querySelectorAll(".entry .text *")].flatMap((each) => [
            ...(allowed.includes(each.localName) ? [] : [each.localName]),
            ...[...each.attributes].map(({ name }) => name).filter((name) =>
              !["href", "title", "rel", "target", "start", "class", "data-copy", "type", "aria-label"].includes(name)
              && !(name === "tabindex" && each.localName === "table")),
        ])""",
        ALLOWED,
    )
    return found


def test_an_answer_is_text_while_it_is_written_and_afterwards(visitor: Visitor) -> None:
    watched, page = talk(visitor)
    visitor.model.answer_with(ModelReply(text=EVERYTHING))
    say(page, f"[[pause:a]] {ONE_LINE}")
    expect(page.locator("#live .text")).not_to_be_empty()
    watched.look()
    visitor.model.release("a")
    answer = page.locator(".entry.agent:not(.live) .text").last
    expect(answer).to_contain_text(LINES[1])
    for line in LINES:
        if not line.startswith(("[", "<http", "\u2028")):  # which markdown shows as links and as its entity
            expect(answer).to_contain_text(line)
    watched.look()
    assert unwanted(page) == []
    page.reload()
    watched.look()
    assert unwanted(page) == []
    assert watched.faults == []


@pytest.mark.full
def test_a_tool_call_is_text_with_its_name_arguments_and_result(visitor: Visitor) -> None:
    watched, page = talk(visitor)
    arguments = {"name": FOR_A_FILE, ONE_LINE: ONE_LINE, "items": LINES[0]}
    visitor.model.answer_with(
        ModelReply(
            text=EVERYTHING,
            calls=(
                ToolCall(id="c1", name="count", arguments=arguments),
                ToolCall(id="c2", name="'\"><img src=x onerror=__ran=1>", arguments={LINES[0]: LINES[1]}),
            ),
        ),
        ModelReply(text="It is done."),
    )
    say(page, "[[pause:b]] count")
    expect(page.locator("#live .text")).not_to_be_empty()
    watched.look()
    visitor.model.release("b")
    expect(page.locator(".entry.agent:not(.live) .text").last).to_contain_text("It is done.")
    page.locator(".entry details.calls > summary").click()
    for each in page.locator(".entry details.call > summary").all():
        each.click()
    watched.look()
    assert watched.shows(f"counted {FOR_A_FILE}")
    assert watched.faults == []


@pytest.mark.full
def test_a_refusal_shows_what_was_typed_as_text(visitor: Visitor) -> None:
    watched = window(visitor, visitor.person.user)
    watched.open(f"/agents/{visitor.person.agent.name}/")
    page = watched.page
    for anchor, name, typed, button in (
        ("model", "timezone", LINES[2], "Save"),
        ("model", "model", ONE_LINE[:200], "Save"),
        ("tools", "others", ONE_LINE, "Save"),
        ("connections", "models", ONE_LINE, "Add"),
    ):
        section = page.locator(f"#{anchor}")
        field = section.locator(f"[name={name}]")
        if anchor == "connections":
            section.get_by_label("Name").fill("work")
        field.fill(typed)
        section.get_by_role("button", name=button, exact=True).click()
        expect(section.get_by_role("alert")).to_be_visible()
        expect(field).to_have_value(re.compile(RAN))  # names of tools are listed
        watched.look()
    watched.open(f"/agents/{visitor.person.agent.name}/documents/HEARTBEAT.md/")
    for tasks, shown in (
        ([{"title": line} for line in LINES if line.isprintable()], page.locator(".changes")),
        ([{"title": LINES[0], "schedule": LINES[1]}], page.get_by_role("alert").first),
    ):
        listed = json.dumps({"version": 2, "tasks": tasks})
        page.get_by_label("Text").fill(f"```json\n{listed}\n```\n")
        page.get_by_role("button", name="Check").click()
        expect(shown).to_contain_text(LINES[0])
        watched.look()
    assert watched.faults == []
