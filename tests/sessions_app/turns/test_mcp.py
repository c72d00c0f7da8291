"""Turns of agents with MCP servers: tools offered, called, refused, missing; no secret told."""

import logging
import socket
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_core.text.fence import fenced
from sessions_app.agents.edit import update_agent
from sessions_app.models import Agent, Message, Session, Turn, TurnState, TurnStep
from tests.agent_core.planner.plans import says
from tests.conftest import Person
from tests.inside import Inside, call, makes
from tests.mcp_servers import Docs
from tests.sessions_app.connections.test_connections import everything
from tests.sessions_app.turns.test_receive import automation

pytestmark = pytest.mark.rule("3.5")

SECRET = "secret-of-the-server-4711"


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.RONDO_MCP_HOSTS = ("127.0.0.1",)


def with_servers(person: Person, **urls: str) -> Session:
    """A session of an agent that has trusted servers with a secret each."""
    servers = {
        name: {"url": url, "trusted": True, "headers": {"Authorization": f"Bearer {SECRET}"}}
        for name, url in urls.items()
    }
    update_agent(person.agent.pk, {"mcp_servers": servers})
    return person.session()  # type: ignore[no-any-return]


def used(inside: Inside, session: Session, name: str, **given: str) -> Turn:
    """A turn that calls this tool."""
    return inside.say(session, f"Please use {name}.", makes(call(name, **given)), says("Done."))


def results(turn: Turn) -> list[tuple[str, str]]:
    rows = Message.objects.filter(turn=turn, role="tool").order_by("seq")
    return [(each["outcome"], each["output"]) for row in rows for each in row.parts["results"]]


def test_tools_are_offered_after_ours_called_and_cut(inside: Inside, docs: Docs) -> None:
    session = with_servers(inside.person, docs=docs.url)
    turn = used(inside, session, "docs__search", words="tea")
    assert (turn.state, results(turn)) == (TurnState.SUCCEEDED, [("ok", "found tea")])
    steps = TurnStep.objects.filter(turn=turn).order_by("n")
    assert [step.kind for step in steps][:4] == ["prompt", "response", "intent", "result"]
    names = [tool.name for tool in inside.model.calls[0].tools]
    ours = [name for name in names if "__" not in name]
    assert names == sorted(ours) + sorted(set(names) - set(ours))
    assert "docs__erase" in names
    [(outcome, output)] = results(used(inside, session, "docs__long"))
    assert (outcome, len(output)) == ("ok", 50_000)
    assert len({str(each.tools) for each in inside.model.calls}) == 1, "the same each time"
    assert docs.methods.count("tools/list") == 1
    assert inside.model.calls[0].entries[-1].content == turn.content, "no server is missing"


@pytest.mark.parametrize(("own", "outcome"), [(True, "ok"), (False, "refused")])
def test_answers_of_an_own_server_restrict_no_turn(
    inside: Inside, docs: Docs, own: bool, outcome: str
) -> None:
    server = {"url": docs.url, "trusted": True, "own": own}
    update_agent(inside.person.agent.pk, {"mcp_servers": {"docs": server}})
    reads = makes(call("docs__search", words="tea"), call("count", "2", name="a"))
    turn = inside.say(inside.person.session(), "Look at my notes, then count.", reads, says("Done."))
    assert [each for each, _ in results(turn)] == ["ok", outcome]


def test_server_secrets_appear_in_no_row_and_no_log(
    inside: Inside, docs: Docs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    session = with_servers(inside.person, docs=docs.url)
    assert [used(inside, session, f"docs__{name}").state for name in ("leak", "fail")] == ["succeeded"] * 2
    assert any(headers.get("authorization") == f"Bearer {SECRET}" for headers in docs.headers)
    assert SECRET not in everything(Agent), "it is in the agent's own setting"
    assert SECRET not in caplog.text
    assert SECRET not in str(inside.model.calls)


def test_an_unavailable_server_is_named_and_others_still_work(inside: Inside, docs: Docs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        away = f"http://127.0.0.1:{gone.getsockname()[1]}/mcp"
    turn = used(inside, with_servers(inside.person, away=away, docs=docs.url), "docs__search", words="tea")
    assert results(turn) == [("ok", "found tea")]
    missing = fenced("missing tools", "- [away] Its tools are missing now: it cannot be reached.")
    assert inside.model.shown(0) == f"## Missing Tools\n{missing}\n\n{turn.content}"
    assert not any(tool.name.startswith("away") for tool in inside.model.calls[0].tools)
    stored = Message.objects.get(turn=turn, role="user")
    assert (stored.content, stored.model_content) == (turn.content, inside.model.shown(0))


def test_an_untrusted_servers_tool_needs_a_persons_consent(inside: Inside, docs: Docs) -> None:
    update_agent(inside.person.agent.pk, {"mcp_servers": {"docs": {"url": docs.url}}})
    session = inside.person.session()
    search = makes(call("docs__search", words="tea"))
    slot = automation(session, "look", datetime.now(UTC))
    inside.run(session, search, says("I may not."))
    assert [outcome for outcome, _ in results(slot)] == ["refused"]
    inside.model.answer_with(search, says("May I?"), search, says("Found it."))
    assert [outcome for outcome, _ in results(inside.say(session, "Look for tea."))] == ["refused"]
    assert results(inside.say(session, "yes")) == [("ok", "found tea")]


def test_an_operator_allows_servers_and_their_addresses(inside: Inside, docs: Docs, settings: Any) -> None:
    session = with_servers(inside.person, docs=docs.url)
    settings.RONDO_MCP_HOSTS = ()
    assert inside.say(session, "hello").state == TurnState.SUCCEEDED
    assert "[docs] Its tools are missing now: '127.0.0.1' is not a public address." in inside.model.shown()
    settings.RONDO_MCP = False
    assert inside.say(session, "hello").state == TurnState.SUCCEEDED
    assert inside.model.shown() == "hello"
    assert not any("__" in tool.name for tool in inside.model.calls[-1].tools)
    assert docs.headers == []
