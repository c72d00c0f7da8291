"""An agent's MCP servers over the API: checked, merged, and their headers never shown."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import Agent
from tests.api.conftest import Caller, problem

pytestmark = pytest.mark.rule("3.5")

SECRET = "secret-of-the-server-4711"
DOCS: dict[str, Any] = {"url": "https://docs.example.org/mcp", "headers": {"Authorization": SECRET}}
SHOWN = DOCS | {"headers": {"Authorization": "***"}, "trusted": False, "own": False}


def stored() -> Any:
    return Agent.objects.get(name="demo").mcp_servers


def put(ada: Caller, servers: Any) -> Any:
    return ada.patch("/api/agents/demo/", {"mcp_servers": servers})


def test_a_server_is_shown_without_the_values_of_its_headers(ada: Caller) -> None:
    answer = put(ada, {"docs": DOCS})
    assert answer.status_code == 200, answer.content
    assert answer.json()["mcp_servers"] == {"docs": SHOWN}
    assert stored()["docs"]["headers"] == {"Authorization": SECRET}
    for path in ("/api/agents/", "/api/agents/demo/"):
        assert SECRET not in ada.get(path).content.decode()


def test_servers_are_merged_by_name_and_null_removes_one(ada: Caller) -> None:
    put(ada, {"docs": DOCS, "maps": {"url": "https://maps.example.org/"}})
    answer = put(
        ada, {"maps": None, "mail": {"url": "https://mail.example.org/", "trusted": True, "own": True}}
    )
    assert sorted(answer.json()["mcp_servers"]) == ["docs", "mail"]
    mail = answer.json()["mcp_servers"]["mail"]
    assert (mail["trusted"], mail["own"]) == (True, True)
    put(ada, answer.json()["mcp_servers"])  # what was shown can be sent back
    assert stored()["docs"]["headers"] == {"Authorization": SECRET}


def test_an_agent_can_be_made_with_a_server(ada: Caller) -> None:
    answer = ada.post("/api/agents/", {"name": "other", "mcp_servers": {"docs": DOCS}}, Idempotency_Key="k")
    assert answer.json()["mcp_servers"] == {"docs": SHOWN}
    again = ada.post("/api/agents/", {"name": "other", "mcp_servers": {"docs": DOCS}}, Idempotency_Key="k")
    assert again.content == answer.content


def test_an_operators_host_may_be_named(ada: Caller, settings: Any) -> None:
    settings.RONDO_MCP_HOSTS = ("127.0.0.1:3000",)
    assert put(ada, {"docs": {"url": "http://127.0.0.1:3000/mcp"}}).status_code == 200
    problem(put(ada, {"docs": {"url": "http://127.0.0.1:3001/mcp"}}), 400, "bad_mcp_servers")
