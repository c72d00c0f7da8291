"""What tokens allow through the MCP server: scopes of tools, limits, and the end of a wait."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from automations.models import CronJob
from interfaces.mcp_server.server import TOOLS
from sessions_app.models import Agent, ApiToken, Session, Turn
from sessions_app.sessions.open import open_session
from sessions_app.tokens.issue import revoke_tokens
from tests.api.conftest import Site
from tests.automations.mcp_server.conftest import McpCaller, task_request
from tests.fleet import until
from tests.tokens import new_token

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.rule("10.6")]


def caller(ada: McpCaller, *scopes: str, **limits: Any) -> McpCaller:
    return replace(ada, token=new_token(ada.user, *scopes, **limits))


def tools(one: McpCaller) -> set[str]:
    return {each.name for each in one.talk(lambda client: client.list_tools()).tools}


def test_a_token_is_offered_and_allowed_the_tools_of_its_scopes(ada: McpCaller) -> None:
    reader, talker = caller(ada, "read"), caller(ada, "talk")
    reads = {name for name, tool in TOOLS.items() if tool.scope == "read"}
    assert tools(reader) == reads
    assert tools(talker) == reads | {"ask", "answer_question", "stop", "open_session"}
    assert tools(caller(ada, "talk", "schedule")) == tools(ada) == set(TOOLS)
    given = {"message": "tea", "every_seconds": 3600}
    assert "insufficient_scope" in reader.refused("ask", {"message": "hello"})
    assert "insufficient_scope" in talker.refused("schedule", given)
    assert not Turn.objects.exists()
    assert not CronJob.objects.filter(session__isnull=False).exists()
    assert caller(ada, "schedule").call("schedule", given)["state"] == "scheduled"


def test_a_limited_token_reaches_its_own_conversation_only(ada: McpCaller) -> None:
    agent = Agent.objects.get(owner=ada.user)
    here, beside = open_session(agent, title="here"), open_session(agent, title="beside")
    again = {"message": "tea", "every_seconds": 3600, "idempotency_key": "k"}
    other = ada.call("schedule", again | {"session": str(beside.pk)})
    mine = caller(ada, "manage", session=Session.objects.get(pk=here.pk))
    assert mine.call("list_agents")["agents"] == []
    assert [each["title"] for each in mine.call("list_sessions")["sessions"]] == ["here"]
    assert mine.call("ask", {"message": "[[reply:yes]]"})["session"] == str(here.pk)  # where it is at home
    for name, given in (
        ("ask", {"message": "hello", "session": str(beside.pk)}),
        ("ask", {"message": "hello", "agent": "demo"}),
        ("read_session", {"session": str(beside.pk)}),
        ("open_session", {"agent": "demo"}),
        ("explain", {"kind": "automation", "job_id": other["id"]}),
        ("pause", {"job_id": other["id"]}),
        ("cancel_appointment", {"job_id": other["id"]}),
    ):
        assert "not_found" in mine.refused(name, given), name
    assert mine.call("schedule", again)["id"] != other["id"]
    assert CronJob.objects.filter(session=here.pk).count() == 1
    assert Turn.objects.filter(session=beside.pk).count() == 0


def test_a_token_that_reads_answers_no_question_by_the_way(ada: McpCaller, site: Site) -> None:
    """The state of an answered round is taken by get_answer, too, which needs only `read`."""
    turn = ada.call("ask", {"message": "[[reply:yes]]"})["turn"]
    handle = f"{Turn.objects.get(pk=turn).session_id}.{turn}"
    reader = caller(ada, "read")
    more: Any = {"request_state": handle}
    found = reader.talk(lambda client: client.session.call_tool("get_answer", {"turn": turn}, **more))
    assert found.is_error
    assert "insufficient_scope" in found.content[0].text

    async def cancel(client: Any) -> str:
        with pytest.raises(MCPError) as refusal:
            await task_request(client.session, "cancel", handle)
        return str(refusal.value)

    assert "insufficient_scope" in reader.talk(cancel, tasks=True)


def test_a_call_that_waits_ends_with_its_token(ada: McpCaller, site: Site) -> None:
    talker = caller(ada, "talk")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(talker.refused, "ask", {"message": "[[hold:m]] x", "wait_seconds": 50})
        until(lambda: site.metric("rondo_event_subscribers") == 1, 10)
        revoke_tokens(ApiToken.objects.filter(user=ada.user, name="another"))
        assert "not valid any more" in waiting.result(10)
    site.model.release("m")
