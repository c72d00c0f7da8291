"""Every request body that the pages show is accepted by the API as it stands."""

import json
import re

import pytest

from agent_core.connections import PROVIDERS
from tests.api.conftest import Caller, made
from tests.docs.pages import page, section

pytestmark = pytest.mark.django_db


def test_the_servers_on_the_page_of_tools_are_accepted(ada: Caller) -> None:
    [servers] = re.findall(r"^(\{\"docs\": .*\})$", page("tools.md"), re.MULTILINE)
    answer = ada.patch("/api/agents/demo/", {"mcp_servers": json.loads(servers)})
    assert answer.status_code == 200, answer.content


def test_the_connections_on_the_page_of_models_are_accepted(ada: Caller) -> None:
    shown = re.findall(r"^(\{\"name\": .*\})$", page("models.md"), re.MULTILINE)
    bodies = [json.loads(each) for each in shown]
    assert [made(ada.post("/api/connections/", body))["name"] for body in bodies] == [
        "work", "local", "router", "azure-eu",
    ]  # fmt: skip
    for model in ("work:gpt-5", "local:llama3.2:3b", "azure-eu:any-deployment"):
        assert ada.patch("/api/agents/demo/", {"model": model}).status_code == 200


def test_the_page_of_models_lists_each_provider() -> None:
    table = section("models.md", "Providers")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])} == set(PROVIDERS)
    extras = {name for name, known in PROVIDERS.items() if known.extra}
    assert set(re.findall(r"'\.\[(\w+)\]'", table)) == {PROVIDERS[name].extra for name in extras}


def test_the_block_on_the_page_of_routines_is_accepted(ada: Caller) -> None:
    [block] = re.findall(r"^\{\"version\": .*\}$", section("automations.md", "HEARTBEAT.md"), re.MULTILINE)
    body = {"content": f"My routines.\n\n```json\n{block}\n```\n"}
    assert ada.put("/api/agents/demo/documents/HEARTBEAT.md/", body).json()["parse"] == "ok"
