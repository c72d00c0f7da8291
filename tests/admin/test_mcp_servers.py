"""An agent's MCP servers in the admin: the same verb, and no secret on any page."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from agent_core.mcp.server import McpServer
from sessions_app.agents.edit import update_agent
from sessions_app.models import Agent
from tests.admin.conftest import url
from tests.conftest import Person

SECRET = "secret-of-the-server-4711"
DOCS = {"url": "https://docs.example.org/mcp", "headers": {"Authorization": SECRET}}


def form(agent: Agent, servers: Any) -> dict[str, Any]:
    return {
        "model": "offline", "timezone": "UTC", "engine": "chat", "routine_limit": "20", "policy": "{}",
        "heartbeat": json.dumps(agent.heartbeat), "seen_revision": agent.revision,
        "mcp_servers": json.dumps(servers),
    }  # fmt: skip


def stored(agent: Agent) -> Any:
    agent.refresh_from_db()
    return agent.mcp_servers


def test_the_form_hides_server_secrets_and_keeps_them_when_saved(staff: Client, person: Person) -> None:
    agent = update_agent(person.agent.pk, {"mcp_servers": {"docs": DOCS}})
    page = url(agent, "change")
    text = staff.get(page).content.decode()
    assert "docs.example.org" in text
    assert SECRET not in text
    shown = {"docs": {"url": DOCS["url"], "headers": {"Authorization": "***"}, "trusted": True}}
    assert staff.post(page, form(agent, shown)).status_code == 302
    assert stored(agent)["docs"] == DOCS | {"trusted": True}
    assert SECRET not in str(list(LogEntry.objects.values()))


def test_values_in_an_address_are_hidden_and_kept(staff: Client, person: Person) -> None:
    address = f"https://docs.example.org/mcp?key={SECRET}&v=2"
    agent = update_agent(person.agent.pk, {"mcp_servers": {"docs": {"url": address}}})
    page = url(agent, "change")
    text = staff.get(page).content.decode()
    assert "https://docs.example.org/mcp?key=***&v=***" in unescape(text)
    assert SECRET not in text
    shown = {"docs": {"url": "https://docs.example.org/mcp?key=***&v=***", "trusted": True}}
    assert staff.post(page, form(agent, shown)).status_code == 302
    assert stored(agent)["docs"]["url"] == address
    elsewhere = {"docs": {"url": "https://evil.example.org/mcp?key=***&v=***"}}
    answer = staff.post(page, form(agent, elsewhere))
    assert "must be given whole" in answer.content.decode()
    assert stored(agent)["docs"]["url"] == address


def test_a_server_that_is_left_out_is_removed(staff: Client, person: Person) -> None:
    agent = update_agent(person.agent.pk, {"mcp_servers": {"docs": DOCS}})
    assert staff.post(url(agent, "change"), form(agent, {})).status_code == 302
    assert stored(agent) == {}


def test_what_the_verb_refuses_is_an_error_of_the_field(staff: Client, person: Person) -> None:
    answer = staff.post(
        url(person.agent, "change"), form(person.agent, {"docs": {"url": "http://10.0.0.1/"}})
    )
    assert answer.status_code == 200
    assert "not a public address" in answer.content.decode()
    assert stored(person.agent) == {}


@pytest.mark.parametrize(
    ("query", "shown", "secrets"),
    [
        ("key=c2VjcmV0c2VjcmV0==", "key=***", ["c2VjcmV0c2VjcmV0==", "c2VjcmV0c2VjcmV0%3D%3D"]),
        ("key=aaa=bbb-secret", "key=***", ["aaa=bbb-secret"]),
        ("c2VjcmV0c2VjcmV0", "***", ["c2VjcmV0c2VjcmV0"]),
        ("a=&key=one%2Ftwo-three&b", "a=&key=***&***", ["one%2Ftwo-three", "one/two-three"]),
    ],
)
def test_everything_after_a_parameters_first_equals_sign_is_hidden(
    query: str, shown: str, secrets: list[str]
) -> None:
    server = McpServer(name="docs", url=f"https://docs.example.org/mcp?{query}")
    assert server.shown()["url"] == f"https://docs.example.org/mcp?{shown}"
    assert [server.without_secrets(f"you sent {secret}") for secret in secrets] == ["you sent ***"] * len(
        secrets
    )
