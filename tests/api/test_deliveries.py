"""Deliveries over HTTP: what left the server, apart from what was done; dead letters; the key that signs."""

from typing import Any

import pytest

from sessions_app.models import Agent, Delivery, Message, Turn
from tests.api.conftest import Caller, problem

pytestmark = [pytest.mark.django_db, pytest.mark.rule("9.3")]


def answered(session_id: str, **fields: Any) -> Delivery:
    """A turn that succeeded, and the delivery of its answer."""
    turn = Turn.objects.create(
        session_id=session_id, kind="message", lane="turns", state="succeeded",
        finished_at="2026-11-22T00:00:00Z", content="hello",
    )  # fmt: skip
    message = Message.objects.create(
        session_id=session_id, turn=turn, seq=turn.pk, role="assistant", content="words"
    )
    given: dict[str, Any] = {"state": "failed", "last_error": "the receiver answered 500"} | fields
    return Delivery.objects.create(
        session_id=session_id, session_key="k", message=message, idempotency_key=f"msg_{turn.pk}",
        channel="webhook", address="https://example.org/in", attempts=10, **given,
    )  # fmt: skip


def test_run_and_delivery_are_shown_apart(ada: Caller) -> None:
    session = ada.session(channel="webhook", address="https://example.org/in")
    dead = answered(session)
    turn = ada.get(f"/api/turns/{dead.message.turn_id}/").json()  # type: ignore[union-attr]
    shown = {"id": dead.pk, "channel": "webhook", "state": "failed", "attempts": 10}
    shown["last_error"] = "the receiver answered 500"
    assert (turn["state"], turn["deliveries"]) == ("succeeded", [shown])
    [message] = ada.get(f"/api/sessions/{session}/messages/").json()["results"]
    assert message["deliveries"] == [shown]
    [listed] = ada.get(f"/api/sessions/{session}/deliveries/").json()["results"]
    one = ada.get(f"/api/deliveries/{dead.pk}/").json()
    assert one == listed
    assert {name: one[name] for name in shown} == shown
    expected = ("https://example.org/in", dead.idempotency_key, turn["id"])
    assert (one["address"], one["key"], one["turn"]) == expected


def test_only_failed_deliveries_can_be_redelivered(ada: Caller) -> None:
    session = ada.session()
    dead, sent = answered(session), answered(session, state="sent", ended_at="2026-11-22T00:00:00Z")
    again = ada.post(f"/api/deliveries/{dead.pk}/redeliver/")
    assert again.status_code == 202
    assert (again.json()["state"], again.json()["attempts"]) == ("pending", 0)
    problem(ada.post(f"/api/deliveries/{dead.pk}/redeliver/"), 409, "not_failed")
    problem(ada.post(f"/api/deliveries/{sent.pk}/redeliver/"), 409, "not_failed")
    dead.message = None  # its text went with a session
    Delivery.objects.filter(pk=dead.pk).update(state="failed", message=None)
    problem(ada.post(f"/api/deliveries/{dead.pk}/redeliver/"), 409, "not_failed")


def test_an_address_is_checked_given_and_changed(ada: Caller) -> None:
    problem(ada.post("/api/sessions/", {"agent": "demo", "channel": "webhook"}), 400, "bad_address")
    session = ada.session(channel="webhook", address="https://example.org/in")
    waits = answered(session)
    shown = ada.get(f"/api/sessions/{session}/").json()
    assert (shown["channel"], shown["address"]) == ("webhook", "https://example.org/in")
    moved = ada.patch(f"/api/sessions/{session}/", {"address": "https://example.org/out"})
    assert moved.json()["address"] == "https://example.org/out"
    waits.refresh_from_db()
    assert waits.address == "https://example.org/out"
    problem(ada.patch(f"/api/sessions/{session}/", {"address": "nowhere"}), 400, "bad_address")


def test_the_signing_secret_is_created_once_shown_and_renewed(ada: Caller) -> None:
    address = "/api/agents/demo/signing-secret/"
    answers = [ada.get(address), ada.get(address), ada.post(address)]
    assert {each.headers["Cache-Control"] for each in answers} == {"no-store"}, "no cache keeps the key"
    first, again, second = (each.json()["secret"] for each in answers)
    assert first.startswith("whsec_")
    assert again == first
    assert second != first
    assert Agent.objects.get().signing_secret == second
    assert second not in ada.get("/api/agents/demo/").content.decode()
