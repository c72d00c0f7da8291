"""Two users with something of everything, each full of a word that only its owner may ever be shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from django.contrib.auth.models import User
from django.core import serializers
from django.db.models.functions import Now

from agent_core.execution import Status, new_id
from automations.models import CronJob, RunRecord, ScheduledMessage
from sessions_app.models import (
    Agent,
    Connection,
    ConsentQuestion,
    Delivery,
    Document,
    Event,
    ExecutionState,
    Hook,
    MailboxEvent,
    Message,
    Preference,
    Session,
    TaskState,
    TelegramBot,
    TelegramChat,
    Turn,
)
from sessions_app.models.turn import OPEN_STATES
from tests.fleet import until
from tests.tokens import token_of

HOURLY = {"kind": "every", "seconds": 3600}
SPARED = (
    "name",
    "session_id",
    "job_id",
    "routine_id",
    "message_id",
    "hook_id",
    "connection",
    "token_id",
)  # path parameters of what can be deleted
MESSAGES = 5  # in the first session: enough events to fill a look into its stream
MARKS = 30  # for every window of the first agent: enough to fill a look into the stream of the agent


@dataclass(kw_only=True)
class Inhabitant:
    """A user. `ids`: by the name of a path parameter, the values that are this user's own."""

    name: str
    token: str
    http: httpx2.Client
    ids: dict[str, list[Any]] = field(default_factory=dict)
    hook_token: str = ""
    made: Any = field(default_factory=itertools.count)

    @property
    def secret(self) -> str:
        return f"secret-of-{self.name}"

    @property
    def words(self) -> set[bytes]:
        """What nobody else may be shown: the secret, and ids that are not guessed by chance."""
        own = {
            each
            for name, ids in self.ids.items()
            if name not in {"document", "revision", "turn_id", "delivery_id", "chat_id"}
            for each in ids
        }
        return {each.encode() for each in own | {self.secret, self.hook_token}}

    def post(self, address: str, body: Any) -> Any:
        answer = self.http.post(address, json=body)
        assert answer.status_code in {201, 202}, answer.text
        return answer.json()

    def agent(self) -> str:
        name = f"agent-of-{self.name}-{next(self.made)}"
        return str(self.post("/api/agents/", {"name": name})["name"])

    def session(self) -> str:
        given = {"agent": self.ids["name"][0], "title": self.secret}
        return str(self.post("/api/sessions/", given)["id"])

    def automation(self, session: str | None = None) -> str:
        given = {"message": self.secret, "name": self.secret, "schedule": HOURLY, "enabled": False}
        session = session or self.ids["session_id"][0]
        return str(self.post(f"/api/sessions/{session}/automations/", given)["id"])

    def routine(self) -> str:
        given = {
            "title": f"{self.secret} {next(self.made)}",
            "description": self.secret,
            "schedule": "1d",
            "enabled": False,
        }
        return str(self.post(f"/api/agents/{self.ids['name'][0]}/routines/", given)["id"])

    def scheduled_message(self) -> str:
        given = {"send_at": "2099-01-01T00:00:00Z", "message_text": self.secret, "replace_existing": True}
        return str(self.post(f"/api/sessions/{self.ids['session_id'][0]}/scheduled-messages/", given)["id"])

    def hook(self, agent: str) -> Any:
        given = {"name": self.secret, "channel": "webhook", "address": f"https://{self.secret}.invalid/"}
        return self.post(f"/api/agents/{agent}/hooks/", given)

    def connection(self) -> str:
        """The server of this connection does not exist."""
        given = {
            "name": f"of-{self.name}-{next(self.made)}",
            "provider": "ollama",
            "base_url": "https://models.invalid/v1",
            "secret": self.secret,
            "models": ["m"],
        }
        return str(self.post("/api/connections/", given)["name"])

    def token_id(self) -> str:
        """Another token, which nobody uses."""
        return str(self.post("/api/tokens/", {"name": self.secret, "scopes": ["read"]})["id"])

    def spare(self, parameter: str) -> str:
        """Something new of this kind, which may be deleted."""
        makers: dict[str, Callable[[], str]] = {
            "name": self.agent,
            "session_id": self.session,
            "job_id": self.automation,
            "routine_id": self.routine,
            "message_id": self.scheduled_message,
            "connection": self.connection,
            "token_id": self.token_id,
            "hook_id": lambda: str(self.hook(self.agent())["id"]),  # one agent has not so many
        }
        return makers[parameter]()


@contextmanager
def settle(url: str, name: str) -> Iterator[Inhabitant]:
    """A user with all that is to be seen of one, once the turns have ended."""
    user = User.objects.create_user(name)
    token = token_of(user)
    with httpx2.Client(base_url=url, headers={"Authorization": f"Token {token}"}, timeout=30) as http:
        one = Inhabitant(name=name, token=token, http=http)
        _furnish(one)
        until(lambda: not Turn.objects.filter(session__owner=user, state__in=OPEN_STATES).exists(), 60)
        yield one


def _furnish(one: Inhabitant) -> None:
    one.ids["name"] = [one.agent()]
    one.ids["document"], one.ids["revision"] = ["USER.md"], [1]
    agent = one.ids["name"][0]
    for content in (one.secret, f"{one.secret} {one.secret}"):
        one.http.put(f"/api/agents/{agent}/documents/USER.md/", json={"content": content})
    one.ids["session_id"] = sessions = [one.session() for _ in range(2)]
    one.ids["turn_id"] = [
        one.post(f"/api/sessions/{sessions[0]}/messages/", {"content": f"{one.secret} {number}"})["id"]
        for number in range(MESSAGES)
    ]
    one.ids["job_id"] = [one.automation(each) for each in sessions]
    one.ids["routine_id"] = [one.routine()]
    one.ids["message_id"] = [one.scheduled_message()]
    hook = one.hook(agent)
    one.ids["hook_id"], one.hook_token = [hook["id"]], hook["token"]
    one.ids["connection"] = [one.connection()]
    one.ids["token_id"] = [one.token_id()]
    one.ids["chat_id"] = [_chat(agent, one.secret)]
    one.ids["delivery_id"] = [_delivery(sessions[0], one.secret)]
    one.ids["execution_id"] = [_execution(sessions[0], one.secret)]
    one.ids["question_id"] = [_consent(sessions[0], one.secret)]
    one.http.patch(f"/api/agents/{agent}/preferences/", json={"content": one.secret})
    one.http.patch(f"/api/sessions/{sessions[0]}/memory/", json={"current_goal": one.secret})
    one.ids["run_id"] = [_run(one, job) for job in one.ids["job_id"]]
    MailboxEvent.objects.create(
        target_id=sessions[0], event_type="job_completed", summary=one.secret, detail=one.secret
    )
    mark: dict[str, Any] = {
        "agent": Agent.objects.get(name=agent),
        "session_id": sessions[0],
        "scope": "agent",
    }
    Event.objects.bulk_create(Event(type="status", content={"n": n}, **mark) for n in range(MARKS))


def _run(one: Inhabitant, job: str) -> str:
    run = RunRecord.objects.create(
        run_id=f"{job}:1000",
        job_id=job,
        session_id=CronJob.objects.get(pk=job).session_id,
        scheduled_for="1970-01-01T00:00:01Z",
        state="skipped",
        reason="overlap",
        finished_at="2026-11-21T00:00:00Z",
        rendered_prompt=one.secret,
        prompt_variables={"name": one.secret},
    )
    return str(run.pk)


def _delivery(session: str, secret: str) -> int:
    """A dead letter without its text."""
    row = Delivery.objects.create(
        session_id=session,
        session_key=secret,
        idempotency_key=secret,
        channel="email",
        address=f"{secret}@example.org",
        state="failed",
        last_error=secret,
    )
    return int(row.pk)


def _chat(agent: str, secret: str) -> int:
    """A chat that is connected by a Telegram bot."""
    owner = Agent.objects.get(name=agent)
    bot = TelegramBot.objects.create(
        agent=owner, telegram_id=owner.pk, username=secret, token_ciphertext=secret, enabled=False
    )
    return TelegramChat.objects.create(bot=bot, chat_id=4001, name=secret).chat_id


def _execution(session: str, secret: str) -> str:
    """A question that waits."""
    row = ExecutionState.objects.create(
        id=new_id(),
        session_id=session,
        source="message",
        status=Status.WAITING_USER,
        request=secret,
        question=secret,
        asked_at=Now(),
    )
    return str(row.pk)


def _consent(session: str, secret: str) -> str:
    """A question for consent that waits."""
    call = {"id": "1", "name": "erase", "arguments": {"name": secret}, "version": "v"}
    row = ConsentQuestion.objects.create(
        id=new_id(), session_id=session, turn_id=1, text=secret, calls=[call], asked_seq=1
    )
    return str(row.pk)


def belongings(name: str) -> list[str]:
    """Every row of a user, to the letter."""
    mine = {
        Agent: "owner",
        Document: "agent__owner",
        Session: "owner",
        Turn: "session__owner",
        Message: "session__owner",
        MailboxEvent: "target__owner",
        Delivery: "session__owner",
        ExecutionState: "session__owner",
        ConsentQuestion: "session__owner",
        TaskState: "session__owner",
        Preference: "user",
        Hook: "agent__owner",
        TelegramBot: "agent__owner",
        TelegramChat: "bot__agent__owner",
        Connection: "owner",
        CronJob: "agent__owner",
        RunRecord: "job__agent__owner",
        ScheduledMessage: "session__owner",
    }
    rows = [
        model._default_manager.filter(**{f"{owner}__username": name}).order_by("pk")
        for model, owner in mine.items()
    ]
    return [serializers.serialize("jsonl", each) for each in rows]
