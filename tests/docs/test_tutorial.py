"""docs/tutorial.md and docs/how-to.md, followed: their commands are typed at a server that `manage.py up` started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import page, section
from tests.up import ROOT, Up, clean_environ

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]  # the start counts, on a busy machine

START = "make up\n"
READY = re.compile(r"^Ready: http://\S+  admin: http://\S+ as admin / \w+  stop: Ctrl-C$", re.MULTILINE)
BETWEEN = "@@@ next block"
ENDING = """curl() {  # a stream ends after a moment
  case " $* " in
    *" -N "*) command curl --max-time 2 "$@" || test $? = 28 ;;
    *) command curl "$@" ;;
  esac
}"""
HOOK = 'HOOK=$(echo "$HOOK_MADE" | field id); HOOK_TOKEN=$(echo "$HOOK_MADE" | field token)'
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    folder = Path(tempfile.mkdtemp(prefix="rondo-tutorial-"))
    started = Up(folder=folder, environ=clean_environ() | {"RONDO_MODEL": "offline"})
    try:
        started.start()
        started.wait_ready()
        yield started
    finally:
        started.end()
        shutil.rmtree(folder)


def typed(up: Up, blocks: list[str]) -> list[str]:
    """What each block prints, in one shell. A command that fails, or that the API refuses, ends it."""
    (up.folder / ".curlrc").write_text("fail-with-body\n")
    script = f"\necho '{BETWEEN}'\n".join(blocks)
    script = script.replace(".venv/bin/python", sys.executable).replace(".rondo/", f"{up.data}/")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env=os.environ | {"CURL_HOME": str(up.folder)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr}"
    return done.stdout.split(f"{BETWEEN}\n")


def told(blocks: list[tuple[str, str]]) -> tuple[list[str], dict[int, str]]:
    """The commands, and by the number of a command what the page shows below it."""
    commands: list[str] = []
    shown: dict[int, str] = {}
    for kind, text in blocks:
        if kind == "sh":
            commands.append(text)
        else:
            shown[len(commands) - 1] = text
    return commands, shown


def without_what_varies(text: str) -> str:
    """Ids and instants differ each time."""
    text = re.sub(r"automation \w{10} ", "automation … ", text)
    text = re.sub(r'"(id|turn|seq)": \d+', r'"\1": …', text)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d", "…", text)


def test_who_follows_the_tutorial_sees_what_it_shows(up: Up) -> None:
    blocks = BLOCK.findall(page("tutorial.md"))
    assert blocks[0] == ("sh", START)
    assert READY.search(blocks[1][1])
    assert READY.search(up.output)
    commands, shown = told(blocks[2:])
    assert len(shown) > 6
    for number, printed in enumerate(typed(up, commands)):
        seen = without_what_varies(printed)
        assert seen == without_what_varies(shown.get(number, "")), commands[number]


def test_each_request_of_the_how_to_is_accepted(up: Up) -> None:
    [variables, functions] = told(BLOCK.findall(section("tutorial.md", "Set up the terminal")))[0]
    commands, shown = told(BLOCK.findall(page("how-to.md")))
    assert len(commands) > 20
    [make] = [number for number, command in enumerate(commands) if '/hooks/" ' in command]
    commands[make] = f"HOOK_MADE=$({commands[make]})\n{HOOK}"
    printed = typed(up, [ENDING, variables, functions, *commands])[3:]
    for number, text in shown.items():
        assert text in printed[number], commands[number]
