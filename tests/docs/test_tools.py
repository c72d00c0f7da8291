"""docs/tools.md names every tool that the apps register, with its effect; its bounds are those of the code."""

from __future__ import annotations

import re

from agent_core import addresses, fetch, mcp_schema, mcp_tools, mcp_wire, tools
from agent_core.mcp_server import HIDDEN
from sessions_app import mcp_settings
from sessions_app.tools import OUTPUT_LIMIT
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
        f"from {addresses.LEAST_PORT} on",
    ):
        assert bound in text, bound


def test_the_bounds_of_mcp_servers_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    for bound in (
        f"up to {mcp_settings.MOST_SERVERS} servers",
        f"{mcp_tools.LIST_SECONDS:.0f} s for all servers",
        f"{mcp_wire.MOST_PAGES} pages",
        f"kept {mcp_tools.FRESH_SECONDS:.0f} s",
        f"a failed one {mcp_tools.MISSING_SECONDS:.0f} s",
        f"{mcp_tools.MOST_TOOLS} of one server",
        f"{mcp_tools.LONGEST_TOOLS:,} characters of descriptions",
        f"{mcp_tools.LONGEST_DESCRIPTION:,} characters of one description",
        f"{mcp_schema.LONGEST:,} of one tool's parameters",
        f"{mcp_wire.MOST_BYTES:,} bytes, unpacked",
        f"{OUTPUT_LIMIT:,} characters are shown",
        f"| redirects | {mcp_wire.MOST_REDIRECTS}, within",
        f"`{HIDDEN}`",
    ):
        assert bound in text, bound
