"""Each list that the schema says may be ordered is the same in both orders, page by page, the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_core.execution import new_id
from config.urls import CachedSchemaGenerator
from sessions_app.models import Agent, ExecutionState, MailboxEvent, Session, TelegramBot, TelegramChat, Turn
from tests.api.conftest import Caller, made
from tests.api.test_lists import delivery, pages, run, turn
from tests.past import ago, say

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]

ROWS = 3
LATER = "2099-01-01T00:00:0{}Z"


def ordered() -> set[str]:
    """The paths of the lists that take `order`."""
    generator: Any = CachedSchemaGenerator
    return {
        path
        for path, methods in generator().get_schema(public=True)["paths"].items()
        if "order" in {each["name"] for each in methods.get("get", {}).get("parameters", ())}
    }


def fill(ada: Caller) -> dict[str, Any]:
    """A user with three of each kind. Values of the paths' parameters."""
    agent, session = Agent.objects.get(owner=ada.user), ada.session()
    bot = TelegramBot.objects.create(agent=agent, telegram_id=1, username="bot", token_ciphertext="x")
    ids = {"name": agent.name, "session_id": session}
    ids["job_id"] = ada.automation(session)["id"]
    for n in range(ROWS):
        one = f"{n}"
        ids.setdefault("routine_id", _post_all(ada, agent.name, session, one))
        for job in (ids["job_id"], ids["routine_id"]):
            run(job, n)
        delivery(session, n)
        TelegramChat.objects.create(bot=bot, chat_id=n + 1)
        execution = {"source": "message", "status": "waiting_user", "question": "?", "asked_at": ago(1)}
        ExecutionState.objects.create(id=new_id(), session_id=session, request=one, **execution)
        MailboxEvent.objects.create(target_id=session, event_type="job_completed", summary=one)
        say(Session.objects.get(pk=session), Turn.objects.get(pk=turn(session, n)), ago(1))
    return ids


def _post_all(ada: Caller, agent: str, session: str, one: str) -> str:
    """What a request makes. The id of the routine."""
    for path, body in (
        ("/api/agents/", {"name": f"agent-{one}"}),
        (
            f"/api/agents/{agent}/hooks/",
            {"name": one, "channel": "webhook", "address": f"https://{one}.invalid/"},
        ),
        (
            "/api/connections/",
            {"name": f"of-{one}", "provider": "ollama", "base_url": "https://models.invalid/v1"},
        ),
        ("/api/tokens/", {"name": one, "scopes": ["read"]}),
        ("/api/sessions/", {"agent": agent}),
        (f"/api/sessions/{session}/scheduled-messages/", {"send_at": LATER.format(one), "message_text": one}),
    ):
        made(ada.post(path, body))
    ada.automation(session)
    routine = {"title": one, "schedule": "1d", "enabled": False}
    return str(made(ada.post(f"/api/agents/{agent}/routines/", routine))["id"])


def walked(ada: Caller, address: str, order: str) -> Iterator[Any]:
    for page in pages(ada, f"{address}?page_size=2&order={order}"):
        yield from page["results"]


def test_every_list_takes_both_orders(ada: Caller) -> None:
    ids = fill(ada)
    assert len(ordered()) > 15
    for path in ordered():
        address = path.format(**ids)
        one, other = (list(walked(ada, address, order)) for order in ("asc", "desc"))
        assert len(one) >= ROWS, address
        assert one == other[::-1], address
        assert ada.get(address).json()["results"] in (one, other)
