"""How many statements a request sends, and that a page reads the rows that it shows (rule 10.0)."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app.models import Lane, Turn, TurnKind
from sessions_app.postgres import pages as paging
from tests.api.conftest import Caller, problem
from tests.api.test_lists import NOON, OF_ALL_SESSIONS, delivery, found, pages, run, turn
from tests.many_rows import insert_many

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]

ALWAYS = 2  # the token with its user, and the allowance


def statements(caller: Caller, method: str, path: str, data: Any = None, **headers: str) -> list[str]:
    """The statements of a request; not those that delimit a transaction."""
    caller.get("/api/agents/")  # the first request of a user makes the row of its allowance
    with CaptureQueriesContext(connection) as captured:
        response = caller(method, path, data, **headers)
    assert response.status_code in {200, 202}, response.content
    sent = [query["sql"] for query in captured.captured_queries]
    delimiters = ("SAVEPOINT", "RELEASE SAVEPOINT", "BEGIN", "COMMIT")
    return [text for text in sent if not text.startswith(delimiters)]


def test_a_message_is_received_by_two_statements(ada: Caller) -> None:
    path = f"/api/sessions/{ada.session()}/messages/"
    sent = statements(ada, "POST", path, {"content": "hello"})
    assert len(sent) == ALWAYS + 2, sent  # what it depends on, and the turn with its event
    sent = statements(ada, "POST", path, {"content": "hello"}, Idempotency_Key="one")
    assert len(sent) == ALWAYS + 4, sent  # also the lock of the key, and the look for its turn
    sent = statements(ada, "POST", path, {"content": "hello"}, Idempotency_Key="one")
    assert len(sent) == ALWAYS + 3, sent  # the turn of before, as it was and as it is shown


@pytest.mark.rule("7.1")
def test_the_key_of_somebody_else_finds_nothing(ada: Caller, bob: Caller) -> None:
    path = f"/api/sessions/{ada.session()}/messages/"
    turn = ada.post(path, {"content": "secret"}, Idempotency_Key="one").json()["id"]
    problem(bob.post(path, {"content": "secret"}, Idempotency_Key="one"), 404, "not_found")
    assert ada.post(path, {"content": "secret"}, Idempotency_Key="one").json()["id"] == turn


def test_the_answer_to_a_message_shows_the_turn_as_it_is_read_later(ada: Caller) -> None:
    path = f"/api/sessions/{ada.session()}/messages/"
    answer = ada.post(path, {"content": "hello"})
    assert answer.json() == ada.get(answer.headers["Location"]).json()


def test_a_search_reads_the_newest_only(ada: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "MOST_SEARCHED", 3)
    session = ada.session()
    turns = [turn(session, minute) for minute in range(5)]
    assert found(ada, "/api/turns/?search=hello") == turns[:1:-1]
    assert found(ada, "/api/turns/?search=hello&order=asc") == turns[2:]


def test_rows_of_one_instant_are_listed_once_in_both_directions(ada: Caller) -> None:
    """More of them than a cursor may skip: a batch of automations gives all its turns one time."""
    one = Turn(session_id=ada.session(), kind=TurnKind.AUTOMATION, lane=Lane.AUTO, queued_at=NOON)
    insert_many(one, 1_200)
    for order in ("asc", "desc"):
        walked = list(pages(ada, f"/api/turns/?page_size=200&order={order}"))
        ids = [each["id"] for page in walked for each in page["results"]]
        assert ids == sorted(set(ids), reverse=order == "desc")
        assert len(ids) == 1_200
        earlier = pages(ada, walked[-2]["next"], "previous")
        back = [[each["id"] for each in page["results"]] for page in earlier]
        assert [each for page in reversed(back) for each in page] == ids


def test_a_list_asks_for_which_rows_and_for_the_rows(ada: Caller) -> None:
    session = ada.session()
    job = ada.automation(session)["id"]
    few = len(statements(ada, "GET", "/api/sessions/"))
    for n in range(3):
        ada.session()
        turn(session, n), run(job, n), delivery(session, n), ada.automation(session)
    assert len(statements(ada, "GET", "/api/sessions/")) == few, "all previews are read at once"
    for address in OF_ALL_SESSIONS:
        page = ada.get(f"{address}?page_size=2").json()
        for each in (address, page["next"]):
            sizes = address == "/api/turns/"  # of the replies
            assert len(statements(ada, "GET", each)) == ALWAYS + 2 + sizes, each
        assert len(statements(ada, "GET", f"{address}?search=x")) <= ALWAYS + 3, address
