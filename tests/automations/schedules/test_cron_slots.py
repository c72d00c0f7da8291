"""Which cron expressions are understood, and which are refused with which code."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.automations.schedules.test_schedule import NOW, cron, read, refusal

REFUSED: dict[str, list[Any]] = {
    "no text": [None, 5, True, ["0 9 * * *"], b"0 9 * * *"],
    "not five fields": ["", "   ", "0 9 * *", "0 9 * * * *", "0 9 * * * * 2027"],
    "words of other crons": ["@daily", "@every 5m", "R * * * *", "H/5 * * * *", "* * r * *"],
    "minute or hour out of range": ["60 * * * *", "0 24 * * *"],
    "date out of range": ["0 0 0 * *", "0 0 32 * *", "0 0 * 13 *", "0 0 * 0 *", "0 0 * * 8"],
    "half a list or range": ["-1 * * * *", "1- * * * *", "1,,2 * * * *", ", * * * *"],
    "half a step": ["1/0 * * * *", "*/0 * * * *", "1/2/3 * * * *"],
    "a star and more": ["** * * * *", "*-5 * * * *", "? 0 * * *", "0 ? * * *"],
    "no whole number": ["1.5 * * * *", "+5 * * * *", "0x5 * * * *"],
    "backwards": ["5-1 * * * *", "0 22-6 * * *", "0 0 20-10 * *"],
    "a range of one": ["5-5 * * * *", "05-5 * * * *", "0 0 * JAN-1 *", "0 0 * * 7-0", "0 0 * * SUN-SUN"],
    "a step beyond the field": ["*/90 * * * *", "0 */25 * * *", "0 0 * */13 *", "*/999999999 * * * *"],
    "a name in another field": ["MON * * * *", "0 0 * MON *", "0 0 * * JAN", "0 0 * FOO *"],
    "a special day in another field": ["0 0 * * L", "0 0 * * LW", "0 0 5L * *", "0 L * * *", "0 0 LW * *"],
    "no such special day": [
        "0 0 40W * *",
        "0 0 0W * *",
        "0 0 L-3 * *",
        "0 0 L/2 * *",
        "0 0 * * 8L",
        "0 0 * * FOOL",
    ],
    "no such weekday of a month": [
        "0 0 * * 1#0",
        "0 0 * * 1#6",
        "0 0 * * #1",
        "0 0 * * 1-5#2",
        "0 0 * * 1#1/2",
        "0 0 * * 1,3#3",
        "0 0 15W,16 * *",
    ],
    "two days that croniter would join by AND": ["0 9 15 * 5#3", "0 9 15W * 1", "0 9 1 * L5"],
    "a question mark and more": ["0 0 ?,5 * *", "0 0 ?/2 * *", "0 0 * ? *"],
    "digits and blanks of other scripts": ["\u0663 * * * *", "0\u00a09 * * *", "0 9 * * *\x00"],
    "too long": ["0" * 200 + " * * * *", ",".join(["1"] * 100) + " * * * *", "* * * * *" + " " * 200],
}


def test_an_expression_that_cron_does_not_know_is_refused() -> None:
    for why, expressions in REFUSED.items():
        for expr in expressions:
            assert refusal(cron(expr)).code == "bad_cron", f"{why}: {expr!r}"


def test_forms_of_other_crons_are_refused_with_the_form_that_works() -> None:
    for expr, form in {
        "@daily": "`0 0 * * *`",
        "0 0 9 * * *": "leave out seconds",
        "0 0 9 ? * MON 2027": "leave out seconds",
        "0 22-6 * * *": "`22-23,0-6`",
        "0 0 L-3 * *": "`L` for the last day",
        "0 0 * * L": "`L5` for the last Friday",
        "0 0 LW * *": "`L` for the last day",
        "H H * * *": "jitter_seconds",
    }.items():
        assert form in refusal(cron(expr)).message, expr


@pytest.mark.parametrize(
    ("expr", "first"),
    [
        ("0 0 L * *", "2026-11-30T00:00"),
        ("0 0 1-L * *", "2026-11-22T00:00"),
        ("0 0 15W * *", "2026-12-15T00:00"),
        ("0 0 W13 * *", "2026-12-14T00:00"),  # the 13th is a Sunday
        ("0 0 * * L5", "2026-11-27T00:00"),
        ("0 0 * * MON#1", "2026-12-07T00:00"),
        ("0 0 ? * mon", "2026-11-23T00:00"),
        ("0 0 * NOV-FEB FRI-MON", "2026-11-22T00:00"),
        ("0 0 * * 0-7", "2026-11-22T00:00"),
        ("*/60 * * * *", "2026-11-21T13:00"),
        ("59/15 * * * *", "2026-11-21T12:59"),
        ("0 0 1 * 1", "2026-11-23T00:00"),  # the 1st or a Monday
        ("0 0 */2 * 1", "2026-11-23T00:00"),  # an odd Monday, as Vixie cron and cronsim have it
        ("0 0 */1 * 3", "2026-11-25T00:00"),
        ("0 0 1-31 * 3", "2026-11-22T00:00"),  # any day: neither field begins with a star
        ("0 0 1W 5 *", "2027-05-03T00:00"),  # the 1st is a Saturday; it stays in its month
        ("0 0 * * 5L", "2026-11-27T00:00"),
        ("0 0 * * FRIL", "2026-11-27T00:00"),
        ("0 9 31 11 FRI", "2026-11-27T09:00"),
        ("0 9 30-31 2 MON-FRI", "2027-02-01T09:00"),
    ],
)
def test_names_and_special_days_are_understood(expr: str, first: str) -> None:
    assert read(cron(expr), "UTC").next(NOW) == datetime.fromisoformat(first).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expr", "now", "fires"),
    [
        ("0 0 31 2 *", "2026-11-21", False),
        ("0 0 30 2 *", "2026-11-21", False),
        ("0 0 31 4,6,9,11 *", "2026-11-21", False),
        ("0 9 29 2 *", "2026-11-21", True),
        ("0 9 29 2 *", "2096-02-28", True),
        ("0 9 29 2 *", "2096-02-29T09:00", True),  # 2104, eight years to the minute: 2100 is no leap year
        ("0 9 29 2 *", "2096-02-29T08:59", True),
        ("0 9 * 2 1#5", "2026-11-21", False),  # a fifth Monday of February: 2044
        ("0 9 * 2 1#5", "2036-03-01", True),
        ("0 9 * 2 1#5", "2036-02-28", False),  # eight years and a day
    ],
)
def test_what_does_not_fire_within_eight_years_is_refused(expr: str, now: str, fires: bool) -> None:
    instant = datetime.fromisoformat(now).replace(tzinfo=UTC)
    if fires:
        assert read(cron(expr), "UTC", instant).next(instant) is not None
    else:
        assert refusal(cron(expr), "UTC", instant).code == "never_fires"
