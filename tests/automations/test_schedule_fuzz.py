"""Whatever is sent as a schedule is read or refused with a code, and what is accepted goes on firing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from automations.schedule import Schedule, ScheduleError, next_slot, parse_schedule, schedule_json

NOW = datetime(2026, 11, 21, 12, 0, 0, 123_456, tzinfo=UTC)
CODES = {
    "bad_schedule",
    "bad_cron",
    "never_fires",
    "unknown_timezone",
    "past_at",
    "bad_interval",
    "bad_time",
}


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


@settings(max_examples=400, deadline=None, database=None)
@given(
    data=st.fixed_dictionaries(
        {"kind": st.sampled_from(["cron", "every", "at"])},
        optional={"expr": ANY | CRONISH, "seconds": ANY, "at": ANY, "timezone": ANY | st.just("UTC")},
    )
)
def test_whatever_is_sent_is_read_or_refused_with_a_code(data: dict[str, Any]) -> None:
    schedule, error = outcome(data)
    if schedule is not None:
        assert json.dumps(schedule_json(schedule))
    else:
        assert error is not None
        assert error.code in CODES
        assert error.message


FIELD = st.lists(
    st.from_regex(
        r"(\*|[0-9]{1,2}|[0-9]-[0-9]{1,2}|L|[0-9]{1,2}W|[1-7]#[1-5]|MON|DEC)(/[0-9]{1,2})?", fullmatch=True
    ),
    min_size=1,
    max_size=3,
).map(",".join)


@settings(max_examples=600, deadline=None, database=None)
@given(expr=st.lists(FIELD, min_size=5, max_size=5).map(" ".join))
def test_an_expression_that_is_accepted_goes_on_firing(expr: str) -> None:
    schedule, error = outcome({"kind": "cron", "expr": expr})
    if schedule is None:
        assert error is not None
        assert error.code in {"bad_cron", "never_fires"}
        return
    slot: datetime | None = NOW
    for _ in range(3):
        assert slot is not None
        later = next_slot(schedule, slot)
        assert later is not None
        assert later > slot
        slot = later
