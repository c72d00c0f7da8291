"""Every operation of the schema, called once on a world that has something of everything."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from automations.models import RunRecord
from sessions_app.models import (
    ConsentQuestion,
    Delivery,
    ExecutionState,
    MailboxEvent,
    Message,
    TelegramBot,
    TelegramChat,
    Turn,
)
from tests.api.conftest import Caller, made
from tests.model_server import ModelServer

SECRETS = {"token": "the-token-that-is-shown-once", "ticket": "the-ticket", "secret": "dGhlLWtleQ=="}
LONGEST_PREFIX = 5  # characters


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation of the schema."""

    method: str
    path: str
    about: Any

    @property
    def id(self) -> str:
        return str(self.about["operationId"])

    @property
    def is_stream(self) -> bool:
        return self.path.endswith("/events/")

    def body(self, schema: Any) -> Any:
        """The example of its request body; None without a body."""
        for content in self.about.get("requestBody", {}).get("content", {}).values():
            shape = content["schema"]
            name = shape["$ref"].rpartition("/")[2]
            return schema["components"]["schemas"][name]["example"]
        return None


def operations(schema: Any) -> Iterator[Operation]:
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            yield Operation(method=method.upper(), path=path, about=about)


@dataclass(kw_only=True)
class World:
    """What Ada has. `ids`: by the name of a path parameter."""

    ada: Caller
    model: ModelServer
    ids: dict[str, Any] = field(default_factory=dict)
    hook_token: str = ""

    def furnish(self) -> None:
        ada = self.ada
        ada.patch("/api/agents/demo/", {"engine": "planner"})  # so that a question can be answered
        for content in ("# About me\nI live in Bonn.", "# About me\nI live in Berlin."):
            ada.put("/api/agents/demo/documents/USER.md/", {"content": content})
        ada.patch("/api/agents/demo/preferences/", {"content": "Keep answers short."})
        session = ada.session(title="Trip to Lisbon")
        ada.patch(f"/api/sessions/{session}/memory/", {"current_goal": "Plan the trip to Lisbon"})
        job = ada.automation(session, name="Morning news", message="Tell me the news.")["id"]
        hook = made(ada.post("/api/agents/demo/hooks/", {"name": "CI"}))
        self.hook_token = hook["token"]
        there = {"provider": "ollama", "base_url": self.model.base_url, "models": ["gpt-5"]}
        tea = {"title": "Tea", "schedule": "1h"}
        self.ids |= {
            "name": "demo",
            "document": "USER.md",
            "revision": 1,
            "session_id": session,
            "job_id": job,
            "routine_id": made(ada.post("/api/agents/demo/routines/", tea))["id"],
            "hook_id": hook["id"],
            "connection": made(ada.post("/api/connections/", there | {"name": "local"}))["name"],
            "message_id": self._scheduled(session),
            "run_id": _run(job, session),
            "turn_id": self._conversation(session),
            "delivery_id": _dead_letter(session),
            "chat_id": 4001,
            "token_id": made(ada.post("/api/tokens/", {"name": "CI", "scopes": ["read"]}))["id"],
        }
        _run(self.ids["routine_id"], session)
        _mail(session)
        self.ids |= _questions(session)

    def _scheduled(self, session: str) -> str:
        given = {"send_at": "2099-01-01T09:00:00+01:00", "message_text": "Happy New Year!"}
        return str(made(self.ada.post(f"/api/sessions/{session}/scheduled-messages/", given))["id"])

    def _conversation(self, session: str) -> int:
        """A question with its answer, and one that still waits."""
        address = f"/api/sessions/{session}/messages/"
        first = self.ada.post(address, {"content": "What is the capital of Portugal?"}).json()["id"]
        Turn.objects.filter(pk=first).update(
            state="succeeded", attempt=1, claimed_at=Now(), started_at=Now(), finished_at=Now(), model="offline",
            usage={"input_tokens": 412, "output_tokens": 9, "requests": 1}, lock_wait_ms=3,
        )  # fmt: skip
        said = [("user", "What is the capital of Portugal?"), ("assistant", "Lisbon.")]
        for seq, (role, text) in enumerate(said, start=1):
            Message.objects.create(session_id=session, seq=seq, role=role, content=text, turn_id=first)
        return int(self.ada.post(address, {"content": "And its population?"}).json()["id"])

    @contextmanager
    def as_it_was(self, operation: Operation) -> Iterator[None]:
        """What the block does is undone. The bot is there for the operations on it only."""
        with transaction.atomic():
            if operation.id == "retry_run":
                RunRecord.objects.filter(pk=self.ids["run_id"]).update(
                    state="failed", reason="model_refused", error="The model provider rejected the request (400).",
                    turn=self.ids["turn_id"],
                )  # fmt: skip
            if "/telegram/" in operation.path and operation.id != "create_telegram_bot":
                self._bot()
            yield
            transaction.set_rollback(True)

    def _bot(self) -> None:
        given = {"token": "123456789:AAF-the-token-that-BotFather-gave-you"}
        made(self.ada.post("/api/agents/demo/telegram/", given))
        TelegramChat.objects.create(bot=TelegramBot.objects.get(), chat_id=4001, name="Ada")

    def call(self, operation: Operation, schema: Any) -> Any:
        """Send the example of the operation."""
        address, body = operation.path.format(**self.ids), operation.body(schema)
        if any(each["name"] == "delete_automations" for each in operation.about["parameters"]):
            address += "?delete_automations=true"  # without it the answer is the list of those in the way
        if operation.id != "post_hook_message":
            return self.ada(operation.method, address, body)
        signed = {"Authorization": f"Bearer {self.hook_token}", "Webhook-Id": "build-7"}
        signed["Webhook-Timestamp"] = str(int(time.time()))
        return self.ada.client.post(
            address, json.dumps(body), content_type="application/json", headers=signed
        )


def _run(job: str, session: str) -> str:
    row = RunRecord.objects.create(
        run_id=f"{job}:1000", job_id=job, session_id=session, scheduled_for="2026-11-24T08:00:00Z", state="skipped",
        reason="overlap", finished_at="2026-11-24T08:00:01Z", rendered_prompt="Tell me the news.",
    )  # fmt: skip
    return str(row.pk)


def _dead_letter(session: str) -> int:
    row = Delivery.objects.create(
        session_id=session, session_key="webhook:ci", idempotency_key="answer-7", channel="webhook",
        address="https://ci.example/answers", state="failed", attempts=10, last_error="The receiver answered 500.",
        message=Message.objects.get(session_id=session, seq=2),
    )  # fmt: skip
    return int(row.pk)


def _mail(session: str) -> None:
    MailboxEvent.objects.create(
        target_id=session, event_type="job_completed", summary="The backup is done.", detail="3 GB in 40 s."
    )


def _questions(session: str) -> dict[str, str]:
    """A planner's question and one for consent."""
    waits: dict[str, Any] = {"session_id": session, "source": "message", "asked_at": Now()}
    ExecutionState.objects.create(
        id="question", status="waiting_user", request="Plan a trip to Lisbon", question="When?", **waits
    )
    ExecutionState.objects.create(
        id="erasing", status="waiting_confirmation", request="Tidy up", question="May I?",
        question_id="consent", **waits,
    )  # fmt: skip
    ConsentQuestion.objects.create(
        id="consent", session_id=session, execution="erasing", turn_id=1, text="May I erase old.txt?",
        calls=[{"name": "erase", "arguments": {"name": "old.txt"}}], asked_seq=1,
    )  # fmt: skip
    return {"execution_id": "question", "question_id": "consent"}


def without_secrets(value: Any, key: str = "") -> Any:
    """The response as an example may show it. What is secret keeps its prefix only, such as `rin_`."""
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    if isinstance(value, dict):
        return {name: without_secrets(each, name) for name, each in value.items()}
    if key in SECRETS and value:
        prefix, mark, _ = value.partition("_")
        return (prefix + mark if mark and len(prefix) <= LONGEST_PREFIX else "") + SECRETS[key]
    return value
