"""Turns through a provider that rejects what the large ones reject, after what a model may say."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core import serializers

from agent_core.llm.protocol import ModelReply
from agent_core.mcp.offer import MOST_OF_ALL
from automations.jobs.explain import explain
from automations.models import JobClock, RunRecord
from sessions_app.agents.documents import put_document
from sessions_app.agents.edit import update_agent
from sessions_app.memory.task_state import remember
from sessions_app.models import (
    Agent,
    Delivery,
    Engine,
    Event,
    MailboxEvent,
    Message,
    Session,
    TaskState,
    Turn,
    TurnState,
)
from sessions_app.sessions.open import primary_session
from tests.admin.conftest import make_job
from tests.automations.turn_kinds.test_isolated import job_of
from tests.automations.web.test_addresses import signed_in
from tests.conftest import new_person
from tests.deletion import caller
from tests.inside import Inside, begun, call, makes
from tests.mcp_servers import Docs
from tests.model_server import ModelServer
from tests.sessions_app.turns.test_receive import automation

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.3")]
ODD = makes(
    call("", "a" * 65),
    call("functions.cron", "2"),
    call("read_document", "call-1|2", name="MEMORY.md"),
)
DONE = ModelReply(text="Done.")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        server.strict = True
        yield server


@pytest.fixture
def inside(
    transactional_db: None, broker: str, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Inside:
    """Someone whose agent's turns run here and ask the server. Its clients are kept by name."""
    inside = begun(tmp_path, monkeypatch, new_person("ada"))
    Agent.objects.update(model=f"openai-chat:strict-{server.port}")
    inside.person.agent.refresh_from_db()
    return inside


def home(inside: Inside) -> Session:
    return primary_session(inside.person.agent)


def message(inside: Inside) -> None:
    inside.say(home(inside), "hello")


def planned(inside: Inside) -> None:
    Agent.objects.update(engine=Engine.PLANNER)
    inside.say(home(inside), "hello")


def slot(inside: Inside, text: str) -> None:
    automation(home(inside), text, datetime.now(UTC))
    inside.run(home(inside))


def compressed(inside: Inside) -> None:
    for number in range(6):
        inside.say(home(inside), f"message {number}")
    assert TaskState.objects.filter(session=home(inside)).exists()


@pytest.mark.parametrize("then", [message, planned, pytest.param(compressed, marks=pytest.mark.full)])
def test_the_next_turn_works_whatever_the_model_has_said(
    inside: Inside, server: ModelServer, settings: Any, then: Callable[[Inside], None]
) -> None:
    if then is compressed:
        settings.RONDO_WINDOW_MESSAGES, settings.RONDO_CONTEXT_TOKENS = 4, 2000
    server.answer_with(ODD, DONE)
    message(inside)
    remember(home(inside).pk, {"important_facts": ["Ada likes red"]})
    then(inside)
    assert server.rejected == []
    turns = Turn.objects.order_by("id")
    assert {turn.state for turn in turns} == {TurnState.SUCCEEDED}, [turn.error_detail for turn in turns]
    assert len(server.requests) > 2


@pytest.mark.full
@pytest.mark.rule("7.6")
def test_a_talk_longer_than_the_context_goes_on(inside: Inside, server: ModelServer, settings: Any) -> None:
    """Later turns know the limit: what leaves the history becomes task state, as within the server's own limit."""
    server.most_characters, settings.RONDO_WINDOW_MESSAGES = 24_000, 10
    session = home(inside)
    for number in range(14):
        inside.say(session, f"{number} " + "some words of it " * 60)
    assert 0 < len(server.rejected) < 4
    assert set(Turn.objects.values_list("state", flat=True)) == {TurnState.SUCCEEDED}
    assert TaskState.objects.filter(session=session).exists()


def hidden_in_result(inside: Inside, server: ModelServer) -> None:
    """A tool's output is what the provider rejects."""
    put_document(inside.person.agent.pk, "MEMORY.md", "the forbidden word")
    server.answer_with(makes(call("read_document", name="MEMORY.md")))
    inside.say(home(inside), "read it")
    put_document(inside.person.agent.pk, "MEMORY.md", "nothing")


@pytest.mark.parametrize("via", ["message", "result", "slot"])
def test_what_a_provider_rejects_is_left_out_of_later_requests(
    inside: Inside, server: ModelServer, settings: Any, via: str
) -> None:
    session = home(inside)
    inside.say(session, "my favourite colour is blue " + "word " * 250)
    server.forbidden = "forbidden"
    if via == "message":
        inside.say(session, "the forbidden word")
    elif via == "result":
        hidden_in_result(inside, server)
    else:
        slot(inside, "the forbidden word")
    assert len(server.rejected) == 1
    # so that the turn compresses, too
    settings.RONDO_WINDOW_MESSAGES, settings.RONDO_CONTEXT_TOKENS = 4, 2000
    assert inside.say(session, "what is my favourite colour?").state == TurnState.SUCCEEDED
    slot(inside, "water the plants")
    assert len(server.rejected) == 1
    assert set(Turn.objects.order_by("-id").values_list("state", flat=True)[:2]) == {TurnState.SUCCEEDED}
    assert "is left out" in str([each.body for each in server.requests])
    assert TaskState.objects.filter(session=session).exists()
    shown = Message.objects.filter(session=session, content__contains="forbidden").exists()
    assert shown is (via != "result")


@pytest.mark.rule("3.5")
def test_tools_of_several_servers_stay_within_what_a_provider_takes(
    inside: Inside, server: ModelServer, settings: Any
) -> None:
    settings.RONDO_MCP_HOSTS = ("127.0.0.1",)
    docs = Docs()
    docs.tool("describe", docs._search, "d" * 1400)
    for number in range(40):
        docs.tool(f"extra{number}", docs._search)
    with docs.serving() as url:
        servers = {f"docs{number}": {"url": url} for number in range(4)}
        update_agent(inside.person.agent.pk, {"mcp_servers": servers})
        turn = inside.say(home(inside), "hello")
    assert (turn.state, server.rejected) == (TurnState.SUCCEEDED, [])
    names = [tool["function"]["name"] for tool in server.requests[-1].body["tools"]]
    assert sum("__" in name for name in names) == MOST_OF_ALL


WORDS = "Blocked by the gateway at 10.1.2.3"


def refuse(server: ModelServer) -> None:
    server.fail_with(400, {"error": {"message": f"{WORDS}.", "type": "invalid_request_error", "param": None}})


def stored() -> str:
    """All that people, channels and later model calls get."""
    rows = [row for model in (Message, Event, MailboxEvent, Delivery) for row in model.objects.all()]
    return str(serializers.serialize("json", rows))


@pytest.mark.rule("3.6")
def test_a_providers_words_are_the_owners_alone(inside: Inside, server: ModelServer, telegram: None) -> None:
    session = inside.person.session()
    Session.objects.filter(pk=session.pk).update(channel="telegram", chat_id="7")
    refuse(server)
    turn = inside.say(session, "hello")
    assert (turn.state, turn.error_code, turn.provider_message) == (TurnState.FAILED, "model_refused", WORDS)
    assert turn.error == "The model provider rejected the request (400: bad request)."
    assert Delivery.objects.count() == 1
    assert caller(inside.person)("GET", f"/api/turns/{turn.pk}/").json()["provider_message"] == WORDS
    assert WORDS in signed_in(inside.person).get(f"/sessions/{session.pk}/").content.decode()
    server.fail_with(0, {})
    inside.say(session, "hello again")
    assert turn.error in json.dumps([each.body for each in server.requests])
    assert WORDS not in json.dumps([each.body for each in server.requests[1:]]) + stored()


@pytest.mark.rule("3.6")
def test_a_run_tells_the_words_of_its_provider_to_its_owner(inside: Inside, server: ModelServer) -> None:
    job = make_job(home(inside))
    JobClock.objects.filter(job=job).update(next_run_at=datetime.now(UTC))
    refuse(server)
    inside.beat()
    run = RunRecord.objects.get(job=job)
    assert (run.provider_message, WORDS in run.error) == (WORDS, False)
    assert WORDS in explain(inside.person.user, job.pk).last[0].text
    found = caller(inside.person)("GET", f"/api/automations/{job.pk}/runs/").json()
    assert WORDS in json.dumps(found)
    job_of(inside.person, "report")
    inside.beat()
    assert MailboxEvent.objects.filter(event_type="job_failed").exists()
    assert WORDS not in stored()
    assert Turn.objects.filter(provider_message=WORDS).count() == 2
