"""The accounts of caps: a call is reserved before it and settled after it, once (rule 11.1)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import IntegrityError

from agent_core.spending import Account, Amount, Budget
from sessions_app.models import Reservation, Spending
from sessions_app.spending import accounts
from sessions_app.spending.accounts import CapState
from sessions_app.spending.caps import DAY, MONTH, PERIODS, RUN, cap_rows
from tests.races import UPDATE, gate

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.1")]

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
SCOPES = ("agent", "automation", "connection", "user")


def account(turn: int = 1) -> Account:
    return Account(turn=turn, claim=str(uuid.uuid4()), runs=("r:1",), agent=1, owner=1)


def caps(tokens: int | None, micro_usd: int | None = None, *, scopes: tuple[str, ...] = ("agent",)) -> Any:
    """The same caps for a run, a day and a month of each of these."""
    limits = {period: {"tokens": tokens, "usd": micro_usd and f"{micro_usd / 1e6}"} for period in PERIODS}
    budgets = [Budget(scope=scope, subject="1", name=scope, limits=limits) for scope in scopes]
    return cap_rows(budgets, NOW, ["r:1"])


def sums(*names: str) -> list[int]:
    rows = Spending.objects.values_list(*names)
    return [max(column) for column in zip(*rows, strict=True)]


def test_a_call_is_reserved_in_all_caps_or_in_none() -> None:
    wide, narrow = caps(1_000), caps(50, scopes=("user",))
    refused = accounts.reserve(account(), Amount(tokens=60), [*wide, *narrow])
    assert isinstance(refused, CapState)
    assert refused.cap["scope"] == "user"
    assert not refused.is_held
    assert sums("reserved_tokens") == [0]
    assert not Reservation.objects.exists()


def test_room_that_others_have_reserved_is_only_held() -> None:
    given = caps(100)
    first = accounts.reserve(account(), Amount(tokens=80), given)
    assert isinstance(first, int)
    second = accounts.reserve(account(), Amount(tokens=80), given)
    assert isinstance(second, CapState)
    assert second.is_held
    accounts.settle(first, Amount(tokens=20))
    assert isinstance(accounts.reserve(account(), Amount(tokens=80), given), int)


def test_two_calls_at_one_instant_do_not_both_get_the_last_room() -> None:
    given = caps(100)
    assert isinstance(accounts.reserve(account(), Amount(tokens=0), given), int)
    row = Spending.objects.order_by("key").first()
    assert row is not None
    with gate(row, UPDATE) as held:
        for _ in range(2):
            held.start(lambda: accounts.reserve(account(), Amount(tokens=60), given))
        came = held.open()
    assert sorted(isinstance(each, CapState) for each in came) == [False, True]


def test_a_reservation_is_settled_once_and_a_late_settlement_changes_nothing() -> None:
    made = accounts.reserve(account(), Amount(tokens=80), caps(100))
    assert isinstance(made, int)
    assert accounts.abandoned() == [made], "no such turn runs"
    accounts.settle(made, None)
    assert accounts.settle(made, Amount(tokens=1)) == []
    assert sums("spent_tokens", "reserved_tokens") == [80, 0]


@pytest.mark.parametrize(
    ("tokens", "percents"),
    [([79], []), ([80], [80]), ([80, 5], [80, 80]), ([100], [100]), ([40, 45, 15], [80, 100])],
)
def test_caps_that_are_nearly_spent_are_named_for_the_day_and_not_for_the_run(
    tokens: list[int], percents: list[int]
) -> None:
    """They are named until it is stored that they were told."""
    found = []
    for each in tokens:
        made = accounts.reserve(
            account(), Amount(tokens=each), [row for row in caps(100) if row["period"] != MONTH]
        )
        assert isinstance(made, int)
        crossed = accounts.settle(made, None)
        assert {each.cap["period"] for each in crossed} <= {DAY}
        found += [each.percent for each in crossed]
    assert found == percents


def test_a_model_without_a_price_counts_tokens_only() -> None:
    given = caps(None, 10)
    assert isinstance(accounts.reserve(account(), Amount(tokens=10, micro_usd=11), given), CapState)
    assert isinstance(accounts.reserve(account(), Amount(tokens=10**9), given), int)


def test_the_database_refuses_negative_sums() -> None:
    for column in ("spent_tokens", "spent_micro_usd", "reserved_tokens", "reserved_micro_usd"):
        with pytest.raises(IntegrityError):
            Spending.objects.create(key=column, **{column: -1})


def test_the_periods_begin_by_the_clock_of_the_zone() -> None:
    limits = {period: {"tokens": 1} for period in PERIODS}
    at = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)  # November in Berlin, where it is winter by now

    def rows(zone: str) -> dict[str, tuple[str, str | None]]:
        budget = Budget(scope="agent", subject="7", name="a", limits=limits, zone=zone)
        return {row["period"]: (row["key"], row["ends_at"]) for row in cap_rows([budget], at, ["r:1"])}

    assert rows("Europe/Berlin") == {
        RUN: ("agent:7:run:r:1", None),
        DAY: ("agent:7:day:2026-11-01", "2026-11-01T23:00:00+00:00"),
        MONTH: ("agent:7:month:2026-11", "2026-11-30T23:00:00+00:00"),
    }
    assert rows("UTC")[MONTH] == ("agent:7:month:2026-10", "2026-11-01T00:00:00+00:00")
    assert rows("Mars/Olympus") == rows("UTC"), "data of a zone may be gone"


def test_a_cap_of_no_dollars_is_not_reached_by_calls_that_cost_nothing() -> None:
    given = cap_rows([Budget(scope="agent", subject="1", limits={DAY: {"usd": "0"}})], NOW, ["r:1"])
    made = accounts.reserve(account(), Amount(tokens=80), given)
    assert isinstance(made, int)
    assert accounts.settle(made, Amount(tokens=80)) == []
