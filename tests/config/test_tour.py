"""`manage.py tour` against a real `manage.py up`: it passes where all is well, and fails where something is not."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer, Received
from agent_core.testing.odd import Odd
from agent_core.text import fence
from config.tour import appointments, background, texts
from tests.up import ROOT, Up, clean_environ, free_port, until

real = [pytest.mark.full, pytest.mark.processes]
MODEL = "openai-chat:test"


class Scripted(ModelServer):
    """A model server whose answers a test may replace."""

    script: Callable[[str], str | None] = staticmethod(lambda _message: None)

    def reply(self, received: Received) -> ModelReply | Odd:
        """What the script says to the last message, else what the offline rules say."""
        said = self.script(received.body["messages"][-1]["content"])
        return super().reply(received) if said is None else ModelReply(text=said)


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Scripted]:
    with Scripted() as server:
        yield server


@pytest.fixture
def server(shared_server: Scripted) -> Iterator[Scripted]:
    yield shared_server
    shared_server.script = Scripted.script


@pytest.fixture(scope="module")
def up(shared_server: Scripted) -> Iterator[Up]:
    folder = Path(tempfile.mkdtemp(prefix="rondo-tour-"))
    online = {"RONDO_MODEL": MODEL, "OPENAI_BASE_URL": shared_server.base_url, "OPENAI_API_KEY": "test-key"}
    up = Up(folder=folder, environ=clean_environ() | online)
    try:
        up.start()
        up.wait_ready()
        yield up
    finally:
        up.end()
        shutil.rmtree(folder)


def _command(*flags: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), "tour", *flags]


def _tour(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*flags), env=clean_environ(), capture_output=True, text=True, check=False, timeout=100
    )


def _names(up: Up, path: str, name: str) -> list[str]:
    connection = up.connection()
    request = urllib.request.Request(
        connection["url"] + path, headers={"Authorization": f"Token {connection['token']}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [row[name] for row in json.load(answer)["results"]]


def _left_behind(up: Up) -> list[str]:
    found = _names(up, "/api/sessions/", "key") + _names(up, "/api/agents/", "name")
    return [name for name in found if "tour" in name]


def _failures(output: str) -> list[str]:
    return re.findall(r"^ +FAIL +(.*)$", output, re.MULTILINE)


def _saying(said: str, to: str) -> Callable[[str], str | None]:
    return lambda message: said if to in message else None


class TestTour:
    """What the command does with a server."""

    pytestmark = [*real, pytest.mark.rule("4.8")]

    def test_it_passes_with_any_model_and_leaves_nothing_behind(self, up: Up, server: Scripted) -> None:
        done = _tour("--data-dir", str(up.data))
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        assert f"agent demo, model {MODEL}" in done.stdout
        assert 'The automation "Favourite colour" said: "Your favourite colour is blue."' in done.stdout
        assert "Update [job_completed]: Done: name the capital of France." in done.stdout
        assert "Update [heartbeat_result]: Done: remind me to water the plants." in done.stdout
        shown = [request.body["messages"] for request in server.requests]
        task = fence.fenced("task", appointments.TASK, fence.INSTRUCTIONS)
        assert [messages for messages in shown if task in messages[-1]["content"]]
        # the template is shown once: no later prompt holds it in its history
        assert not [messages for messages in shown for earlier in messages[:-1] if task in str(earlier)]
        connection = up.connection()
        offline = _tour("--url", connection["url"], "--token", connection["token"], "--model", "offline")
        assert offline.returncode == 0, offline.stdout + offline.stderr
        assert "a new agent, model offline" in offline.stdout
        [checks] = {done.stdout.splitlines()[-1], offline.stdout.splitlines()[-1]}
        assert re.fullmatch(r"\d\d checks ok\.", checks)
        assert _left_behind(up) == []

    def test_it_fails_where_the_server_does_not_what_it_promises(self, up: Up, server: Scripted) -> None:
        answers = {  # what is said, to which message, and what the tour says then
            "I am not sure.": (appointments.TASK, "its answer knows the colour (blue): I am not sure."),
            "I will.": (background.JOB, "it made one routine: there is none"),
            "Still here.": ("No task is due", "it says HEARTBEAT_OK: Still here."),
        }
        for said, (message, failure) in answers.items():
            server.script = _saying(said, message)
            done = _tour("--data-dir", str(up.data))
            assert done.returncode == 1, said
            assert failure in _failures(done.stdout), said
            assert "FAILED" in done.stdout.splitlines()[-1]
            assert _left_behind(up) == []

    def test_it_gives_up_when_no_run_comes_in_time(self, up: Up) -> None:
        done = _tour("--data-dir", str(up.data), "--patience", "1")
        assert done.returncode == 1
        assert _failures(done.stdout)[0] == "a run of the automation ended: not within 1 s"
        assert _left_behind(up) == []

    def test_one_that_is_interrupted_leaves_nothing_behind(self, up: Up, tmp_path: Path) -> None:
        output = tmp_path / "output"
        with output.open("wb") as log:
            command = _command("--data-dir", str(up.data), "--model", "offline")
            process = subprocess.Popen(command, env=clean_environ(), stdout=log, stderr=subprocess.STDOUT)
        until(lambda: "automation:" in output.read_text())
        process.send_signal(signal.SIGSTOP)  # so that it is not done before it is interrupted
        assert _left_behind(up)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        assert process.wait(30) == 1
        assert output.read_text().endswith("rondo: interrupted\n")
        assert "Traceback" not in output.read_text()
        assert _left_behind(up) == []

    def test_what_it_cannot_reach_is_told_in_one_line(self, up: Up, tmp_path: Path) -> None:
        connection, empty = up.connection(), tmp_path / "empty"
        (tmp_path / "connection.json").write_text("{")
        stale = tmp_path / "stale"  # as it is after a replacement on the account page
        stale.mkdir()
        (stale / "connection.json").write_text(json.dumps(connection | {"token": "0" * 40}))
        complaints = {
            ("--data-dir", str(empty)): "start it with `make up`",
            ("--data-dir", str(tmp_path)): "is not the connection file",
            ("--data-dir", str(stale)): f"since {stale / 'connection.json'} was written; restart the server",
            ("--url", f"http://127.0.0.1:{free_port()}", "--token", "t"): "no server answers at",
            ("--url", connection["url"], "--token", "wrong"): "rejects the token",
            ("--data-dir", str(up.data), "--agent", "nobody"): "no agent 'nobody'",
            ("--url", "http://localhost"): "rondo: ",
            ("--url", "ftp://a", "--token", "t"): "rondo: ",
            ("--speed",): "rondo: ",
        }
        for flags, complaint in complaints.items():
            done = _tour(*flags)
            assert (done.returncode, done.stdout) == (1, ""), flags
            [line] = done.stderr.splitlines()
            assert complaint in line, flags


def test_quotes_are_found_whatever_their_marks_are() -> None:
    said = ["Your favourite colour is blue. And more."]
    assert texts.quotes("It said: *“Your favourite colour is BLUE”*.", said)
    assert not texts.quotes("It is blue.", said)
    assert not texts.quotes("anything", [""])
    assert texts.contains_word("Blue!", "blue")
    assert not texts.contains_word("blueish", "blue")
    assert not texts.contains_word(None, "blue")


def test_template_sentences_are_the_fixed_text_without_variables() -> None:
    prompt = 'It is due now, so do it: "tea".\nBrew the tea in the old pot please.\nShort.'
    found = texts.template_sentences(
        prompt, {"name": "tea", "message": "Brew the tea in the old pot please."}
    )
    assert found == ["It is due now, so do it"]
