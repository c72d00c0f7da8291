"""An agent's MCP servers in the admin: the same verb, and no secret on any page."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.admin.models import LogEntry
from django.test import Client

from sessions_app.agents import update_agent
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


def test_a_page_shows_servers_without_secrets_and_sent_back_it_keeps_them(
    staff: Client, person: Person
) -> None:
    agent = update_agent(person.agent.pk, {"mcp_servers": {"docs": DOCS}})
    page = url(agent, "change")
    text = staff.get(page).content.decode()
    assert "docs.example.org" in text
    assert SECRET not in text
    shown = {"docs": {"url": DOCS["url"], "headers": {"Authorization": "***"}, "trusted": True}}
    assert staff.post(page, form(agent, shown)).status_code == 302
    assert stored(agent)["docs"] == DOCS | {"trusted": True}
    assert SECRET not in str(list(LogEntry.objects.values()))


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
