"""Whatever is sent as a schedule is read or refused with a code, and what is accepted goes on firing."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from automations.schedules.cron_fields import CronFields
from automations.schedules.schedule import Schedule, ScheduleError, parse_schedule
from tests.automations.schedules.examples import holds_for
from tests.automations.schedules.oracle import sim_of

NOW = datetime(2026, 11, 21, 12, 0, 0, 123_456, tzinfo=UTC)
CODES = {"bad_cron", "bad_interval", "bad_schedule", "bad_time", "never_fires", "past_at", "unknown_timezone"}


def outcome(data: Any) -> tuple[Schedule | None, ScheduleError | None]:
    try:
        return parse_schedule(data, default_timezone="Europe/Berlin", now=NOW), None
    except ScheduleError as error:
        return None, error


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CRONISH = st.text("0123456789*,-/?#LWRHMONJA @", max_size=30)


@holds_for(
    few=100,
    many=400,
    data=st.fixed_dictionaries(
        {"kind": st.sampled_from(["cron", "every", "at"])},
        optional={"expr": ANY | CRONISH, "seconds": ANY, "at": ANY, "timezone": ANY | st.just("UTC")},
    ),
)
def test_whatever_is_sent_is_read_or_refused_with_a_code(data: dict[str, Any]) -> None:
    schedule, error = outcome(data)
    if schedule is not None:
        assert json.dumps(schedule.to_json())
    else:
        assert error is not None
        assert error.code in CODES
        assert error.message


def field(member: str) -> st.SearchStrategy[str]:
    """One to three members of a form, as a list."""
    return st.lists(st.from_regex(member, fullmatch=True), min_size=1, max_size=3).map(",".join)


EXPRESSIONS = st.tuples(
    field(r"(\*|[0-5]?[0-9]|[0-2][0-9]-[3-5][0-9])(/[1-9])?"),
    field(r"(\*|1?[0-9]|[0-9]-1[0-9])(/[1-9])?"),
    st.just("*") | field(r"(\*|[12]?[1-9]|[1-9]-[12][0-9])(/[1-9])?") | field(r"L|LW|[12]?[1-9]|[12]?[1-9]W"),
    st.just("*") | field(r"\*|[1-9]|1[0-2]|JAN|DEC|([1-6]-[7-9]|NOV-FEB|1[0-2]-[1-6])(/[1-9])?"),
    st.just("*")
    | field(r"\*|[0-7]|MON|([1-3]-[4-6]|FRI-SUN|[4-6]-[0-3])(/[1-6])?|[0-7]#[1-5]|L[0-7]|[0-7]L"),
).map(" ".join)


@holds_for(
    few=100,
    many=300,
    expr=EXPRESSIONS,
    wall=st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1)),  # noqa: DTZ001 - wall time
)
def test_the_named_minutes_are_cronsims(expr: str, wall: datetime) -> None:
    schedule, _ = outcome({"kind": "cron", "expr": expr})
    if schedule is None or re.search("[0-9]W", expr):  # which it does not know
        return
    assert CronFields(expr).after(wall) == next(sim_of(expr, wall))
    before = wall - timedelta(microseconds=1)
    assert CronFields(expr).until(before) == next(sim_of(expr, wall, reverse=True))
