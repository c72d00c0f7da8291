"""How many statements a request sends, and that a page reads the rows that it shows (rule 10.0)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.api.conftest import Caller, problem

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]

ALWAYS = 2  # the token with its user, and the allowance


def statements(caller: Caller, method: str, path: str, data: Any = None, **headers: str) -> list[str]:
    """The statements of a request; not those that delimit a transaction."""
    caller.get("/api/agents/")  # the first request of a user makes the row of its allowance
    with CaptureQueriesContext(connection) as captured:
        response = caller(method, path, data, **headers)
    assert response.status_code in {200, 202}, response.content
    sent = [query["sql"] for query in captured.captured_queries]
    return [
        text for text in sent if not text.startswith(("SAVEPOINT", "RELEASE SAVEPOINT", "BEGIN", "COMMIT"))
    ]


def test_a_message_is_received_by_two_statements(ada: Caller) -> None:
    path = f"/api/sessions/{ada.session()}/messages/"
    sent = statements(ada, "POST", path, {"content": "hello"})
    assert len(sent) == ALWAYS + 2, sent  # what it depends on, and the turn with its event
    sent = statements(ada, "POST", path, {"content": "hello"}, Idempotency_Key="one")
    assert len(sent) == ALWAYS + 3, sent  # also the lock of the key
    sent = statements(ada, "POST", path, {"content": "hello"}, Idempotency_Key="one")
    assert len(sent) == ALWAYS + 4, sent  # the turn of before, as it was and as it is shown


@pytest.mark.rule("7.1")
def test_the_key_of_somebody_else_finds_nothing(ada: Caller, bob: Caller) -> None:
    path = f"/api/sessions/{ada.session()}/messages/"
    turn = ada.post(path, {"content": "secret"}, Idempotency_Key="one").json()["id"]
    problem(bob.post(path, {"content": "secret"}, Idempotency_Key="one"), 404, "not_found")
    assert ada.post(path, {"content": "secret"}, Idempotency_Key="one").json()["id"] == turn


def test_an_id_beyond_every_row_is_missing(ada: Caller) -> None:
    problem(ada.get(f"/api/turns/{2**63}/"), 404, "not_found")
    problem(ada.get(f"/api/turns/{2**63 - 1}/"), 404, "not_found")


def test_the_answer_to_a_message_shows_the_turn_as_it_is_read_later(ada: Caller) -> None:
    path = f"/api/sessions/{ada.session()}/messages/"
    answer = ada.post(path, {"content": "hello"})
    assert answer.json() == ada.get(answer.headers["Location"]).json()
