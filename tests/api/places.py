"""Something of everything that a user can have, in one place or in several, each full of a word of its own.

Nobody who does not reach a place may ever be shown its word.
"""

from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.core import serializers

from agent_core.execution import new_id
from automations.models import CronJob, RunRecord
from sessions_app.models import (
    Agent,
    ConsentQuestion,
    Delivery,
    ExecutionState,
    MailboxEvent,
    TelegramBot,
    TelegramChat,
)
from tests.api.conftest import Caller, made, new_caller

LATER = "2099-01-01T00:00:00Z"
NOON = "2026-11-21T00:00:00Z"


@dataclass(kw_only=True)
class Place:
    """A session with its contents. `ids`: by the name of a path parameter."""

    agent: str
    session: str
    secret: str
    hook_token: str
    ids: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Places:
    """`here` is where a limited token is at home, `beside` is of the same agent, `away` of another one."""

    caller: Caller
    here: Place
    beside: Place
    away: Place

    def words_outside(self, *places: Place) -> list[str]:
        """What must not be shown to somebody who reaches only these places."""
        hidden = [each for each in (self.here, self.beside, self.away) if each not in places]
        agents = {each.agent for each in hidden} - {each.agent for each in places}
        return [*agents, *(word for each in hidden for word in (each.secret, each.session, *_unique(each)))]


def _unique(place: Place) -> list[str]:
    of_session = ("job_id", "run_id", "message_id", "execution_id", "question_id")
    return [str(place.ids[name]) for name in of_session]


def settle_places() -> Places:
    """The user and the places."""
    caller = new_caller("ada")
    for name in ("agent-here", "agent-away"):
        caller.agent(name)
    here, beside = (furnish(caller, "agent-here", word) for word in ("secret-here", "secret-beside"))
    return Places(caller=caller, here=here, beside=beside, away=furnish(caller, "agent-away", "secret-away"))


def furnish(caller: Caller, agent: str, secret: str, session: str = "") -> Place:
    """Everything, in a session of the agent; by default in a new one."""
    session = session or caller.session(agent, title=secret)
    hook = made(caller.post(f"/api/agents/{agent}/hooks/", {"name": secret}))
    place = Place(agent=agent, session=session, secret=secret, hook_token=hook["token"])
    turn = caller.post(f"/api/sessions/{session}/messages/", {"content": secret}).json()["id"]
    job = caller.automation(session, name=secret, message=secret, enabled=False)["id"]
    asked = {"send_at": LATER, "message_text": secret, "replace_existing": True}
    message = made(caller.post(f"/api/sessions/{session}/scheduled-messages/", asked))["id"]
    MailboxEvent.objects.create(target_id=session, event_type="job_completed", summary=secret, detail=secret)
    place.ids = {
        "session_id": session,
        "turn_id": turn,
        "job_id": job,
        "run_id": run_of(job, secret),
        "message_id": message,
        "hook_id": hook["id"],
        **_waiting(session, turn, secret),
        **_of_agent(caller, agent, secret),
        **_of_account(caller, secret),
    }
    return place


def run_of(job: str, secret: str) -> str:
    run = RunRecord.objects.create(
        run_id=f"{job}:1000", job_id=job, session_id=CronJob.objects.get(pk=job).session_id, reason="overlap",
        scheduled_for="1970-01-01T00:00:01Z", state="skipped", finished_at=NOON,
        rendered_prompt=secret, prompt_variables={"name": secret},
    )  # fmt: skip
    return str(run.pk)


def _waiting(session: str, turn: int, secret: str) -> dict[str, Any]:
    """Questions that wait, and a dead letter."""
    execution = ExecutionState.objects.create(
        id=new_id(), session_id=session, source="message", status="waiting_user", request=secret, question=secret,
        asked_at=NOON,
    )  # fmt: skip
    question = ConsentQuestion.objects.create(
        id=new_id(), session_id=session, turn_id=turn, text=secret, calls=[{"name": secret, "arguments": {}}],
        asked_seq=1,
    )  # fmt: skip
    delivery = Delivery.objects.create(
        session_id=session, session_key=secret, idempotency_key=secret, channel="email", address=secret,
        state="failed", last_error=secret,
    )  # fmt: skip
    return {"execution_id": execution.pk, "question_id": question.pk, "delivery_id": delivery.pk}


def _of_agent(caller: Caller, agent: str, secret: str) -> dict[str, Any]:
    """What an agent has, full of its name: it is made once for each agent, except what has the place's word."""
    address = f"/api/agents/{agent}"
    owner = Agent.objects.get(name=agent, owner=caller.user)
    for content in (agent, f"{agent}, again"):
        caller.put(f"{address}/documents/USER.md/", {"content": content})
    caller.patch(f"{address}/preferences/", {"content": agent})
    bot, _ = TelegramBot.objects.get_or_create(
        agent=owner, defaults={"telegram_id": owner.pk, "username": agent, "token_ciphertext": "x", "enabled": False}
    )  # fmt: skip
    TelegramChat.objects.get_or_create(bot=bot, chat_id=4001, defaults={"name": agent})
    asked = {"title": f"{agent} {secret}", "schedule": "1d", "enabled": False}
    routine = made(caller.post(f"{address}/routines/", asked))
    return {"name": agent, "document": "USER.md", "revision": 1, "chat_id": 4001, "routine_id": routine["id"]}


def _of_account(caller: Caller, secret: str) -> dict[str, Any]:
    there = {"provider": "ollama", "base_url": "https://models.invalid/v1", "models": ["m"]}
    named = {"name": f"c-{secret}", "secret": secret}
    connection = made(caller.post("/api/connections/", there | named))
    token = made(caller.post("/api/tokens/", {"name": secret, "scopes": ["read"]}))
    return {"connection": connection["name"], "token_id": token["id"]}


def belongings(words: set[bytes]) -> list[str]:
    """Every row that has one of these words, to the letter."""
    tables = (model._default_manager.order_by("pk") for model in apps.get_models())
    lines = [line for rows in tables for line in serializers.serialize("jsonl", rows).splitlines()]
    return [line for line in lines if any(word.decode() in line for word in words)]
