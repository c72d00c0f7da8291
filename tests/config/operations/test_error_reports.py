"""Errors reach a server that takes envelopes, without a text, a variable or a secret."""

from __future__ import annotations

import gzip
import json

import pytest
from django.contrib.auth.models import User

from sessions_app.queue.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.sessions_app.deliveries.receivers import http_receiver
from tests.talk import ended

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.full
def test_the_error_of_a_tool_is_reported_by_its_class_and_ids_alone(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    pytest.importorskip("sentry_sdk", reason="the extra sentry is not installed")
    User.objects.filter(pk=person_with_server.user.pk).update(username="lovelace")  # "ada" may be in an id
    with http_receiver() as receiver:
        worker = fleet.worker(RONDO_SENTRY_DSN=f"http://public@{receiver.host}/1")
        session = person_with_server.session()
        turn = receive(session.pk, MessageInput(content='use tool break with {"name": "told-in-private"}'))
        until(lambda: ended(turn))
        until(lambda: receiver.requests, what="a report")
        assert worker.stop() == 0
    taken = [gzip.decompress(each.body) for each in receiver.requests]
    [event] = [json.loads(each.splitlines()[2]) for each in taken if b'"type":"event"' in each]
    assert event["logentry"]["message"] == "tool_failed"
    assert (event["tags"]["session"], event["tags"]["turn"]) == (str(session.pk), str(turn.pk))
    [raised] = event["exception"]["values"]
    assert (raised["type"], raised["stacktrace"]["frames"][-1]["function"]) == ("RuntimeError", "_break")
    sent = b"".join(taken)
    for secret in (
        b"secret-from-a-tool",
        b"told-in-private",
        b"test-key",
        b"lovelace",
        b"vars",
        b"context_line",
    ):
        assert secret not in sent, secret
