"""The words of a model's provider: for the owner at the turn and the run, nowhere else (rule 3.6)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from django.core import serializers
from django.test import Client

from automations.jobs.explain import explain
from automations.models import JobClock, RunRecord
from sessions_app.models import Delivery, Event, MailboxEvent, Message, Session, Turn, TurnState
from tests.admin.conftest import make_job
from tests.automations.turn_kinds.test_isolated import job_of
from tests.doors import caller
from tests.inside import Inside
from tests.model_server import ModelServer
from tests.sessions_app.turns.test_strict_provider import home, inside, server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.6")]
__all__ = ["inside", "server"]  # fixtures
WORDS = "Blocked by the gateway at 10.1.2.3"


def refuse(server: ModelServer) -> None:
    server.fail_with(400, {"error": {"message": f"{WORDS}.", "type": "invalid_request_error", "param": None}})


def stored() -> str:
    """All that people, channels and later model calls get."""
    rows = [
        *Message.objects.all(),
        *Event.objects.all(),
        *MailboxEvent.objects.all(),
        *Delivery.objects.all(),
    ]
    return str(serializers.serialize("json", rows))


def test_they_are_for_the_owner_alone(inside: Inside, server: ModelServer, telegram: None) -> None:
    session = inside.person.session()
    Session.objects.filter(pk=session.pk).update(channel="telegram", chat_id="7")
    refuse(server)
    turn = inside.say(session, "hello")
    assert (turn.state, turn.error_code, turn.provider_message) == (TurnState.FAILED, "model_refused", WORDS)
    assert turn.error == "The model provider rejected the request (400: bad request)."
    assert Delivery.objects.count() == 1
    assert caller(inside.person)("GET", f"/api/turns/{turn.pk}/").json()["provider_message"] == WORDS
    page = Client()
    page.force_login(inside.person.user)
    assert WORDS in page.get(f"/sessions/{session.pk}/").content.decode()
    server.fail_with(0, {})
    inside.say(session, "hello again")
    assert turn.error in json.dumps([each.body for each in server.requests])
    assert WORDS not in json.dumps([each.body for each in server.requests[1:]]) + stored()


def test_a_run_tells_them_to_its_owner(inside: Inside, server: ModelServer) -> None:
    job = make_job(home(inside))
    JobClock.objects.filter(job=job).update(next_run_at=datetime.now(UTC))
    refuse(server)
    inside.beat()
    run = RunRecord.objects.get(job=job)
    assert (run.provider_message, WORDS in run.error) == (WORDS, False)
    assert WORDS in explain(inside.person.user, job.pk).last[0].text
    found = caller(inside.person)("GET", f"/api/automations/{job.pk}/runs/").json()
    assert WORDS in json.dumps(found)
    job_of(inside.person, "report")
    inside.beat()
    assert MailboxEvent.objects.filter(event_type="job_failed").exists()
    assert WORDS not in stored()
    assert Turn.objects.filter(provider_message=WORDS).count() == 2
