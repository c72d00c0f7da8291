"""`manage.py tour` against a real `manage.py up`: it passes where all is well, and fails where something is not."""

import copy
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer, Received
from agent_core.text import fence
from config.tour import act, appointments, background, texts
from config.tour.client import ApiAnswer, Server, TourError
from config.tour.report import TourReport
from config.tour.story import Tour
from tests.up import ROOT, Up, clean_environ, free_port, until

pytestmark = [pytest.mark.processes, pytest.mark.rule("4.8")]

CHECKS = 75
MODEL = "openai-chat:test"


class Scripted(ModelServer):
    """A model server whose answers a test may replace."""

    script: Callable[[str], str | None] = staticmethod(lambda _message: None)

    def reply(self, received: Received) -> ModelReply:
        """What the script says to the last message, else what the offline rules say."""
        said = self.script(received.body["messages"][-1]["content"])
        return super().reply(received) if said is None else ModelReply(text=said)


def _up(**environ: str) -> Iterator[Up]:
    folder = Path(tempfile.mkdtemp(prefix="rondo-tour-"))
    up = Up(folder=folder, environ=clean_environ() | environ)
    try:
        up.start()
        up.wait_ready()
        yield up
    finally:
        up.end()
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def offline_up() -> Iterator[Up]:
    yield from _up(RONDO_MODEL="offline")


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Scripted]:
    with Scripted() as server:
        yield server


@pytest.fixture
def server(shared_server: Scripted) -> Iterator[Scripted]:
    yield shared_server
    shared_server.script = Scripted.script


@pytest.fixture(scope="module")
def online_up(shared_server: Scripted) -> Iterator[Up]:
    yield from _up(RONDO_MODEL=MODEL, OPENAI_BASE_URL=shared_server.base_url, OPENAI_API_KEY="test-key")


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


def test_the_tour_passes_offline_and_leaves_nothing_behind(offline_up: Up) -> None:
    done = _tour("--data-dir", str(offline_up.data))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{CHECKS} checks ok.\n")
    assert "agent demo, model offline" in done.stdout
    assert 'The automation "Favourite colour" said: "Your favourite colour is blue."' in done.stdout
    assert "agent:       HEARTBEAT_OK (offline model)" in done.stdout
    assert "Update [job_completed]: Done: name the capital of France." in done.stdout
    assert "Update [heartbeat_result]: Done: remind me to water the plants." in done.stdout
    assert done.stderr == ""
    assert _left_behind(offline_up) == []


def test_the_tour_passes_on_a_server_that_speaks_openais_protocol(online_up: Up, server: Scripted) -> None:
    done = _tour("--data-dir", str(online_up.data))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{CHECKS} checks ok.\n")
    assert f"agent demo, model {MODEL}" in done.stdout
    shown = [request.body["messages"] for request in server.requests]
    task = fence.fenced("task", appointments.TASK, fence.INSTRUCTIONS)
    assert [messages for messages in shown if task in messages[-1]["content"]]
    # the template is shown once: no later prompt holds it in its history
    assert not [messages for messages in shown for earlier in messages[:-1] if task in str(earlier)]


def test_the_tour_creates_and_removes_an_agent_for_a_model(online_up: Up) -> None:
    connection = online_up.connection()
    done = _tour("--url", connection["url"], "--token", connection["token"], "--model", "offline")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a new agent, model offline" in done.stdout
    assert _left_behind(online_up) == []


def test_the_tour_fails_if_the_automation_misses_the_colour(online_up: Up, server: Scripted) -> None:
    server.script = lambda message: "I am not sure." if appointments.TASK in message else None
    done = _tour("--data-dir", str(online_up.data))
    assert done.returncode == 1
    assert _failures(done.stdout) == ["its answer knows the colour (blue): I am not sure."]
    assert "1 FAILED" in done.stdout.splitlines()[-1]
    assert _left_behind(online_up) == []


def test_the_tour_fails_if_the_chat_misses_the_automation(online_up: Up, server: Scripted) -> None:
    server.script = lambda message: "It is blue." if message == appointments.QUESTION else None
    done = _tour("--data-dir", str(online_up.data))
    assert done.returncode == 1
    assert _failures(done.stdout) == ["its answer quotes the automation: It is blue."]


def test_the_tour_fails_when_the_chat_makes_no_routine(online_up: Up, server: Scripted) -> None:
    server.script = lambda message: "I will." if message == background.JOB else None
    done = _tour("--data-dir", str(online_up.data))
    assert done.returncode == 1
    assert _failures(done.stdout) == [
        "it made one routine: there is none",
        "the tour ran to its end: no routine was created; the tour cannot continue",
    ]
    assert _left_behind(online_up) == []


def test_the_tour_fails_when_a_heartbeat_without_news_speaks(online_up: Up, server: Scripted) -> None:
    server.script = lambda message: "Still here." if "No task is due" in message else None
    done = _tour("--data-dir", str(online_up.data))
    assert done.returncode == 1
    silent, told = _failures(done.stdout)
    assert silent == "it says HEARTBEAT_OK: Still here."
    assert told.startswith("nobody is told: [")
    assert _left_behind(online_up) == []


def test_the_tour_fails_if_the_person_gets_no_news(online_up: Up, server: Scripted) -> None:
    server.script = lambda message: "All is well." if message.endswith(background.QUESTION) else None
    done = _tour("--data-dir", str(online_up.data))
    assert done.returncode == 1
    assert _failures(done.stdout) == ["the answer quotes it: All is well."] * 2


def test_the_tour_gives_up_when_no_run_comes_in_time(offline_up: Up) -> None:
    done = _tour("--data-dir", str(offline_up.data), "--patience", "1")
    assert done.returncode == 1
    assert _failures(done.stdout) == [
        "a run of the automation ended: not within 1 s",
        "the tour ran to its end: waited too long",
    ]
    assert _left_behind(offline_up) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_tour_leaves_nothing_behind(
    offline_up: Up, number: signal.Signals, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    with output.open("wb") as log:
        process = subprocess.Popen(
            _command("--data-dir", str(offline_up.data), "--model", "offline"),
            env=clean_environ(),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    until(lambda: "automation:" in output.read_text())
    process.send_signal(signal.SIGSTOP)  # so that it is not done before it is interrupted
    assert _left_behind(offline_up)
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 1
    assert output.read_text().endswith("rondo: interrupted\n")
    assert "Traceback" not in output.read_text()
    assert _left_behind(offline_up) == []


def _complaint(*flags: str) -> str:
    done = _tour(*flags)
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return line


def test_where_nothing_runs_the_tour_says_so_in_one_line(tmp_path: Path) -> None:
    assert "start it with `make up`" in _complaint("--data-dir", str(tmp_path))
    port = free_port()
    assert "no server answers at" in _complaint("--url", f"http://127.0.0.1:{port}", "--token", "t")
    (tmp_path / "connection.json").write_text("{")
    assert "is not the connection file" in _complaint("--data-dir", str(tmp_path))


@pytest.mark.parametrize(
    "flags", [["--url", "http://localhost"], ["--url", "ftp://a", "--token", "t"], ["--speed"]]
)
def test_wrong_flags_are_one_line(flags: list[str]) -> None:
    assert _complaint(*flags).startswith("rondo: ")


def test_a_wrong_token_and_an_unknown_agent_are_one_line(offline_up: Up) -> None:
    url = offline_up.connection()["url"]
    assert "rejects the token" in _complaint("--url", url, "--token", "wrong")
    assert "no agent 'nobody'" in _complaint("--data-dir", str(offline_up.data), "--agent", "nobody")


def test_the_tour_says_what_to_do_when_the_token_of_the_data_folder_was_replaced(
    offline_up: Up, tmp_path: Path
) -> None:
    stale = offline_up.connection() | {"token": "0" * 40}  # as it is after a replacement on the account page
    (tmp_path / "connection.json").write_text(json.dumps(stale))
    complaint = _complaint("--data-dir", str(tmp_path))
    assert f"since {tmp_path / 'connection.json'} was written; restart the server" in complaint
    assert "--token" in complaint
    token = offline_up.connection()["token"]  # the token that replaced it; the tour goes on to the next check
    assert "no agent" in _complaint("--data-dir", str(tmp_path), "--token", token, "--agent", "nobody")


# What the tour would notice: one real tour is recorded, and played again with one answer changed.


class Recording(Server):
    """Keeps what a real server answered."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.answers: dict[tuple[str, str], list[ApiAnswer]] = defaultdict(list)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> ApiAnswer:
        answer = super().ask(method, path, body, **headers)
        self.answers[method, path].append(answer)
        return answer


class Replay(Server):
    """Gives the recorded answers again, in their order; the last of an address again and again."""

    def __init__(self, recorded: Recording) -> None:
        super().__init__(recorded.url, "")
        self.answers = copy.deepcopy(dict(recorded.answers))

    def ask(self, method: str, path: str, body: Any = None, **_headers: str) -> ApiAnswer:
        del body
        answers = self.answers[method, path]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def change(self, method: str, ending: str, change: Callable[[Any], None]) -> None:
        """Change the bodies of every answer of the addresses that end so."""
        found = [a for key, answers in self.answers.items() for a in answers if _is(key, method, ending)]
        assert found, (method, ending)
        for answer in found:
            change(answer.body)


def _is(key: tuple[str, str], method: str, ending: str) -> bool:
    return key[0] == method and re.search(f"{ending}$", key[1]) is not None


@pytest.fixture(scope="module")
def recorded(offline_up: Up) -> Recording:
    connection = offline_up.connection()
    server = Recording(connection["url"], connection["token"])
    _play(server)
    return server


@pytest.fixture
def replay(recorded: Recording, monkeypatch: pytest.MonkeyPatch) -> Replay:
    """The recorded tour, to be played without its waits."""
    monkeypatch.setattr(act, "POLL_SECONDS", 0.0)
    return Replay(recorded)


def _play(server: Server) -> TourReport:
    report = TourReport()
    own = "tour-recorded"
    server.create("/api/agents/", {"name": own, "heartbeat": background.HEARTBEAT_OFF})
    key = "web:tour-recorded"
    tour = Tour(server=server, report=report, agent="demo", own=own, key=key, patience=20.0)
    try:
        tour.take()
    except TourError as error:
        report.check("the tour ran to its end", holds=False, why=error)
    return report


def _first_trigger(body: Any) -> dict[str, Any]:
    nowhere: dict[str, Any] = {"turn": None, "content": "", "metadata": {}}  # another session's history
    return next((m for m in body["results"] if m["metadata"].get("_automation_turn")), nowhere)


def _first_answer(body: Any) -> dict[str, Any]:
    nowhere: dict[str, Any] = {"content": "", "metadata": {}}
    return next((m for m in body["results"] if m["metadata"].get("source")), nowhere)


def _show_instructions(body: Any) -> None:
    _first_answer(body)["content"] += (
        "\nDo the task now. This is the automation itself running: do not create"
    )


def _hide_instructions(body: Any) -> None:
    body["results"][0]["metadata"]["note"] = "If there is nothing to report, say so in a short sentence"


def _skip_a_number(body: Any) -> None:
    body["results"][-1]["seq"] += 1


def _other_run(body: Any) -> None:
    _first_trigger(body)["metadata"]["automation_run_id"] = "other:1"


def _no_source(body: Any) -> None:
    for message in body["results"]:
        if message["turn"] == _first_trigger(body)["turn"]:
            message["metadata"].pop("source", None)


def _tell_everybody(body: Any) -> None:
    body["results"].append(body["results"][0] | {"content": background.JOB})


def _each(**said: Any) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        for row in body["results"]:
            row.update(said)

    return change


LIES: list[tuple[str, str, Callable[[Any], None], str]] = [
    ("GET", "/messages/", _show_instructions, "sentences stands in the history"),
    ("GET", "/messages/", _hide_instructions, "sentences stands in the history"),
    ("GET", "/messages/", _skip_a_number, "numbered without a gap"),
    ("GET", "/messages/", _other_run, "its metadata names automation, run and prompt"),
    ("GET", "/messages/", _no_source, "the answer is marked with its source"),
    (
        "GET",
        r"/runs/[^/]+/",
        lambda body: body.update(rendered_prompt=body["rendered_prompt"] + " "),
        "hash is that",
    ),
    ("GET", r"/runs/[^/]+/", lambda body: body.update(state="failed"), "its run succeeded"),
    ("GET", r"/turns/\d+/", lambda body: body.update(state="failed"), "the turn succeeded"),
    (
        "DELETE",
        r"/sessions/[^/]+/",
        lambda body: body.update(automations=[]),
        "with the automations in the way",
    ),
    (
        "DELETE",
        "delete_automations=true",
        lambda body: body.update(deleted_automations=[]),
        "with the automations that went along",
    ),
    ("GET", "/messages/", _tell_everybody, "nothing of the chat stands in it"),
    ("GET", "/routines/", _each(source="manual"), "isolated, once, at home in this session"),
    ("GET", r"/sessions/[^/?]+/", lambda body: body.update(state="idle"), "the slot's, and archived"),
    ("GET", "/mailbox/", _each(detail="Something else."), "it holds the answer"),
    ("GET", "/mailbox/", _each(turn=None), "that turn acknowledged it"),
    ("GET", "/mailbox/", _each(state="pending"), "nothing waits any more"),
    ("GET", "/sessions/[^/]+/turns/", _each(reply="All quiet."), "it says HEARTBEAT_OK"),
    ("GET", r"/turns/\d+/", lambda body: body.update(kind="automation"), "a heartbeat's turn"),
]


def test_a_recorded_tour_passes_when_it_is_played_again(replay: Replay) -> None:
    report = _play(replay)
    assert (report.passed, report.failed) == (CHECKS, 0)


@pytest.mark.parametrize(("method", "ending", "change", "noticed"), LIES)
def test_the_tour_notices(
    replay: Replay,
    capsys: pytest.CaptureFixture[str],
    method: str,
    ending: str,
    change: Callable[[Any], None],
    noticed: str,
) -> None:
    replay.change(method, ending, change)
    report = _play(replay)
    assert report.failed
    assert noticed in "\n".join(_failures(capsys.readouterr().out))


def test_the_tour_notices_a_session_that_survives_its_deletion(replay: Replay) -> None:
    for answers in replay.answers.values():
        if len(answers) > 1 and answers[-1].status == 404:
            answers[-1] = answers[0]
    assert _play(replay).failed >= 1


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
