"""Turns of agents with MCP servers, in real workers: tools offered, called, refused, missing; no secret told."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.apps import apps
from django.core import serializers

from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer
from agent_core.text.fence import fenced
from agent_core.types import ToolCall
from sessions_app.agents.edit import update_agent
from sessions_app.models import Agent, Message, Turn, TurnState, TurnStep
from sessions_app.turns.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.mcp_servers import Docs, strange
from tests.sessions_app.turns.test_receive import automation
from tests.stories.test_main_job import ended

pytestmark = pytest.mark.rule("3.5")

SECRET = "secret-of-the-server-4711"


@pytest.fixture(autouse=True)
def _allowed(settings: Any, fleet: Fleet) -> None:
    settings.RONDO_MCP_HOSTS = ("127.0.0.1",)
    fleet.environ |= {"RONDO_MCP_HOSTS": "127.0.0.1"}


@pytest.fixture
def docs() -> Iterator[Docs]:
    server = Docs()
    with server.serving() as url:
        server.url = url
        yield server


def with_servers(person: Person, **urls: str) -> Person:
    """Trusted servers with a secret each."""
    servers = {
        name: {"url": url, "trusted": True, "headers": {"Authorization": f"Bearer {SECRET}"}}
        for name, url in urls.items()
    }
    update_agent(person.agent.pk, {"mcp_servers": servers})
    return person


def said(person: Person, content: str) -> Turn:
    turn = receive(person.session().pk, MessageInput(content=content))
    until(lambda: ended(turn))
    return turn


def held(over: threading.Event) -> None:
    over.wait(60)


def results(turn: Turn) -> list[tuple[str, str]]:
    rows = Message.objects.filter(turn=turn, role="tool").order_by("seq")
    return [(each["outcome"], each["output"]) for row in rows for each in row.parts["results"]]


def told(model_server: ModelServer, number: int = -1) -> tuple[str, list[str]]:
    """What a request to the model held: its last message and the names of its tools."""
    body = model_server.requests[number].body
    last = [each["content"] for each in body["messages"] if each["role"] == "user"][-1]
    return last, [each["function"]["name"] for each in body["tools"]]


def everything() -> str:
    """All rows of all tables but the agent's own setting."""
    rows = [row for model in apps.get_models() if model is not Agent for row in model._default_manager.all()]
    return str(serializers.serialize("json", rows))


def test_tools_are_offered_after_ours_and_called(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    person = with_servers(person_with_server, docs=docs.url)
    fleet.worker()
    turn = said(person, 'use tool docs__search with {"words": "tea"}')
    assert turn.state == TurnState.SUCCEEDED
    assert results(turn) == [("ok", "found tea")]
    assert [step.kind for step in TurnStep.objects.filter(turn=turn).order_by("n")][:4] == [
        "prompt",
        "response",
        "intent",
        "result",
    ]
    last, names = told(model_server)
    assert last == turn.content
    ours = [name for name in names if "__" not in name]
    assert names == sorted(ours) + sorted(set(names) - set(ours))
    assert "docs__erase" in names
    again = said(person, "hello")
    assert again.state == TurnState.SUCCEEDED
    tools = [json.dumps(each.body["tools"]) for each in model_server.requests]
    assert len(set(tools)) == 1, "the same bytes each time"
    assert docs.methods.count("tools/list") == 1


def test_server_secrets_appear_in_no_row_and_no_log(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    person = with_servers(person_with_server, docs=docs.url)
    worker = fleet.worker(LOG_LEVEL="DEBUG")
    assert [said(person, f"use tool docs__{name}").state for name in ("leak", "fail")] == ["succeeded"] * 2
    assert any(headers.get("authorization") == f"Bearer {SECRET}" for headers in docs.headers)
    assert SECRET not in everything()
    assert SECRET not in worker.text()
    assert SECRET not in json.dumps([request.body for request in model_server.requests])


def test_what_is_too_long_is_cut(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    fleet.worker()
    turn = said(with_servers(person_with_server, docs=docs.url), "use tool docs__long")
    [(outcome, output)] = results(turn)
    assert (outcome, len(output)) == ("ok", 50_000)


def test_an_unavailable_server_is_named_and_others_still_work(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        away = f"http://127.0.0.1:{gone.getsockname()[1]}/mcp"
    person = with_servers(person_with_server, away=away, docs=docs.url)
    fleet.worker()
    turn = said(person, 'use tool docs__search with {"words": "tea"}')
    assert results(turn) == [("ok", "found tea")]
    last, names = told(model_server)
    missing = fenced("missing tools", "- [away] Its tools are missing now: it cannot be reached.")
    assert last == f"## Missing Tools\n{missing}\n\n{turn.content}"
    assert not any(name.startswith("away") for name in names)
    stored = Message.objects.get(turn=turn, role="user")
    assert (stored.content, stored.model_content) == (turn.content, last)


def test_a_hanging_server_delays_a_turn_for_a_bounded_time(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    over = threading.Event()
    with strange(lambda _it: held(over)) as (url, asked):
        person = with_servers(person_with_server, slow=url)
        fleet.worker()
        first, second = said(person, "hello"), said(person, "hello again")
        assert {first.state, second.state} == {TurnState.SUCCEEDED}
        assert first.finished_at is not None
        assert first.started_at is not None
        assert (first.finished_at - first.started_at).total_seconds() < 15
        assert "[slow] Its tools are missing now: it did not answer within 5 s." in told(model_server)[0]
        assert len(asked) == 1, "the second turn did not wait for it again"
        over.set()


def test_an_automation_may_read_and_write_but_not_erase(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    person = with_servers(person_with_server, docs=docs.url)
    fleet.worker()
    for name, outcome in (("search", "ok"), ("note", "ok"), ("erase", "refused")):
        given = '{"words": "tea"}' if name == "search" else '{"text": "tea"}'
        # a conversation of its own: what a server said is text from outside, after which nothing is written
        turn = automation(person.session(), f"use tool docs__{name} with {given}", datetime.now(UTC))
        until(lambda: ended(turn))  # noqa: B023 - it is looked at before the next one is made
        assert [each for each, _ in results(turn)] == [outcome], name
    assert docs.calls == ["search tea", "note tea"]


def test_an_untrusted_servers_tool_needs_a_persons_consent(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    person = with_servers(person_with_server, docs=docs.url)
    update_agent(person.agent.pk, {"mcp_servers": {"docs": {"url": docs.url}}})
    fleet.worker()
    session = person.session()
    turn = automation(session, 'use tool docs__search with {"words": "tea"}', datetime.now(UTC))
    until(lambda: ended(turn))
    assert [outcome for outcome, _ in results(turn)] == ["refused"]
    asked = receive(session.pk, MessageInput(content='use tool docs__search with {"words": "tea"}'))
    until(lambda: ended(asked))
    assert [outcome for outcome, _ in results(asked)] == ["refused"]
    call = ToolCall(id="again", name="docs__search", arguments={"words": "tea"})
    model_server.answer_with(ModelReply(text="", calls=(call,)), ModelReply(text="Found it."))
    agreed = receive(session.pk, MessageInput(content="yes"))
    until(lambda: ended(agreed))
    assert results(agreed) == [("ok", "found tea")]


def test_a_turn_that_is_resumed_repeats_no_call(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    person = with_servers(person_with_server, docs=docs.url)
    update_agent(person.agent.pk, {"allow_tools": ["docs__wait_and_note"]})
    session = person.session()
    worker = fleet.worker()
    done = threading.Event()

    def first() -> str:
        docs.calls.append("first")
        return str(done.wait(30))

    docs.tool("first", first, description="Waits.")
    turn = receive(session.pk, MessageInput(content="use tool docs__first"))
    until(lambda: docs.calls == ["first"])
    receive(session.pk, MessageInput(content="use tool docs__wait_and_note"))
    done.set()
    until(lambda: docs.calls == ["first", "wait"])
    worker.kill()
    fleet.worker()
    until(lambda: ended(turn))
    assert turn.state == TurnState.SUCCEEDED
    assert [outcome for outcome, _ in results(turn)] == ["ok", "unknown"]
    assert docs.calls == ["first", "wait"]


def test_an_interrupted_call_is_repeated_only_if_harmless(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    person = with_servers(person_with_server, docs=docs.url)
    session = person.session()
    worker = fleet.worker()
    turn = receive(session.pk, MessageInput(content="use tool docs__wait"))
    until(lambda: docs.calls == ["wait"])
    worker.kill()
    docs.gate.set()
    fleet.worker()
    until(lambda: ended(turn))
    assert results(turn) == [("ok", "waited")]
    assert docs.calls == ["wait", "wait"]


def test_an_operator_can_switch_all_servers_off(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    person = with_servers(person_with_server, docs=docs.url)
    fleet.worker(RONDO_MCP="0")
    assert said(person, "hello").state == TurnState.SUCCEEDED
    last, names = told(model_server)
    assert last == "hello"
    assert not any("__" in name for name in names)
    assert docs.headers == []


def test_an_address_the_operator_did_not_allow_is_not_contacted(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, docs: Docs
) -> None:
    person = with_servers(person_with_server, docs=docs.url)
    fleet.worker(RONDO_MCP_HOSTS="")
    assert said(person, "hello").state == TurnState.SUCCEEDED
    assert "[docs] Its tools are missing now: '127.0.0.1' is not a public address." in told(model_server)[0]
    assert docs.headers == []
