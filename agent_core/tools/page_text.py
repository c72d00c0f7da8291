"""Extracts the visible text of HTML. As a program it reads JSON with HTML and writes JSON with text.

`fetch.py` runs it in a process with a time limit, because a hostile page can make a parser run for ever.
"""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

_INVISIBLE = set("script style noscript template svg iframe object select button".split())  # noqa: SIM905
_BLOCKS = set(  # elements that begin and end a line
    "address article aside blockquote body br dd div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6 header"  # noqa: SIM905
    " hr li main nav ol p pre section table td th title tr ul".split()
)


class _Page(HTMLParser):
    """Collects the text. The address of a link is put after its text."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.parts: list[str] = []
        self._address = address
        self._invisible: list[str] = []
        self._in_title = False
        self._pres = 0  # open <pre> elements, in which line breaks are kept
        self._link = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _INVISIBLE:
            self._invisible.append(tag)
        if tag in _BLOCKS:
            self.parts.append("\n- " if tag == "li" else "\n")
        if tag == "title":
            self._in_title = True
        elif tag == "pre":
            self._pres += 1
        elif tag == "a":
            self._link = _absolute(self._address, dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._invisible:
            while self._invisible.pop() != tag:
                pass  # elements left open inside end with it
        if tag in _BLOCKS:
            self.parts.append("\n")
        if tag == "title":
            self._in_title = False
        elif tag == "pre":
            self._pres = max(0, self._pres - 1)
        elif tag == "a" and self._link:
            self.parts.append(f" ({self._link})")
            self._link = ""

    def handle_data(self, data: str) -> None:
        if self._invisible:
            return
        if self._in_title:
            self.title += data
        else:
            self.parts.append(data if self._pres else data.replace("\n", " "))


def _absolute(address: str, link: str) -> str:
    try:
        found = urljoin(address, link.strip())
    except ValueError:
        return ""
    return found if found.startswith(("http://", "https://")) and not link.startswith("#") else ""


def extract_text(html: str, address: str) -> tuple[str, str]:
    """Return the title and the text of a page, without empty lines."""
    page = _Page(address)
    page.feed(html)
    page.close()
    lines = (" ".join(line.split()) for line in "".join(page.parts).splitlines())
    return " ".join(page.title.split()), "\n".join(line for line in lines if line not in ("", "-"))


def main() -> None:
    """Read `{html, address}` from stdin, write `{title, text}` to stdout."""
    given = json.load(sys.stdin)
    title, text = extract_text(given["html"], given["address"])
    json.dump({"title": title, "text": text}, sys.stdout)


if __name__ == "__main__":
    main()
