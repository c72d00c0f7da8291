"""Each list that the schema says may be ordered is the same in both orders, page by page, the other way round."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.models import Session, TelegramBot, TelegramChat, Turn
from tests.api.conftest import Caller, operations
from tests.api.places import furnish
from tests.api.test_lists import pages, run, turn
from tests.past import ago, say

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]

ROWS = 3


def fill(ada: Caller) -> dict[str, Any]:
    """A user with three of each kind. Values of the paths' parameters."""
    session = ada.session()
    ids: dict[str, Any] = {}
    for n in range(ROWS):
        ids = furnish(ada, "demo", f"number-{n}", session).ids
        ada.agent(f"agent-{n}")
        ada.session()
        TelegramChat.objects.create(bot=TelegramBot.objects.get(), chat_id=n + 1)
        say(Session.objects.get(pk=session), Turn.objects.get(pk=turn(session, n)), ago(1))
    for n in range(ROWS):
        for job in (ids["job_id"], ids["routine_id"]):
            run(job, n)
    return ids


def test_every_list_takes_both_orders(ada: Caller, schema: Any) -> None:
    ids, found = fill(ada), 0
    for path, _, operation in operations(schema):
        if "order" not in {each["name"] for each in operation["parameters"]}:
            continue
        address = path.format(**ids)
        one, other = (
            [row for page in pages(ada, f"{address}?page_size=2&order={order}") for row in page["results"]]
            for order in ("asc", "desc")
        )
        assert len(one) >= ROWS, address
        assert one == other[::-1], address
        assert ada.get(address).json()["results"] in (one, other)
        found += 1
    assert found > 15
