"""Every operation of the schema, called once on a world that has something of everything."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from automations.models import RunRecord
from sessions_app.models import (
    ConsentQuestion,
    Delivery,
    ExecutionState,
    Message,
    TelegramBot,
    TelegramChat,
    Turn,
)
from tests.api.conftest import Caller, made
from tests.api.places import furnish, run_of
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
        return self.path.endswith(("/events/", "/export/"))

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
        """What `tests/api/places.py` has, of which a turn has ended and a connection reaches a model."""
        ada = self.ada
        ada.patch("/api/agents/demo/", {"engine": "planner"})  # so that a question can be answered
        session = ada.session(title="Trip to Lisbon")
        place = furnish(ada, "demo", "lisbon", session)
        self.ids, self.hook_token = place.ids, place.hook_token
        ada.patch(f"/api/sessions/{session}/memory/", {"current_goal": "Plan the trip to Lisbon"})
        there = {"base_url": self.model.base_url, "secret": "", "models": ["gpt-5"]}
        ada.patch(f"/api/connections/{self.ids['connection']}/", there)
        ada.patch(f"/api/automations/{self.ids['job_id']}/", {"enabled": True})
        waits: dict[str, Any] = {"status": "waiting_confirmation", "source": "message", "asked_at": Now()}
        waits |= {"session_id": session, "question_id": self.ids["question_id"], "question": "May I?"}
        ExecutionState.objects.create(id="erasing", request="Tidy up", **waits)
        ConsentQuestion.objects.update(execution="erasing")
        run_of(self.ids["routine_id"], "lisbon")
        first = self.ids["turn_id"]
        Turn.objects.filter(pk=first).update(
            state="succeeded", attempt=1, claimed_at=Now(), started_at=Now(), finished_at=Now(), model="offline",
            usage={"input_tokens": 412, "output_tokens": 9, "requests": 1}, lock_wait_ms=3,
        )  # fmt: skip
        said = [("user", "What is the capital of Portugal?"), ("assistant", "Lisbon.")]
        for seq, (role, text) in enumerate(said, start=1):
            Message.objects.create(session_id=session, seq=seq, role=role, content=text, turn_id=first)
        Delivery.objects.update(message=Message.objects.get(role="assistant"))
        second = ada.post(f"/api/sessions/{session}/messages/", {"content": "And its population?"})
        self.ids["turn_id"] = second.json()["id"]

    @contextmanager
    def as_it_was(self, operation: Operation) -> Iterator[None]:
        """What the block does is undone. The bot is there for the operations on it only."""
        with transaction.atomic():
            if operation.id == "retry_run":
                RunRecord.objects.filter(pk=self.ids["run_id"]).update(
                    state="failed", reason="model_refused", error="The model provider rejected the request (400).",
                    turn=self.ids["turn_id"],
                )  # fmt: skip
            TelegramBot.objects.all().delete()
            if "/telegram/" in operation.path and operation.id != "create_telegram_bot":
                given = {"token": "123456789:AAF-the-token-that-BotFather-gave-you"}
                made(self.ada.post("/api/agents/demo/telegram/", given))
                TelegramChat.objects.create(bot=TelegramBot.objects.get(), chat_id=4001, name="Ada")
            yield
            transaction.set_rollback(True)

    def call(self, operation: Operation, schema: Any) -> Any:
        """Send the example of the operation."""
        address, body = operation.path.format(**self.ids), operation.body(schema)
        if any(each["name"] == "delete_automations" for each in operation.about["parameters"]):
            address += "?delete_automations=true"  # without it the answer is the list of those in the way
        if operation.id == "move_automation_slot":  # no time in an example stays a slot
            slot = self.ada.get(f"/api/automations/{self.ids['job_id']}/").json()["next_run_at"]
            body = {"slot": slot, "to": (datetime.fromisoformat(slot) + timedelta(minutes=1)).isoformat()}
        if operation.id != "post_hook_message":
            return self.ada(operation.method, address, body)
        signed = {"Authorization": f"Bearer {self.hook_token}", "Webhook-Id": "build-7"}
        signed["Webhook-Timestamp"] = str(int(time.time()))
        return self.ada.client.post(address, json.dumps(body), "application/json", headers=signed)


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
