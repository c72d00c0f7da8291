"""docs/api.md names the filters of each list and the words of each state, as the schema has them."""

import re
from typing import Any

import pytest

from interfaces.api.urls import urlpatterns
from tests.docs.pages import page, section

pytestmark = pytest.mark.django_db
OF_EACH_LIST = {"order", "cursor", "page_size"}


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading."""
    lines = [line for line in section("api.md", heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_each_list_is_described_with_its_filters(schema: Any) -> None:
    described = {
        address.strip("`").replace("{id}", "{session_id}"): set(
            re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", filters))
        )
        for address, _, filters in table("Lists")
    }
    taken = {
        path: {each["name"] for each in methods["get"]["parameters"] if each["in"] == "query"}
        for path, methods in schema["paths"].items()
        if "get" in methods
    }
    filtered = {path for path, names in taken.items() if names > OF_EACH_LIST}
    assert filtered <= described.keys()
    assert {path: taken[path] - OF_EACH_LIST for path in described} == described
    assert all(taken[path] >= OF_EACH_LIST for path in described)


PARAMETER = re.compile(r"<\w+:\w+>")


def test_the_how_to_or_the_tutorial_shows_each_address() -> None:
    text = page("how-to.md") + page("tutorial.md")
    addresses = [f"/api/{each.pattern}" for each in urlpatterns]
    for address in addresses:
        literal = map(re.escape, PARAMETER.split(address))
        assert re.search(r"[^/\s\"`?]+".join(literal) + r"(?=[\"`?\s])", text), address
