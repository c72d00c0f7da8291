"""Markdown to HTML that is safe to show, whoever wrote it.

The parser escapes HTML in the text; the sanitiser then removes all but the listed tags, whatever the parser did.
Pictures and bare addresses become links: a page loads nothing from outside.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from pygments import format as format_tokens
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from agent_core.offline.sentences import SUFFIX

LONGEST = 20_000  # characters; a longer text is shown as it is
MOST_BRACKETS = 2_000  # each may begin a link, which the parser looks for to the end of the text
MOST_CELLS = 5_000  # of the text, if it were one table
LONGEST_CODE = 4_000  # characters of a block that are highlighted
HIGHLIGHTING = 0.1  # seconds for a block: some lexers take time that grows with the square of its length
# Languages that are highlighted. Others' lexers may take hours for one token, which no deadline interrupts.
LANGUAGES = frozenset(
    "bash c c# c++ cpp csharp css diff docker dockerfile elixir go golang haskell html http java javascript js json jsx"  # noqa: SIM905
    " kotlin lua make makefile markdown md nginx perl php powershell py python python3 r rb rs ruby rust scala scss sh"
    " shell sql swift toml ts tsx typescript xml yaml yml zsh".split()
)
_LINE_END = re.compile(r"\r\n?|\n")  # as the parser counts lines
_TAGS = set(
    "p br hr em strong s code pre blockquote ul ol li a span div h1 h2 h3 h4 h5 h6 table thead tbody tr th td".split()  # noqa: SIM905
)
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "table": {"tabindex"}} | {
    tag: {"class"} for tag in ("code", "span", "li", "th", "td")
}
# with pairs of parentheses, without the punctuation of the sentence around it
_ADDRESS = re.compile(r"\bhttps?://(?:[^\s<>\"()]|\([^\s<>\"()]*\))+(?<![.,:;!?'*_~\]])", re.IGNORECASE)
_EXAMPLE = re.compile("<li><code>([^<]+)</code></li>")
_BUTTON = r'<li class="example"><button type="button" data-example>\1</button></li>'
_TICKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}


def _highlighted(code: str, language: str, _attributes: str) -> str:
    """The inside of a code block. Classes, not styles: the pages' policy allows no inline styles."""
    if language.lower() not in LANGUAGES or len(code) > LONGEST_CODE:
        return ""  # the parser escapes it
    lexer = get_lexer_by_name(language)
    try:
        return format_tokens(_in_time(lexer.get_tokens(code)), HtmlFormatter(nowrap=True, classprefix="hl-"))
    except TimeoutError:
        return ""


def _in_time(tokens: Iterable[Any]) -> Iterator[Any]:
    deadline = time.monotonic() + HIGHLIGHTING
    for token in tokens:
        if time.monotonic() > deadline:
            raise TimeoutError
        yield token


_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True, "highlight": _highlighted}).enable(
    ["table", "strikethrough"]
)
_WITHOUT_HIGHLIGHTING = MarkdownIt("commonmark", {"html": False, "breaks": True})


def _lower_headings(state: StateCore) -> None:
    """Lower the headings of a text below those of the page, which uses h1 and h2."""
    for token in state.tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(int(token.tag[1:]) + 2, 6)}"


def _align_cells(state: StateCore) -> None:
    """Align cells by classes: the pages' policy allows no inline styles. A wide table can be scrolled by keyboard."""
    for token in state.tokens:
        if token.type == "table_open":
            token.attrSet("tabindex", "0")
        if style := token.attrs.pop("style", ""):
            token.attrSet("class", str(style).partition(":")[2])


def _tick_tasks(state: StateCore) -> None:
    """Show `[x]` at the beginning of a list's item as a ticked box."""
    for item, _paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        first = inline.children[0] if item.type == "list_item_open" and inline.children else None
        if first and (box := _TICKS.get(first.content[:4])):
            first.content = box + first.content[4:]
            item.attrSet("class", "task")


def _add_links(state: StateCore) -> None:
    """Make links of pictures and of bare addresses, except in a link."""
    for token in state.tokens:
        found: list[Token] = []
        depth = 0
        for each in token.children or ():
            depth += each.nesting if each.type in {"link_open", "link_close"} else 0
            if each.type == "image":
                text = "".join(part.content for part in each.children or ()) or "Picture"
                found += [_text(text)] if depth else _link(str(each.attrs["src"]), text)
            else:
                found += [each] if depth or each.type != "text" else _linked(state, each.content)
        if token.children:
            token.children = found


def _linked(state: StateCore, text: str) -> Iterator[Token]:
    end = 0
    for match in _ADDRESS.finditer(text):
        yield _text(text[end : match.start()])
        yield from _link(state.md.normalizeLink(match[0]), match[0])
        end = match.end()
    yield _text(text[end:])


def _link(address: str, text: str) -> list[Token]:
    return [Token("link_open", "a", 1, attrs={"href": address}), _text(text), Token("link_close", "a", -1)]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


for rule in (_lower_headings, _align_cells, _tick_tasks, _add_links):
    _MARKDOWN.core.ruler.push(rule.__name__, rule)


@lru_cache(maxsize=1_000)
def plain(text: str) -> str:
    """The words of a text without its Markdown, for a line of a list."""
    if _is_too_much(text):
        return text
    leaves = [each for token in _MARKDOWN.parse(text) for each in [*(token.children or [token]), _text(" ")]]
    return "".join(each.content or " " * (each.tag == "br") for each in leaves)


@lru_cache(maxsize=1_000)
def render(text: str) -> SafeString:
    """The text as HTML. It never raises: what cannot be rendered is shown as plain text.

    The sentences that the offline model gives as examples become buttons, which put them into the box.
    """
    if _is_too_much(text):
        return mark_safe(f"<pre>{escape(text)}</pre>")  # noqa: S308 - escaped
    html = sanitize(_MARKDOWN.render(text))
    return mark_safe(_EXAMPLE.sub(_BUTTON, html)) if text.endswith(SUFFIX) else html  # noqa: S308 - sanitised


def render_growing(text: str) -> tuple[SafeString, int, SafeString]:
    """A text to which more is added: HTML of its closed blocks, their length in UTF-16, HTML of the last block.

    What is added changes the last block only, so the rest need not be rendered again. The last one is not highlighted.
    """
    if not text or _is_too_much(text):
        return SafeString(""), 0, SafeString(escape(text))
    env: dict[str, Any] = {}
    tokens = _MARKDOWN.parse(text, env)
    last = max((n for n, each in enumerate(tokens) if each.level == 0 and each.nesting >= 0), default=0)
    if not tokens or not (lines := tokens[last].map):
        return SafeString(""), 0, SafeString(escape(text))
    closed = _MARKDOWN.renderer.render(tokens[:last], _MARKDOWN.options, env)
    growing = _MARKDOWN.renderer.render(tokens[last:], _WITHOUT_HIGHLIGHTING.options, env)
    return sanitize(closed), _units(text, lines[0]), sanitize(growing)


def _units(text: str, lines: int) -> int:
    """The length of the first lines as browsers count it, in units of UTF-16."""
    ends = [0, *(each.end() for each in _LINE_END.finditer(text))]
    return len(text[: ends[min(lines, len(ends) - 1)]].encode("utf-16-le", "surrogatepass")) // 2


def _is_too_much(text: str) -> bool:
    return len(text) > LONGEST or text.count("[") > MOST_BRACKETS or _cells(text) > MOST_CELLS


def sanitize(html: str) -> SafeString:
    """The HTML with the listed tags, attributes and schemes of links only."""
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )
    return mark_safe(clean)  # noqa: S308 - sanitised


def _cells(text: str) -> int:
    """A bound of the cells that a table of this text has: each of its rows has as many as the head."""
    lines = text.split("\n")
    return len(lines) * max(line.count("|") for line in lines)
