"""docs/tools.md names every tool that the apps register, with its effect; its bounds are those of the code."""

from __future__ import annotations

import re

from agent_core import fetch, tools
from tests.up import ROOT

PAGE = ROOT / "docs" / "tools.md"


def test_each_tool_has_its_row_with_its_effect() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    ours = {
        tool.name: str(tool.effect) for tool in tools.all() if not tool.run.__module__.startswith("tests")
    }
    assert dict(rows) == ours


def test_the_bounds_of_fetching_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    for bound in (
        f"{fetch.SECONDS:.0f} s for everything",
        f"{fetch.PARSE_SECONDS:.0f} s for reducing",
        f"{fetch.MOST_BYTES:,} bytes",
        f"{fetch.MOST_CHARACTERS:,} characters",
        f"| redirects | {fetch.MOST_REDIRECTS},",
        f"from {fetch.LEAST_PORT} on",
    ):
        assert bound in text, bound
