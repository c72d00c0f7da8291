"""The model server itself, as a process of its own and without streaming."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.testing import ModelServer
from tests.agent_core.turn.test_interrupting import until

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port_file = tmp_path_factory.mktemp("model") / "port"
    command = [sys.executable, "-m", "agent_core.testing", "--port", "0", "--port-file", str(port_file)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            until(port_file.exists)
            yield f"http://127.0.0.1:{port_file.read_text()}"
        finally:
            process.terminate()


@pytest.fixture(autouse=True)
def _reset(base: str) -> None:
    post(f"{base}/control/reset", {})


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def post(url: str, body: Any) -> Any:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=10) as answer:
        return json.load(answer)


def complete(base: str, *texts: str, **more: Any) -> str:
    messages = [{"role": "user", "content": text} for text in texts]
    answer = post(f"{base}/v1/chat/completions", {"model": "m", "messages": messages, **more})
    return str(answer["choices"][0]["message"]["content"])


def test_it_answers_without_streaming(base: str) -> None:
    assert complete(base, "hello").startswith('You said: "hello".')
    assert complete(base, "[[reply:42]] hello") == "42"
    assert complete(base, "[[empty]] hello") == ""


def test_it_calls_tools_without_streaming(base: str) -> None:
    tool = {"type": "function", "function": {"name": "cron", "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "list my automations"}], "tools": [tool]}
    (choice,) = post(f"{base}/v1/chat/completions", body)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "cron", "arguments": '{"action": "list"}'}


def test_marks_are_taken_out_before_the_message_is_read(base: str) -> None:
    assert complete(base, "[[delay:0]] my name is Ann", "what is my name?") == (
        "Noted: your name is Ann.\nYour name is Ann. (offline model)"
    )


def test_it_fails_as_often_as_it_is_told(base: str) -> None:
    statuses = []
    for _ in range(3):
        try:
            complete(base, "[[fail:503x2]] hello")
            statuses.append(200)
        except urllib.error.HTTPError as error:
            statuses.append(error.code)
            error.close()
    assert statuses == [503, 503, 200]


def test_a_held_call_is_let_go_from_outside(base: str) -> None:
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(complete(base, "[[hold:a]] hello")))
    asking.start()
    until(lambda: get(f"{base}/control/held") == {"held": {"a": 1}})
    assert answers == []
    post(f"{base}/control/release", {"name": "a"})
    asking.join(10)
    assert len(answers) == 1
    assert complete(base, "[[hold:a]] again").startswith("You said")
    assert get(f"{base}/control/held") == {"held": {}}


def test_it_shows_every_request(base: str) -> None:
    complete(base, "one")
    complete(base, "two")
    shown = get(f"{base}/control/requests")["requests"]
    assert [one["body"]["messages"][0]["content"] for one in shown] == ["one", "two"]
    assert {one["state"] for one in shown} == {"answered"}


def test_it_knows_its_model_and_nothing_else(base: str) -> None:
    assert get(f"{base}/v1/models")["data"][0]["id"] == "test"
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{base}/nothing")
    refused.value.close()


def test_in_this_process_it_is_a_context_manager() -> None:
    with ModelServer() as server:
        assert complete(server.base_url.removesuffix("/v1"), "hello").startswith("You said")
        assert len(server.requests) == 1
