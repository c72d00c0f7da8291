"""The model server itself, as a process of its own and without streaming."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fleet import until
from tests.up import ROOT


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port_file = tmp_path_factory.mktemp("model") / "port"
    command = [sys.executable, "-m", "tests.model_server", "--port", "0", "--port-file", str(port_file)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            until(port_file.exists)
            yield f"http://127.0.0.1:{port_file.read_text()}"
        finally:
            process.terminate()


@pytest.fixture(autouse=True)
def _reset(base: str) -> None:
    post(f"{base}/control/reset", {})


def get(url: str, data: bytes | None = None) -> Any:
    with urllib.request.urlopen(url, data, timeout=10) as answer:
        return json.load(answer)


def post(url: str, body: Any) -> Any:
    return get(url, json.dumps(body).encode())


def complete(base: str, *texts: str, **more: Any) -> str:
    messages = [{"role": "user", "content": text} for text in texts]
    answer = post(f"{base}/v1/chat/completions", {"model": "m", "messages": messages, **more})
    return str(answer["choices"][0]["message"]["content"])


def test_it_answers_and_calls_tools_without_streaming(base: str) -> None:
    assert complete(base, "hello").startswith('You said: "hello".')
    assert complete(base, "[[reply:42]] hello") == "42"
    assert complete(base, "[[empty]] hello") == ""
    assert complete(base, "[[delay:0]] my name is Ann", "what is my name?") == (
        "Noted: your name is Ann.\nYour name is Ann. (offline model)"
    )
    tool = {"type": "function", "function": {"name": "cron", "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "list my automations"}], "tools": [tool]}
    (choice,) = post(f"{base}/v1/chat/completions", body)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "cron", "arguments": '{"action": "list"}'}


def test_a_held_call_is_let_go_from_outside(base: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(complete, base, "[[hold:a]] hello")
        until(lambda: get(f"{base}/control/held") == {"held": {"a": 1}})
        assert not asking.done()
        post(f"{base}/control/release", {"name": "a"})
        assert asking.result(10)
    assert complete(base, "[[hold:a]] again").startswith("You said")
    assert get(f"{base}/control/held") == {"held": {}}


def test_it_shows_every_request_and_knows_its_model_and_nothing_else(base: str) -> None:
    complete(base, "one")
    complete(base, "two")

    def asked() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = get(f"{base}/control/requests")["requests"]
        return found

    until(lambda: {one["state"] for one in asked()} == {"answered"}, what="both have been answered")
    assert [one["body"]["messages"][0]["content"] for one in asked()] == ["one", "two"]
    assert get(f"{base}/v1/models")["data"][0]["id"] == "test"
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(f"{base}/nothing")
    refused.value.close()
