"""An unexpected exception is logged once with its trace, and counted; an expected one is a warning without a trace."""

import ast
import gzip
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from agent_core.exceptions import ModelUnavailable
from agent_core.planner import live
from config import logs
from sessions_app import metrics
from sessions_app.agents.edit import update_agent
from sessions_app.connections.edit import add_connection
from sessions_app.models import Counter, Turn
from sessions_app.postgres.notify import Publisher
from sessions_app.queue.receive import MessageInput, receive
from tests.agent_core.planner.plans import says
from tests.api.conftest import start_web
from tests.conftest import Person
from tests.fleet import QUICK, Fleet, until
from tests.inside import MODEL, Inside
from tests.model_server import ModelServer
from tests.sessions_app.deliveries.receivers import http_receiver
from tests.sessions_app.turns.test_compression import long_session
from tests.talk import ended
from tests.test_style import _modules, _name

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "own-key-of-the-connection-4711"
BUG = f"told {SECRET}"
# broad handlers that show the error to those who can do something about it, or give it to a caller that raises it
NOT_LOGGED = {
    "agent_core/mcp/client.py": "raised again, translated",
    "agent_core/mcp/offer.py": "an answer of a user's own server, in the warning and in the agent's settings",
    "agent_core/turn/exchange.py": "raised in the turn's thread",
    "automations/firing/beat_ping.py": "the operator's own receiver; its address may be a secret",
    "interfaces/http/server/handler.py": "Django logs it, as it logs one of a view",
    "config/mcp_bridge.py": "a client's program: the answer to its user says it",
    "config/operations/doctor.py": "the finding of doctor",
    "interfaces/web/password_reset.py": "the mail server refused a letter; its text may name the address",
    "sessions_app/deliveries/send.py": "the attempt to send reports it",
}


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Reads what was logged since the last call, as a process writes it, without what is no warning and no error."""
    formatter = dict(logs.logging_config("INFO", "json")["formatters"]["line"])
    stream = io.StringIO()
    writer = logging.StreamHandler(stream)
    writer.setFormatter(formatter.pop("()")(**formatter))
    logging.getLogger().addHandler(writer)

    def read() -> list[dict[str, Any]]:
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        found = [json.loads(line) for line in text.splitlines()]
        # that no broker is there for hints is said whenever it is
        told = [each for each in found if each["event"] != "hints_dropped"]
        return [each for each in told if each["level"] in {"warning", "error"}]

    yield read
    logging.getLogger().removeHandler(writer)


def counted(event: str) -> int:
    """How many errors of this name were counted since the last call."""
    metrics.flush_counters()
    row = Counter.objects.filter(name="errors", labels={"event": event}).first()
    Counter.objects.filter(name="errors").delete()
    return row.value if row else 0


def break_the_model(inside: Inside, error: Exception) -> Turn:
    return inside.say(inside.person.session(), "hello", error)


def break_the_plan(inside: Inside, error: Exception) -> Turn:
    inside.planner()
    return break_the_model(inside, error)


def break_the_compression(inside: Inside, error: Exception) -> Turn:
    session = long_session(inside.person)
    return inside.say(session, "hi", says("hello"), error)


@pytest.mark.parametrize(
    ("broken", "event", "outage", "ends"),
    [
        (break_the_model, "model_broke", "model_failed", "internal_error"),
        (break_the_plan, "model_broke", "model_failed", "internal_error"),
        (break_the_compression, "not_compressed", "not_compressed", ""),
    ],
)
def test_a_bug_has_one_trace_and_one_count_and_an_outage_none(
    inside: Inside,
    settings: Any,
    lines: Callable[[], list[dict[str, Any]]],
    broken: Callable[[Inside, Exception], Turn],
    event: str,
    outage: str,
    ends: str,
) -> None:
    settings.RONDO_CONNECTION_HOSTS = ("127.0.0.1",)
    settings.RONDO_CONTEXT_TOKENS, settings.RONDO_WINDOW_MESSAGES = 6000, 10
    key = {"provider": "openai-chat", "base_url": "http://127.0.0.1:1999/v1", "secret": SECRET}
    add_connection(inside.person.user, "work", key)
    fields = {"model": MODEL, "fallback_model": "work:x", "policy": {"max_attempts": 1}}
    update_agent(inside.person.agent.pk, fields)
    counted(event), lines()
    turn = broken(inside, RuntimeError(BUG))
    [line] = lines()
    assert (line["event"], line["level"], turn.error_code) == (event, "error", ends)
    assert "in stream" in line["exception"], "the trace leads to the line that raised it"
    assert "RuntimeError: told ***" in line["exception"]
    assert SECRET not in f"{line} {turn.error_detail}"
    assert counted(event) == 1
    inside.model.replies.clear()
    update_agent(inside.person.agent.pk, {"fallback_model": ""})
    broken(inside, ModelUnavailable("away"))
    [line] = lines()
    assert (line["event"], line["level"], "exception" in line) == (outage, "warning", False)
    assert counted(event) == 0


def test_a_bug_beside_the_turns_has_one_trace_and_one_count(
    monkeypatch: pytest.MonkeyPatch, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    def read(_context: Any) -> str:
        raise RuntimeError(BUG)

    monkeypatch.setitem(live._PROVIDERS, "jobs", live.LiveState(name="jobs", words=(), read=read))
    counted("")
    live.read_snapshot("jobs", None)
    [line] = lines()
    assert (line["event"], counted("live_state_failed")) == ("live_state_failed", 1)
    assert "RuntimeError" in line["exception"]

    publisher = Publisher()
    assert not publisher._send([("channel", object())])  # type: ignore[list-item]
    [line] = lines()
    assert (line["event"], "exception" in line, counted("publish_failed")) == ("publish_failed", True, 1)


def test_each_broad_handler_logs_the_trace_or_raises_or_is_listed() -> None:
    silent = set()
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _tells(node):
                silent.add(_name(path))
    assert silent == set(NOT_LOGGED)


def _is_broad(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or ast.unparse(handler.type) in {"Exception", "BaseException"}


def _tells(handler: ast.ExceptHandler) -> bool:
    """Whether the handler logs the trace, or raises on each way through it."""
    text = "\n".join(map(ast.unparse, handler.body))
    logs_it = (".exception(", "exc_info=", "log_failure(", "log_failed_call(", "_unjudged(", "self._failed(")
    return any(each in text for each in logs_it) or isinstance(handler.body[-1], ast.Raise)


@pytest.mark.full
@pytest.mark.processes
def test_every_line_of_a_process_is_json(fleet: Fleet, tmp_path: Path) -> None:
    _, web = start_web(tmp_path, LOG_FORMAT="json", **QUICK)
    fleet.processes.append(web)
    started = [web, fleet.worker(LOG_FORMAT="json"), fleet.beat(LOG_FORMAT="json")]
    for process in started:
        process.stop()
        lines = process.text().splitlines()
        assert lines, process.name
        assert [line for line in lines if not line.startswith("{")] == [], process.name
        assert all(json.loads(line)["level"] for line in lines)


@pytest.mark.full
def test_the_error_of_a_tool_is_reported_by_its_class_and_ids_alone(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    pytest.importorskip("sentry_sdk", reason="the extra sentry is not installed")
    User.objects.filter(pk=person_with_server.user.pk).update(username="lovelace")  # "ada" may be in an id
    with http_receiver() as receiver:
        worker = fleet.worker(RONDO_SENTRY_DSN=f"http://public@{receiver.host}/1")
        session = person_with_server.session()
        turn = receive(session.pk, MessageInput(content='use tool break with {"name": "told-in-private"}'))
        until(lambda: ended(turn))
        until(lambda: receiver.requests, what="a report")
        assert worker.stop() == 0
    taken = [gzip.decompress(each.body) for each in receiver.requests]
    [event] = [json.loads(each.splitlines()[2]) for each in taken if b'"type":"event"' in each]
    assert event["logentry"]["message"] == "tool_failed"
    assert (event["tags"]["session"], event["tags"]["turn"]) == (str(session.pk), str(turn.pk))
    [raised] = event["exception"]["values"]
    assert (raised["type"], raised["stacktrace"]["frames"][-1]["function"]) == ("RuntimeError", "_break")
    sent = b"".join(taken)
    secrets = (b"secret-from-a-tool", b"told-in-private", b"test-key", b"lovelace", b"vars", b"context_line")
    assert [secret for secret in secrets if secret in sent] == []
