"""Idempotency-Key: the same key and body give the same answer, another body is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from automations.models import CronJob, ScheduledMessage
from sessions_app.models import Agent, IdempotencyKey, Session, Turn
from tests.api.conftest import Caller, for_each, problem

pytestmark = pytest.mark.django_db

LATER = {"send_at": "2099-01-01T09:00:00Z"}
SCHEDULE = {"kind": "every", "seconds": 60}


def test_the_second_time_gives_the_first_answer(ada: Caller) -> None:
    def check(path: str, body: Any, other: Any, model: Any) -> None:
        session = ada.session()
        address = path if path.startswith("/") else f"/api/sessions/{session}/{path}/"
        first = ada.post(address, body, Idempotency_Key="one")
        count = model.objects.count()
        again = ada.post(address, dict(reversed(body.items())), Idempotency_Key="one")
        assert (again.status_code, again.json()) == (first.status_code, first.json())
        assert again.headers["Location"] == first.headers["Location"]
        problem(ada.post(address, other, Idempotency_Key="one"), 422, "idempotency_mismatch")
        assert model.objects.count() == count

    rows: list[Any] = [
        ("/api/agents/", {"name": "a", "policy": {"max_attempts": 1}}, {"name": "b"}, Agent),
        ("/api/sessions/", {"agent": "demo", "title": "a"}, {"agent": "demo"}, Session),
        (
            "automations",
            {"message": "a", "schedule": SCHEDULE},
            {"message": "b", "schedule": SCHEDULE},
            CronJob,
        ),
        ("messages", {"content": "a"}, {"content": "b"}, Turn),
        ("messages", {"content": "a"}, {"content": "a", "on_busy": "enqueue"}, Turn),
        ("/api/agents/demo/routines/", {"title": "a", "schedule": "1h"}, {"title": "b"}, CronJob),
        (
            "scheduled-messages",
            LATER | {"message_text": "a"},
            LATER | {"message_text": "b"},
            ScheduledMessage,
        ),
    ]
    for_each(rows, check)


def test_a_key_belongs_to_one_user_and_one_address(ada: Caller, bob: Caller) -> None:
    first, second = ada.session(), ada.session()
    ids = {
        caller.post(address, {"content": "a"}, Idempotency_Key="one").json()["id"]
        for caller, address in (
            (ada, f"/api/sessions/{first}/messages/"),
            (ada, f"/api/sessions/{second}/messages/"),
            (bob, f"/api/sessions/{bob.session()}/messages/"),
        )
    }
    assert len(ids) == 3
    for caller in (ada, bob):
        assert caller.post("/api/agents/", {"name": "other"}, Idempotency_Key="one").status_code == 201


def test_a_refusal_leaves_no_key_behind(ada: Caller) -> None:
    problem(ada.post("/api/agents/", {"name": "demo"}, Idempotency_Key="one"), 409, "agent_exists")
    assert ada.post("/api/agents/", {"name": "other"}, Idempotency_Key="one").status_code == 201


def test_a_key_is_kept_for_a_day(ada: Caller) -> None:
    ada.post("/api/agents/", {"name": "a"}, Idempotency_Key="old")
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(days=2))
    ada.post("/api/agents/", {"name": "b"}, Idempotency_Key="new")
    assert [each.key for each in IdempotencyKey.objects.all()] == ["new"]


def test_a_person_cannot_take_the_key_of_an_automations_slot(ada: Caller) -> None:
    session = ada.session()
    key = "run:abc:1000:1"
    ada.post(f"/api/sessions/{session}/messages/", {"content": "a"}, Idempotency_Key=key)
    assert not Turn.objects.filter(idempotency_key=key).exists()
    longest = "x" * 200
    one, two = (
        ada.post(f"/api/sessions/{session}/messages/", {"content": "b"}, Idempotency_Key=longest).json()["id"]
        for _ in range(2)
    )
    assert one == two
