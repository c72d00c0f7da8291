"""Pages of lists over all of a user's sessions: both orders, rows of one instant, and how little is read."""

from __future__ import annotations

import pytest

from sessions_app.models import Lane, Turn, TurnKind
from sessions_app.postgres import pages as paging
from tests.api.conftest import Caller
from tests.api.test_lists import NOON, OF_ALL_SESSIONS, delivery, found, pages, run, turn
from tests.api.test_statements import ALWAYS, statements
from tests.many_rows import insert_many

pytestmark = pytest.mark.django_db

BATCH = 1_200


@pytest.mark.rule("10.0")
def test_a_search_reads_the_newest_only(ada: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "MOST_SEARCHED", 3)
    session = ada.session()
    turns = [turn(session, minute) for minute in range(5)]
    assert found(ada, "/api/turns/?search=hello") == turns[:1:-1]
    assert found(ada, "/api/turns/?search=hello&order=asc") == turns[2:]


def test_rows_of_one_instant_are_listed_once_in_both_directions(ada: Caller) -> None:
    """More of them than a cursor may skip: a batch of automations gives all its turns one time."""
    insert_many(
        Turn(session_id=ada.session(), kind=TurnKind.AUTOMATION, lane=Lane.AUTO, queued_at=NOON), BATCH
    )
    for order in ("asc", "desc"):
        walked = list(pages(ada, f"/api/turns/?page_size=200&order={order}"))
        ids = [each["id"] for page in walked for each in page["results"]]
        assert ids == sorted(set(ids), reverse=order == "desc")
        assert len(ids) == BATCH
        back = [
            [each["id"] for each in page["results"]] for page in pages(ada, walked[-2]["next"], "previous")
        ]
        assert [each for page in reversed(back) for each in page] == ids


@pytest.mark.rule("10.0")
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
            assert len(statements(ada, "GET", each)) == ALWAYS + 2, each
        assert len(statements(ada, "GET", f"{address}?search=x")) <= ALWAYS + 3, address
