"""The two guards of answers, each by itself: the parser escapes HTML, and the sanitiser removes it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from interfaces.web.rendering import render, sanitize
from tests.injection.corpus import BLOCKS, LINES

pytestmark = pytest.mark.rule("10.5")
ATTRIBUTES = {"href", "title", "rel", "target", "start", "class"}
FORBIDDEN = (
    '<form action="/account/tokens/"><input name="csrfmiddlewaretoken"><button formaction="/x">go</button></form>',
    '<a href="javascript:x" id="updater" name="csrfmiddlewaretoken" style="x" data-hx-get="/x">x</a>',
    '<div id="place" class="alert" hx-on:click="x" x-data="x" data-copy>x</div><p hx-get="/x">x</p>',
    '<svg><use href="#x"/></svg><math></math><template></template><object></object><embed><link><base><meta>',
    '<img src="/x"><video src="/x"></video><iframe src="/x"></iframe><style>x</style><script>x</script>',
)


class Seen(HTMLParser):
    """Collects the tags and attributes of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]


def seen(html: str) -> Seen:
    found = Seen()
    found.feed(html)
    return found


def test_the_sanitiser_keeps_no_more_than_markdown_can_make() -> None:
    for html in (*LINES, *BLOCKS, *FORBIDDEN):
        found = seen(sanitize(html))
        assert found.tags <= {"p", "a", "div"}, html
        assert found.attributes <= ATTRIBUTES, html
        assert "class" not in found.attributes, html
        for link in found.links:
            assert ":" not in link or link.startswith(("http://", "https://", "mailto:")), html


def test_the_parser_makes_no_tag_of_html_in_a_text() -> None:
    for text in LINES:
        assert seen(render(text)).tags <= {"p", "a"}, text
