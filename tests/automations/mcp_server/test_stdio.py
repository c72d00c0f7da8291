"""`manage.py mcp`: the SDK's client over standard input and output of a real process."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.api.conftest import Site
from tests.automations.mcp_server.conftest import Human, McpCaller, TasksOfClient
from tests.automations.mcp_server.test_hostile import HELLO, call
from tests.automations.mcp_server.test_questions import accept, erased, will_erase
from tests.up import ROOT, clean_environ, free_port, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

COMMAND = [str(ROOT / "manage.py"), "mcp"]


def talk(environ: dict[str, str], folder: Path, work: Any, *, mode: Any = "auto", **more: Any) -> Any:
    """Start the command as a client does, and do the work."""
    environ = clean_environ() | environ
    server = StdioServerParameters(command=sys.executable, args=COMMAND, env=environ, cwd=folder)

    async def done() -> Any:
        async with Client(stdio_client(server), mode=mode, **more) as client:
            return await work(client)

    return asyncio.run(done())


def named(caller: McpCaller) -> dict[str, str]:
    return {"RONDO_URL": caller.url, "RONDO_TOKEN": caller.token}


@pytest.mark.full
@pytest.mark.rule("3.5")
def test_tasks_and_questions_pass_through(ada: McpCaller, site: Site, tmp_path: Path) -> None:
    will_erase(site, "stdio")
    human = Human(answers=[accept(allow=True)])
    more = {"extensions": [TasksOfClient(human)], "elicitation_callback": human}
    asked = talk(
        named(ada), tmp_path, lambda client: client.call_tool("ask", {"message": "erase it"}), **more
    )
    assert asked.structured_content["answer"] == "Gone."
    assert erased(site, "stdio") == 1
    site.model.forget_script()
    will_erase(site, "early-stdio")
    human, told = Human(answers=[accept(allow=True)]), []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    def erase_it(client: Client) -> Any:
        return client.call_tool("ask", {"message": "erase it"}, progress_callback=note)

    found = talk(named(ada), tmp_path, erase_it, mode="legacy", elicitation_callback=human)
    assert (found.structured_content["answer"], len(human.asked)) == ("Gone.", 1)
    assert told


def test_without_a_server_the_command_says_what_to_set(tmp_path: Path) -> None:
    done = run(sys.executable, *COMMAND, cwd=tmp_path, env=clean_environ())
    assert (done.returncode, done.stdout) == (1, "")
    assert "RONDO_URL" in done.stderr


@pytest.mark.full
def test_a_stored_token_goes_to_its_own_server_only(ada: McpCaller, tmp_path: Path) -> None:
    (tmp_path / ".rondo").mkdir()
    (tmp_path / ".rondo" / "connection.json").write_text(json.dumps({"url": ada.url, "token": ada.token}))
    environ = clean_environ() | {"RONDO_URL": f"http://127.0.0.1:{free_port()}"}
    done = run(sys.executable, *COMMAND, cwd=tmp_path, env=environ)
    assert done.returncode == 1
    assert ada.token not in done.stdout + done.stderr


@pytest.mark.parametrize("what", ["server", "token"])
def test_a_server_that_refuses_or_is_away_ends_the_request(ada: McpCaller, tmp_path: Path, what: str) -> None:
    wrong = {"server": {"RONDO_URL": f"http://127.0.0.1:{free_port()}"}, "token": {"RONDO_TOKEN": "0" * 40}}
    line = json.dumps(call("initialize", **HELLO) | {"id": 7})
    environ = clean_environ() | named(ada) | wrong[what]
    command = [sys.executable, *COMMAND]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, cwd=tmp_path, env=environ, **pipes) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdin.write(f"{line}\n".encode())
        started.stdin.flush()
        answer = json.loads(started.stdout.readline())
        assert (answer["id"], "error" in answer) == (7, True)
        started.stdin.close()
        assert started.wait(20) == 0
