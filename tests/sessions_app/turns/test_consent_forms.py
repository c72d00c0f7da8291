"""How a question for consent looks and what counts as its answer: five tricks and more for each rule (rule 3.5)."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from django.test import Client

from agent_core.llm.protocol import ModelReply
from agent_core.turn.consent import shown_arguments
from sessions_app.models import Message, Session
from sessions_app.web.rendering import render, render_growing
from tests.agent_core.planner.plans import RESPOND, plan, says, tool
from tests.inside import Inside, call, makes
from tests.talk import last_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.5")]


class _Text(HTMLParser):
    """The text that a reader sees of HTML, and its elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(inside: Inside, session: Session) -> str:
    client = Client()
    client.force_login(inside.person.user)
    return client.get(f"/sessions/{session.pk}/", secure=True).content.decode()


NAMES = (
    "[/tmp/cache](https://x.invalid/prod)",
    "/data/*/logs/*",
    "__init__.py",
    "&amp;lt;b&gt; &copy;",
    "`a` ``` b ~~~ c",
    "~~/prod~~ <s>x</s>",
    "a | b\n|---|---|\n\n# c",
    r"\*.\[x\]",
    "www.x.invalid <https://x.invalid>",
    "two  spaces at the end  ",
)
BEFORE = (
    "I would like to.",
    "```\nrm -rf /",
    "~~~~",
    "> May I?\n> ",
    "1. one\n   - two",
    "a | b\n|---|---|",
    "[x]: https://x.invalid\n\n*",
    "<details>\n<pre>",
    "    code",
    "a\\",
)


@pytest.mark.parametrize("engine", ["chat", "planner"])
def test_what_is_asked_is_shown_to_the_letter(inside: Inside, engine: str) -> None:
    if engine == "planner":
        inside.planner()
    for name, before in zip(NAMES, BEFORE, strict=True):
        session = inside.person.session()
        replies: list[ModelReply] = [makes(call("erase", name=name)), says(before)]
        inside.model.answer_with(*replies if engine == "chat" else [plan(tool("erase", name=name), RESPOND)])
        inside.say(session, "Tidy up.")
        asked = f"erase with {shown_arguments({'name': name})}"
        said = last_said(session)
        assert asked in said, name
        closed, _, growing = render_growing(said)
        for html in (
            render(said),
            f"{closed}{growing}",
            page_of(inside, session),
        ):  # what clients do, and the page
            assert asked in _Text(html).text, (name, before)
        message = Message.objects.filter(session=session, role="assistant").latest("seq")
        assert said[message.metadata["asked_from"] :].splitlines()[2].strip() == asked
        below = page_of(inside, session).rpartition("May I use this tool?")[2].partition("</p>")[0]
        assert not _Text(below).tags, below


def test_the_box_with_the_button_hides_nothing(inside: Inside) -> None:
    for hidden in ("\u202e", "\u2066", "\u200b", "\u3164", "\u00ad", "\ufe0f", "\u00a0"):
        for arguments in ({"name": f"a{hidden}b"}, {"name": "x", f"n{hidden}": {"deep": [hidden]}}):
            session = inside.person.session()
            inside.model.answer_with(makes(call("erase", **arguments)), says("I would like to."))
            inside.say(session, "Tidy up.")
            page = page_of(inside, session)
            box = page.partition('class="question"')[2]
            assert "Allow erase" in box
            assert hidden not in box, ascii(hidden)
            assert f"\\u{ord(hidden):04x}" in box
