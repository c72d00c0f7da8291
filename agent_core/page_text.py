"""HTML reduced to the text that people see. Also a program of its own: JSON with HTML in, JSON with text out.

`fetch.py` runs it in a process with a time limit: a page is a stranger's, and a parser can be made to take for ever.
"""

from __future__ import annotations

import json
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

_UNSEEN = set("script style noscript template svg iframe object select button".split())  # noqa: SIM905
_BLOCKS = set(  # each begins and ends a line
    "address article aside blockquote body br dd div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6 header"  # noqa: SIM905
    " hr li main nav ol p pre section table td th title tr ul".split()
)


class _Page(HTMLParser):
    """Gathers text; a link keeps its address behind it, so that whoever reads can go on there."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.parts: list[str] = []
        self._address = address
        self._unseen: list[str] = []
        self._in_title = False
        self._pres = 0  # within them line breaks stand
        self._link = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen.append(tag)
        if tag in _BLOCKS:
            self.parts.append("\n- " if tag == "li" else "\n")
        if tag == "title":
            self._in_title = True
        elif tag == "pre":
            self._pres += 1
        elif tag == "a":
            self._link = _absolute(self._address, dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            while self._unseen.pop() != tag:
                pass  # what was left open inside ends with it
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
        if self._unseen:
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


def reduced(html: str, address: str) -> tuple[str, str]:
    """The title and the text of a page, without empty lines."""
    page = _Page(address)
    page.feed(html)
    page.close()
    lines = (" ".join(line.split()) for line in "".join(page.parts).splitlines())
    return " ".join(page.title.split()), "\n".join(line for line in lines if line not in ("", "-"))


def main() -> None:
    """Read `{html, address}` from stdin, write `{title, text}` to stdout."""
    given = json.load(sys.stdin)
    title, text = reduced(given["html"], given["address"])
    json.dump({"title": title, "text": text}, sys.stdout)


if __name__ == "__main__":
    main()
