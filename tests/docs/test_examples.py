"""Every request body that the pages and the OpenAPI schema show is accepted by the API as it stands."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from sessions_app.models import ConsentQuestion, ExecutionState
from tests.api.conftest import Caller, made, new_caller
from tests.docs.pages import page, section

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Caller:
    caller = new_caller("ada")
    caller.agent()
    return caller


@pytest.fixture
def schema() -> Any:
    return Client().get("/api/schema/", headers={"Accept": "application/json"}).json()


def values(ada: Caller) -> dict[str, str]:
    """Something of hers for each parameter of a path."""
    session = ada.session()
    ExecutionState.objects.create(
        id="question", session_id=session, source="message", status="waiting_user", request="plan a trip",
        question="When?", asked_at=Now(),
    )  # fmt: skip
    ExecutionState.objects.create(
        id="erasing", session_id=session, source="message", status="waiting_confirmation", request="tidy up",
        question="May I?", question_id="consent", asked_at=Now(),
    )  # fmt: skip
    calls = [{"name": "erase", "arguments": {}}]
    ConsentQuestion.objects.create(
        id="consent",
        session_id=session,
        execution="erasing",
        turn_id=1,
        text="May I?",
        calls=calls,
        asked_seq=1,
    )
    return {
        "name": "demo",
        "document": "USER.md",
        "session_id": session,
        "job_id": ada.automation(session)["id"],
        "routine_id": made(ada.post("/api/agents/demo/routines/", {"title": "Tea", "schedule": "1h"}))["id"],
        "execution_id": "question",
        "question_id": "consent",
    }


def post_by_hook(ada: Caller, hook: Any, body: Any) -> int:
    sent = {
        "Authorization": f"Bearer {hook['token']}",
        "Webhook-Id": "build-7",
        "Webhook-Timestamp": str(int(time.time())),
    }
    address = f"/api/hooks/{hook['id']}/messages/"
    return int(
        ada.client.post(address, json.dumps(body), content_type="application/json", headers=sent).status_code
    )


def test_every_request_body_has_an_accepted_example(ada: Caller, schema: Any) -> None:
    ada.patch("/api/agents/demo/", {"engine": "planner"})  # so that a question can be answered
    known, checked = values(ada), 0
    hook = made(ada.post("/api/agents/demo/hooks/", {"name": "first"}))
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"]["$ref"].rpartition("/")[2]
                example = schema["components"]["schemas"][name]["example"]
                checked += 1
                if path == "/api/hooks/{hook_id}/messages/":
                    assert post_by_hook(ada, hook, example) == 202
                    continue
                address = path.format(**known | {"hook_id": hook["id"]})
                answer = ada(method.upper(), address, example)
                assert answer.status_code in {200, 201, 202}, (method, path, example, answer.content)
    assert checked > 15


def test_the_schema_limits_timeouts_to_at_least_one_second(schema: Any) -> None:
    for name in ("NewAutomation", "PatchedAutomationChanges", "NewRoutineIn", "PatchedRoutineChanges"):
        field = schema["components"]["schemas"][name]["properties"]["timeout_seconds"]
        assert (field["minimum"], field["maximum"]) == (1, 86_400)


def test_the_bodies_shown_for_hooks_are_accepted(ada: Caller) -> None:
    make, post = (
        json.loads(body)
        for body in re.findall(r"-d '(\{.*\})'", section("how-to.md", "Add a hook and post a message by it"))
    )
    hook = made(ada.post("/api/agents/demo/hooks/", make))
    assert post_by_hook(ada, hook, post) == 202


def test_the_servers_on_the_page_of_tools_are_accepted(ada: Caller) -> None:
    [servers] = re.findall(r"^(\{\"docs\": .*\})$", page("tools.md"), re.MULTILINE)
    answer = ada.patch("/api/agents/demo/", {"mcp_servers": json.loads(servers)})
    assert answer.status_code == 200, answer.content


def test_the_block_on_the_page_of_routines_is_accepted(ada: Caller) -> None:
    [block] = re.findall(r"^\{\"version\": .*\}$", section("automations.md", "HEARTBEAT.md"), re.MULTILINE)
    body = {"content": f"My routines.\n\n```json\n{block}\n```\n"}
    assert ada.put("/api/agents/demo/documents/HEARTBEAT.md/", body).json()["parse"] == "ok"
