"""The how-to and the tutorial show a request to each address of the API."""

from __future__ import annotations

import re

from interfaces.api.urls import urlpatterns
from tests.docs.pages import page

PARAMETER = re.compile(r"<\w+:\w+>")


def test_the_how_to_or_the_tutorial_shows_each_address() -> None:
    text = page("how-to.md") + page("tutorial.md")
    addresses = [f"/api/{each.pattern}" for each in urlpatterns]
    missing = [address for address in addresses if not _pattern(address).search(text)]
    assert missing == []


def _pattern(address: str) -> re.Pattern[str]:
    literal = map(re.escape, PARAMETER.split(address))
    return re.compile(r"[^/\s\"`?]+".join(literal) + r"(?=[\"`?\s])")
