"""The how-to and the tutorial show a request to each address of the API."""

from __future__ import annotations

import re

import pytest

from automations.api import urls as automations
from sessions_app.api import urls as sessions
from tests.docs.pages import page

ADDRESSES = [f"/api/{each.pattern}" for each in (*sessions.urlpatterns, *automations.urlpatterns)]
PARAMETER = re.compile(r"<\w+:\w+>")


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_how_to_or_the_tutorial_shows_the_address(address: str) -> None:
    literal = map(re.escape, PARAMETER.split(address))
    shown = re.compile(r"[^/\s\"`?]+".join(literal) + r"(?=[\"`?\s])")
    assert shown.search(page("how-to.md") + page("tutorial.md"))
