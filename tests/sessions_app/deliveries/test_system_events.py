"""System events: failed runs, dead letters and used up budgets reach the owner's program, signed and repeated."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.exceptions import ModelRefused
from agent_core.text.formats import utc_text
from automations.models import JobClock, RunRecord, RunState
from sessions_app.agents.edit import update_agent
from sessions_app.channels.webhook import secret_of, signature
from sessions_app.deliveries import outbox, system_events
from sessions_app.deliveries.send import send_next
from sessions_app.deliveries.system_events import LIMIT_DATA, EventName, report_event
from sessions_app.hints import DeliveryLane
from sessions_app.models import Agent, Delivery, DeliveryState, Session
from tests.api.conftest import Caller, new_caller, problem
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.conftest import Person
from tests.inside import Inside, call, makes
from tests.sessions_app.deliveries.receivers import Receiver

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.3")]
WORDS = "a secret of the conversation"
TIME = re.compile(r'"(\d{4}-\d\d-\d\dT[^"]*)"')


def sent(session: Session) -> None:
    """All that the session has to report is posted."""
    Delivery.objects.filter(state="pending").update(next_attempt_at=None)
    while send_next(DeliveryLane(session_id=session.pk, channel="events")):
        Delivery.objects.filter(state="pending").update(next_attempt_at=None)


def test_a_failed_run_a_dead_letter_and_a_used_up_budget_are_posted_once_each(
    inside: Inside, receiver: Receiver
) -> None:
    events_url = receiver.set("/events", "500", "take")
    bounds = {"max_attempts": 1, "max_tool_calls": 1}
    update_agent(inside.person.agent.pk, {"events_url": events_url, "policy": bounds})
    session = inside.person.session()
    job = new(session, name="n", message=WORDS, schedule=EVERY_SECOND, max_runs=1)
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    inside.beat(ModelRefused(WORDS))
    run = RunRecord.objects.get(job=job, state=RunState.FAILED)
    used_up = inside.say(session, WORDS, *(makes(call("count", name=name)) for name in ("a", "b")))
    sent(session)
    away = inside.person.session(channel="webhook", address=receiver.set("/gone", "410"))
    inside.say(away, WORDS)
    assert send_next(DeliveryLane(session_id=away.pk, channel="webhook"))
    sent(away)
    posts = [each for each in receiver.requests if each.path == "/events"]
    bodies = [json.loads(each.body) for each in posts if each.temper == "take"]
    assert sorted(body["type"] for body in bodies) == ["budget.reached", "delivery.failed", "run.failed"]
    budget, lost, failed = (body["data"] for body in sorted(bodies, key=lambda body: str(body["type"])))
    assert (failed["run"], failed["automation"], failed["attempts"]) == (run.pk, job.pk, 1)
    assert (failed["reason"], failed["scheduled_for"]) == ("model_refused", utc_text(run.scheduled_for))
    assert (budget["turn"], budget["limit"]) == (used_up.pk, used_up.error_code)
    assert used_up.error_code == "max_tool_calls"
    assert set(LIMIT_DATA) <= set(budget)
    dead = Delivery.objects.get(session=away, channel="webhook", state=DeliveryState.FAILED)
    assert dead.message is not None
    assert (lost["failed_delivery"], lost["turn"], lost["run"]) == (dead.pk, dead.message.turn_id, None)
    assert WORDS.encode() not in b"".join(each.body for each in posts)
    times = [TIME.findall(each.body.decode()) for each in posts]
    assert all(times)
    assert {time[-1] for found in times for time in found} == {"Z"}
    refused, again = [each for each in posts if each.key == f"run.failed_{run.pk}"]
    assert (refused.temper, again.temper) == ("500", "take")
    stamp = int(again.headers["webhook-timestamp"])
    secret = secret_of(inside.person.agent.pk)
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
