"""Notifications of a process reach who listens, also after the server has ended the connection for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings

from sessions_app.postgres.notify import EVENTS, JOBS, Publisher, Try

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 10.0  # longest wait for a notification


@contextmanager
def listening(*channels: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(settings.DATABASE_LOCK_URL, autocommit=True) as listener:
        for channel in channels:
            listener.execute(f'LISTEN "{channel}"')
        yield listener


def heard(listener: psycopg.Connection[Any]) -> str:
    [notify] = listener.notifies(timeout=SECONDS, stop_after=1)
    return notify.payload


def end_connection(publisher: Publisher, listener: psycopg.Connection[Any]) -> None:
    """As a restart of the server does, or an administrator."""
    assert publisher._connection is not None
    listener.execute("SELECT pg_terminate_backend(%s, 5000)", [publisher._connection.info.backend_pid])


def test_what_is_said_after_the_server_ended_the_connection_is_not_lost() -> None:
    """With it a revocation would be lost, and open streams would go on until their next check."""
    publisher = Publisher()
    with listening(JOBS) as listener:
        publisher.notify(JOBS, {"n": 1})
        assert heard(listener) == '{"n": 1}'
        publisher.flush(SECONDS)
        end_connection(publisher, listener)
        publisher.notify(JOBS, {"n": 2})
        assert heard(listener) == '{"n": 2}'
        publisher.flush(SECONDS)
    publisher.close()


def test_a_piece_of_an_answer_is_never_sent_twice() -> None:
    """Nobody knows whether it was sent before the connection ended, and readers would show it twice."""
    publisher = Publisher()
    with listening(JOBS, EVENTS) as listener:
        publisher.notify(JOBS, {"n": 1})
        assert heard(listener) == '{"n": 1}'
        publisher.flush(SECONDS)
        end_connection(publisher, listener)
        publisher.delta("s", 1, Try(attempt=1), "a piece")
        publisher.flush(SECONDS)
        publisher.notify(JOBS, {"n": 2})
        assert heard(listener) == '{"n": 2}'
    publisher.close()
