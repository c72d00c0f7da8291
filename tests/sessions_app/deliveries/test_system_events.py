"""System events: failed runs, dead letters and used up budgets reach the owner's program, signed and repeated."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import IntegrityError

from agent_core.testing import ModelServer
from agent_core.text.times import utc_text
from automations.jobs.edit import NewJob, create_job
from automations.models import RunRecord, RunState
from sessions_app.channels.webhook import signature
from sessions_app.deliveries import outbox, system_events
from sessions_app.deliveries.signing_key import secret_of
from sessions_app.deliveries.system_events import EventName, report_event
from sessions_app.models import Agent, Delivery, DeliveryState, Message
from sessions_app.turns.receive import MessageInput, receive
from tests.api.conftest import Caller, new_caller, problem
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.sessions_app.deliveries.receivers import Received, Receiver
from tests.talk import ended, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.3")]
WORDS = "a secret of the conversation"
TIME = re.compile(r'"(\d{4}-\d\d-\d\dT[^"]*)"')


def body(got: Received) -> dict[str, Any]:
    return dict(json.loads(got.body))


def types(receiver: Receiver) -> list[str]:
    return sorted(body(each)["type"] for each in receiver.taken("/events"))


def heard(person: Person, receiver: Receiver, *tempers: str) -> None:
    person.agent.events_url = receiver.set("/events", *(tempers or ("take",)))
    person.agent.policy = {"max_attempts": 1, "timeout_seconds": 1}
    person.agent.save()


def test_a_failed_run_a_dead_letter_and_a_used_up_budget_are_posted_once_each(
    post: Fleet, receiver: Receiver, model_server: ModelServer, person_with_server: Person
) -> None:
    person = person_with_server
    heard(person, receiver, "500", "take")
    post.worker()
    post.beat()
    session = person.session()
    at = {"kind": "every", "seconds": 1}
    job = create_job(
        NewJob(session_id=session.pk, name="n", message=f"[[fail:503]] {WORDS}", schedule=at, max_runs=1)
    )
    until(lambda: types(receiver) == ["run.failed"])
    run = RunRecord.objects.get(job=job, state=RunState.FAILED)
    slow = receive(session.pk, MessageInput(content=f"[[hold:for-ever]] {WORDS}"))
    until(lambda: ended(slow))
    away = person.session(channel="webhook", address=receiver.set("/gone", "410"))
    say(away, WORDS)
    until(lambda: types(receiver) == ["budget.reached", "delivery.failed", "run.failed"])
    by_type = {body(each)["type"]: body(each)["data"] for each in receiver.taken("/events")}
    assert by_type["run.failed"]["run"] == run.pk
    assert (by_type["run.failed"]["automation"], by_type["run.failed"]["attempts"]) == (job.pk, 1)
    assert by_type["run.failed"]["reason"] == "model_unavailable"
    assert by_type["run.failed"]["scheduled_for"] == utc_text(run.scheduled_for)
    assert (by_type["budget.reached"]["turn"], by_type["budget.reached"]["limit"]) == (slow.pk, "timeout")
    dead = Delivery.objects.get(session=away, channel="webhook", state=DeliveryState.FAILED)
    assert by_type["delivery.failed"]["failed_delivery"] == dead.pk
    assert dead.message is not None
    assert (by_type["delivery.failed"]["turn"], by_type["delivery.failed"]["run"]) == (
        dead.message.turn_id, None,
    )  # fmt: skip
    posts = [each for each in receiver.requests if each.path == "/events"]
    assert WORDS.encode() not in b"".join(each.body for each in posts)
    times = [TIME.findall(each.body.decode()) for each in posts]
    assert all(times)
    assert {time[-1] for found in times for time in found} == {"Z"}
    refused, again = [each for each in posts if each.key == f"run.failed_{run.pk}"]
    assert (refused.temper, again.temper) == ("500", "take")
    stamp = int(again.headers["webhook-timestamp"])
    secret = secret_of(person.agent.pk)
    assert again.headers["webhook-signature"] == signature(secret, again.key, stamp, again.body)


def test_an_event_is_written_once_and_only_so_many_wait(person: Person, monkeypatch: Any) -> None:
    session = person.session()
    report_event(session.pk, EventName.RUN_FAILED, {"run": "1"}, of="1")
    assert not Delivery.objects.exists(), "the agent names no address"
    Agent.objects.update(events_url="https://example.org/events")
    monkeypatch.setattr(system_events, "MOST_WAITING", 3)
    for of in (1, 1, 2, 3, 4):
        report_event(session.pk, EventName.RUN_FAILED, {"run": str(of)}, of=str(of))
    assert [each.event for each in Delivery.objects.order_by("pk")] == [
        {"type": "run.failed", "data": {"run": str(of)}} for of in (1, 2, 3)
    ]


def test_the_loss_of_an_event_is_no_event_and_it_can_be_sent_again(person: Person) -> None:
    session = person.session()
    Agent.objects.update(events_url="https://example.org/events")
    report_event(session.pk, EventName.RUN_FAILED, {"run": "1"}, of="1")
    Delivery.objects.update(state=DeliveryState.FAILED, last_error="the receiver answered 500")
    [lost] = Delivery.objects.all()
    outbox.notify_settled(lost)
    assert Delivery.objects.count() == 1
    assert outbox.send_again(lost.pk).state == DeliveryState.PENDING


def test_a_delivery_is_of_a_message_or_of_an_event(person: Person) -> None:
    session = person.session()
    message = Message.objects.create(session=session, seq=1, role="assistant", content="x")
    with pytest.raises(IntegrityError, match="delivery_of_message_or_event"):
        Delivery.objects.create(
            session=session, session_key="k", message=message, event={}, idempotency_key="k", channel="events",
            address="https://example.org/",
        )  # fmt: skip


def test_the_address_is_checked_and_sessions_cannot_take_the_channel() -> None:
    ada: Caller = new_caller("ada")
    ada.agent()
    for bad in ("http://127.0.0.1/x", "ftp://example.org/", "https://u:p@example.org/"):
        problem(ada.patch("/api/agents/demo/", {"events_url": bad}), 400, "bad_events_url")
    for unreadable in (5, "x" * 2001):
        problem(ada.patch("/api/agents/demo/", {"events_url": unreadable}), 400, "bad_input")
    good = ada.patch("/api/agents/demo/", {"events_url": "https://example.org/events"})
    assert good.json()["events_url"] == "https://example.org/events"
    session = {"agent": "demo", "key": "events:1", "channel": "events", "address": "https://example.org/"}
    problem(ada.post("/api/sessions/", session), 400, "bad_channel")
    listed = ada.session()
    report_event(Agent.objects.get().sessions.get(pk=listed).pk, EventName.RUN_FAILED, {"run": "1"}, of="1")
    [shown] = ada.get(f"/api/sessions/{listed}/deliveries/").json()["results"]
    assert (shown["event"], shown["channel"], shown["seq"]) == ("run.failed", "events", None)
    assert ada.patch("/api/agents/demo/", {"events_url": ""}).json()["events_url"] == ""
