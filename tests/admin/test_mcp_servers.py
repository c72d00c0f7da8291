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
from tests.admin.conftest import agent_form, shown, url
from tests.conftest import Person

SECRET = "secret-of-the-server-4711"


def sent(staff: Client, agent: Agent, servers: Any) -> Any:
    """The answer to these servers, typed into the form."""
    agent.refresh_from_db()
    return staff.post(url(agent, "change"), agent_form(agent, mcp_servers=json.dumps(servers)))


def stored(agent: Agent) -> Any:
    agent.refresh_from_db()
    return agent.mcp_servers


def test_the_form_hides_server_secrets_and_keeps_them_when_saved(staff: Client, person: Person) -> None:
    address = f"https://docs.example.org/mcp?key={SECRET}&v=2"
    docs = {"url": address, "headers": {"Authorization": SECRET}}
    agent = update_agent(person.agent.pk, {"mcp_servers": {"docs": docs}})
    text = shown(staff, agent)
    assert "https://docs.example.org/mcp?key=***&v=***" in unescape(text)
    assert SECRET not in text
    hidden = {"url": "https://docs.example.org/mcp?key=***&v=***", "headers": {"Authorization": "***"}}
    assert sent(staff, agent, {"docs": hidden | {"trusted": True}}).status_code == 302
    assert stored(agent)["docs"] == docs | {"trusted": True}
    assert SECRET not in str(list(LogEntry.objects.values()))
    for bad, words in (
        ({"url": "https://evil.example.org/mcp?key=***&v=***"}, "must be given whole"),
        ({"url": "http://10.0.0.1/"}, "not a public address"),
    ):
        refused = sent(staff, agent, {"docs": bad})
        assert refused.status_code == 200
        assert words in refused.content.decode()
        assert stored(agent)["docs"]["url"] == address
    assert sent(staff, agent, {}).status_code == 302
    assert stored(agent) == {}


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
