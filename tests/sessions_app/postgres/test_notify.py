"""Notifications of a process reach who listens, also after the server has ended the connection for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings

from sessions_app.postgres.notify import EVENTS, Publisher, Try

pytestmark = pytest.mark.django_db(transaction=True)

OWN = "of_this_test"  # a channel
SECONDS = 10.0  # longest wait for a notification


@contextmanager
def listening(*channels: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(settings.DATABASE_LOCK_URL, autocommit=True) as listener:
        for channel in channels:
            listener.execute(f'LISTEN "{channel}"')
        yield listener


def heard(listener: psycopg.Connection[Any]) -> str:
    """What the test's publisher sends next; what others of this process send is passed over."""
    for notify in listener.notifies(timeout=SECONDS):
        if notify.channel == OWN or "our session" in notify.payload:
            return notify.payload
    raise AssertionError(f"nothing within {SECONDS} s")


def end_connection(publisher: Publisher, listener: psycopg.Connection[Any]) -> None:
    """As a restart of the server does, or an administrator."""
    assert publisher._connection is not None
    listener.execute("SELECT pg_terminate_backend(%s, 5000)", [publisher._connection.info.backend_pid])


def test_what_is_said_after_the_server_ended_the_connection_is_not_lost() -> None:
    """With it a revocation would be lost, and open streams would go on until their next check."""
    publisher = Publisher()
    with listening(OWN) as listener:
        publisher.notify(OWN, {"n": 1})
        assert heard(listener) == '{"n": 1}'
        publisher.flush(SECONDS)
        end_connection(publisher, listener)
        publisher.notify(OWN, {"n": 2})
        assert heard(listener) == '{"n": 2}'
        publisher.flush(SECONDS)
    publisher.close()


def test_a_piece_of_an_answer_is_never_sent_twice() -> None:
    """Nobody knows whether it was sent before the connection ended, and readers would show it twice."""
    publisher = Publisher()
    with listening(OWN, EVENTS) as listener:
        publisher.notify(OWN, {"n": 1})
        assert heard(listener) == '{"n": 1}'
        publisher.flush(SECONDS)
        end_connection(publisher, listener)
        publisher.delta(Try("our session", 1, attempt=1), "a piece")
        publisher.delta(Try("our session", 1, attempt=2), "")  # which stops nothing
        publisher.flush(SECONDS)
        publisher.notify(OWN, {"n": 2})
        assert heard(listener) == '{"n": 2}'
    publisher.close()
