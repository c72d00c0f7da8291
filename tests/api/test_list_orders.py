"""Each list that the schema says may be ordered is the same in both orders, page by page, the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

from sessions_app.models import Session, TelegramBot, TelegramChat, Turn
from tests.api.conftest import Caller
from tests.api.places import furnish
from tests.api.test_lists import pages, run, turn
from tests.past import ago, say

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]

ROWS = 3


def ordered() -> set[str]:
    """The paths of the lists that take `order`."""
    generator: Any = SchemaGenerator
    return {
        path
        for path, methods in generator().get_schema(public=True)["paths"].items()
        if "order" in {each["name"] for each in methods.get("get", {}).get("parameters", ())}
    }


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


def walked(ada: Caller, address: str, order: str) -> Iterator[Any]:
    for page in pages(ada, f"{address}?page_size=2&order={order}"):
        yield from page["results"]


def test_every_list_takes_both_orders(ada: Caller) -> None:
    ids = fill(ada)
    assert len(ordered()) > 15
    for path in ordered():
        address = path.format(**ids)
        one, other = (list(walked(ada, address, order)) for order in ("asc", "desc"))
        assert len(one) >= ROWS, address
        assert one == other[::-1], address
        assert ada.get(address).json()["results"] in (one, other)
