"""The MCP section of docs/protocols.md, followed: its configurations connect, its command runs, it names the tools."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from config.mcp_bridge import mcp_parser
from interfaces.mcp_server.server import TOOLS
from tests.automations.mcp_server.conftest import McpCaller
from tests.docs.pages import blocks, checkout, section
from tests.up import ROOT, clean_environ, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.full]


@pytest.fixture
def folder(ada: McpCaller, tmp_path: Path) -> Path:
    """A folder with the data folder of an `up`."""
    return checkout(tmp_path, ada.url, ada.token)


def configured(heading: str) -> Any:
    [block] = blocks(section("protocols.md", heading), "json")
    return json.loads(block)["mcpServers"]["rondo"]


def test_the_table_names_every_tool() -> None:
    named = re.findall(r"^\| (`.*?`) \|", section("protocols.md", "Tools of the MCP server"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(named))) == set(TOOLS)


def test_the_command_prints_the_tools(folder: Path) -> None:
    [block] = blocks(section("protocols.md", "MCP server"), "sh")
    done = run("bash", "-euo", "pipefail", "-c", block, cwd=folder)
    assert (done.returncode, set(done.stdout.split())) == (0, set(TOOLS))


def test_the_configuration_with_a_program_connects(folder: Path) -> None:
    shown = configured("Connect a client that starts a program")
    there = {".venv/bin/python": sys.executable, "manage.py": f"{ROOT}/manage.py"}
    there |= {".rondo": f"{folder}/.rondo"}
    program = {f"/path/to/rondo/{name}": path for name, path in there.items()}
    args = [program.get(each, each) for each in shown["args"]]
    command, environ = program[shown["command"]], clean_environ()
    server = StdioServerParameters(command=command, args=args, env=environ, cwd=os.sep)

    async def listed() -> set[str]:
        async with Client(stdio_client(server)) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert asyncio.run(listed()) == set(TOOLS)


def test_the_configuration_with_the_wheel_is_a_command_of_it() -> None:
    shown = configured("Connect a client with the wheel")
    scripts = (ROOT / "pyproject.toml").read_text().partition("\n[project.scripts]\n")[2].partition("\n\n")[0]
    assert f"{shown['command']} =" in scripts
    assert shown["args"][0] == "mcp"
    mcp_parser().parse_args(shown["args"][1:])
    assert f'"args": {json.dumps(shown["args"])}' in (ROOT / "README.md").read_text()
