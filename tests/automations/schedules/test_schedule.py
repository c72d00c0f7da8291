"""Reading a schedule: what is understood, and what is refused when saved, with which code (rule 4.6)."""

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st

from automations.exceptions import ScheduleError
from automations.models import CronJob
from automations.schedules import excepted_days
from automations.schedules import schedule as schedules
from automations.schedules.cron_fields import CronFields
from automations.schedules.plan import schedule_columns, schedule_of
from automations.schedules.rule_fields import RuleFields
from automations.schedules.schedule import AtSchedule, CronSchedule, EverySchedule, Schedule
from tests.automations.schedules.examples import holds_for, rules
from tests.automations.schedules.oracle import dateutils, sim_of

NOW = datetime(2026, 11, 21, 12, 0, 0, 123_456, tzinfo=UTC)


def read(data: Any, zone: str = "Europe/Berlin", now: datetime = NOW) -> Schedule:
    return schedules.parse_schedule(data, default_timezone=zone, now=now)


def refusal(data: Any, zone: str = "Europe/Berlin", now: datetime = NOW) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        read(data, zone, now)
    return caught.value


def cron(expr: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "cron", "expr": expr, **more}


def zoned(name: Any) -> dict[str, Any]:
    return cron("0 9 * * *", timezone=name)


def every(seconds: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "every", "seconds": seconds, **more}


def at(text: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "at", "at": text, **more}


def rule(text: Any, starts_at: Any = "2026-11-01T09:00", **more: Any) -> dict[str, Any]:
    return {"kind": "rrule", "rule": text, "starts_at": starts_at, **more}


def starting(starts_at: Any) -> dict[str, Any]:
    return rule("FREQ=DAILY", starts_at)


def excepting(dates: Any) -> dict[str, Any]:
    return rule("FREQ=DAILY", **{"except": dates})


def holidays(place: Any) -> dict[str, Any]:
    return cron("0 9 * * *", except_holidays=place)


def test_a_cron_takes_the_agents_zone_when_none_is_given() -> None:
    assert read(cron("0  9 * * *")) == CronSchedule(expr="0 9 * * *", timezone="Europe/Berlin")
    assert read(zoned("Asia/Shanghai")) == CronSchedule(expr="0 9 * * *", timezone="Asia/Shanghai")


def test_the_grid_of_every_begins_when_it_is_saved() -> None:
    schedule = read(every(300))
    assert schedule == EverySchedule(seconds=300, anchor=NOW.replace(microsecond=123_000))
    assert schedule.next(NOW) == NOW.replace(microsecond=123_000) + timedelta(seconds=300)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-01-01T09:00:00+01:00", "2027-01-01T08:00:00+00:00"),
        ("2027-01-01T09:00+0100", "2027-01-01T08:00:00+00:00"),
        ("2027-01-01T09:00:00Z", "2027-01-01T09:00:00+00:00"),
        ("2027-01-01t09:00:00.123456z", "2027-01-01T09:00:00.123000+00:00"),
        ("2027-01-01T09:00:00.123456789Z", "2027-01-01T09:00:00.123000+00:00"),  # as in Go and Java
        ("2027-01-01 09:00", "2027-01-01T08:00:00+00:00"),  # the agent's zone
        ("2027-07-01T09:00:00", "2027-07-01T07:00:00+00:00"),
        ("2027-03-28T02:30:00", "2027-03-28T01:00:00+00:00"),  # in the gap: the first instant after it
        ("2027-10-31T02:30:00", "2027-10-31T00:30:00+00:00"),  # in the overlap: the first
        ("2899-01-01T00:00:00Z", "2899-01-01T00:00:00+00:00"),  # far, and yet it comes
    ],
)
def test_an_at_without_offset_is_in_the_agents_zone(text: str, expected: str) -> None:
    assert read(at(text)) == AtSchedule(at=datetime.fromisoformat(expected))


def as_it_is(data: Any) -> Any:
    return data


FAR = schedules.MAX_EVERY_SECONDS + 1
REFUSED: list[tuple[str, Callable[[Any], Any], tuple[Any, ...]]] = [  # with this code, made so, each of these
    ("bad_schedule", as_it_is, (None, [], "0 9 * * *", {}, {"expr": "0 9 * * *"})),
    ("bad_schedule", as_it_is, ({"kind": None}, {"kind": "weekly"}, {"kind": ["cron"]})),
    ("bad_schedule", as_it_is, ({"kind": "cron"}, {"kind": "every"}, {"kind": "at"})),
    ("bad_schedule", as_it_is, (cron("0 9 * * *", seconds=5), cron("0 9 * * *", tz="UTC"))),
    ("bad_schedule", as_it_is, (every(5, anchor="2026-01-01T00:00:00Z"), every(5) | {1: 2})),
    ("bad_schedule", as_it_is, (at("2027-01-01T09:00:00Z", timezone="UTC"),)),
    ("bad_interval", every, (0, -1, FAR, 10**400, 1.5, 300.0, float("nan"), float("inf"))),
    ("bad_interval", every, (True, False, None, "300", [300])),
    ("unknown_timezone", zoned, (None, 5, "", " ", "+01:00", "x" * 5000)),
    ("unknown_timezone", zoned, ("Mars/Base", "Europe", "\u0415vropa/Berlin", "UTC\x00")),
    ("unknown_timezone", zoned, ("europe/berlin", "Europe/Berlin ", "Europe//Berlin", "Europe/../UTC")),
    ("unknown_timezone", zoned, ("../etc/passwd", "/etc/passwd", "zone.tab", "tzdata.zi", "posixrules")),
    ("unknown_timezone", zoned, ("right/Europe/Berlin", "posix/UTC", "localtime", "Factory")),
    ("bad_time", at, (None, 5, True, "", "tomorrow", "2027-01-01", "09:00", "2027-01-01T09")),
    ("bad_time", at, ("20270101T090000Z", "2027-W01-1T09:00", "12027-01-01T09:00", "0000-01-01T00:00:00Z")),
    ("bad_time", at, ("2027-13-01T09:00", "2027-02-30T09:00", "2027-01-01T24:00", "2027-01-01T09:60")),
    ("bad_time", at, ("2027-01-01T23:59:60Z", "2027-01-01T09:00:00.1234567891Z", "2027-01-01T09:00\n")),
    ("bad_time", at, ("2027-01-01T09:00:00+25:00", "2027-01-01T09:00+01:00:30", "2027-01-01T09:00 UTC")),
    ("bad_time", at, ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59", "9950-01-01T00:00:00Z")),
    ("bad_time", at, ("\u0662\u0660\u0662\u0667-01-01T09:00",)),
    ("past_at", at, ("2026-11-21T12:00:00.123Z", "2026-11-21T12:59", "2020-01-01T00:00Z")),
    ("past_at", at, ("0001-01-01T00:00:00Z", "1969-01-01T00:00")),
    ("bad_schedule", as_it_is, ({"kind": "rrule", "rule": "FREQ=DAILY"}, every(5, **{"except": []}))),
    (
        "bad_rule",
        rule,
        (None, 5, "", "DAILY", "FREQ=", "FREQ=DAILY; COUNT=1", "FREQ=DAILY;;COUNT=1", "x" * 201),
    ),
    ("bad_rule", rule, ("FREQ=HOURLY", "FREQ=MINUTELY", "FREQ=SECONDLY;BYSECOND=1", "FREQ=DAILY;BYEASTER=1")),
    (
        "bad_rule",
        rule,
        ("DTSTART:20261101\nFREQ=DAILY", "FREQ=DAILY;FREQ=DAILY", "FREQ=DAILY;EXDATE=20261101"),
    ),
    (
        "bad_rule",
        rule,
        tuple(f"FREQ=DAILY;INTERVAL={each}" for each in ("0", "-1", "3651", "1.5", "\u0662", "")),
    ),
    ("bad_rule", rule, tuple(f"FREQ=DAILY;COUNT={each}" for each in ("0", "1001", "9" * 100))),
    ("bad_rule", rule, ("FREQ=DAILY;INTERVAL=2900;COUNT=780", "FREQ=MONTHLY;BYMONTHDAY=31;COUNT=1000")),
    (
        "bad_rule",
        rule,
        tuple(
            f"FREQ=DAILY;UNTIL={each}" for each in ("", "20271301", "2027", "99991231", "00010101T000000Z")
        ),
    ),
    ("bad_rule", rule, ("FREQ=DAILY;COUNT=1;UNTIL=20271231", "FREQ=DAILY;WKST=XX", "FREQ=DAILY;BYHOUR=24")),
    ("bad_rule", rule, ("FREQ=MONTHLY;BYMONTHDAY=0", "FREQ=MONTHLY;BYDAY=0MO", "FREQ=MONTHLY;BYDAY=MO,-1FR")),
    ("bad_rule", rule, ("FREQ=WEEKLY;BYDAY=1MO", "FREQ=WEEKLY;BYMONTHDAY=1", "FREQ=MONTHLY;BYWEEKNO=1")),
    ("bad_rule", rule, ("FREQ=DAILY;BYHOUR=1,2;BYSETPOS=3", "FREQ=MONTHLY;BYDAY=MO;BYHOUR=1,2;BYSETPOS=1")),
    ("bad_rule", rule, (f"FREQ=DAILY;BYHOUR=1;BYMINUTE={','.join(map(str, range(25)))}",)),
    (
        "bad_time",
        starting,
        (None, "2026-12-01", "2026-12-01T09:00:30", "1969-12-31T23:59", "9900-01-01T00:00"),
    ),
    (
        "never_fires",
        rule,
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "FREQ=DAILY;UNTIL=20261120", "FREQ=DAILY;COUNT=3"),
    ),
    (
        "never_fires",
        rule,
        ("FREQ=YEARLY;INTERVAL=7;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", "FREQ=YEARLY;INTERVAL=10"),
    ),
    (
        "bad_except",
        excepting,
        ("2026-12-24", None, [5], ["24.12.2026"], ["2026-02-30"], ["2026-12-24"] * 101),
    ),
    ("bad_except_holidays", holidays, (None, 5, "Germany", "XX", "de", "DE-XX", "DE-", "../..", "__init__")),
    ("never_fires", lambda place: cron("0 9 25 12 *", except_holidays=place), ("DE", "US")),
]


def test_what_cannot_be_read_is_refused_with_its_code() -> None:
    for code, make, given in REFUSED:
        for each in given:
            assert refusal(make(each)).code == code, each


def test_the_ends_of_the_interval_are_allowed() -> None:
    assert all(read(every(seconds)).next(NOW) for seconds in (1, schedules.MAX_EVERY_SECONDS))


def test_an_agents_unknown_zone_is_refused_only_where_needed() -> None:
    assert refusal(cron("0 9 * * *"), "Mars/Base").code == "unknown_timezone"
    assert refusal(at("2027-01-01T09:00:00"), "Mars/Base").code == "unknown_timezone"
    assert isinstance(read(at("2027-01-01T09:00:00Z"), "Mars/Base"), AtSchedule)


def test_this_very_instant_has_passed() -> None:
    now = NOW.replace(microsecond=123_000)
    assert refusal(at("2026-11-21T12:00:00.123Z"), now=now).code == "past_at"
    assert isinstance(read(at("2026-11-21T12:00:00.124Z"), now=now), AtSchedule)


def test_a_schedule_is_written_as_it_is_read() -> None:
    excepted = {"except": ["2026-12-24", "2026-12-31"], "except_holidays": "DE-BY"}
    for data in (
        cron("0 9 * * MON", timezone="Asia/Shanghai", **excepted),
        rule("FREQ=DAILY;UNTIL=20270101", timezone="Asia/Shanghai", **excepted),
        every(300),
        at("2027-01-01T09:00:00+01:00"),
    ):
        schedule = read(data)
        assert schedule.to_json(zone="Europe/Berlin") == data
        assert (
            schedule_of(CronJob(agent_id=1, **schedule_columns(schedule, "UTC"))) == schedule
            or data["kind"] == "at"
        )


def test_a_rule_is_kept_on_the_wall_of_its_zone() -> None:
    """However calendars write it: with a prefix, in small letters, and with instants."""
    given = rule("rrule:freq=daily;until=20270131T225900z", "2026-11-30T08:00:00Z")
    assert read(given) == read(rule("FREQ=DAILY;UNTIL=20270131T235900", "2026-11-30T09:00"))


def test_without_the_package_holidays_are_refused_with_the_name_of_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    monkeypatch.setitem(sys.modules, "holidays.registry", None)
    excepted_days._holidays_of.cache_clear()
    assert excepted_days.holiday_countries() == {}
    error = refusal(holidays("DE"))
    assert (error.code, "'holidays'" in error.message) == ("missing_extra", True)


def test_a_week_begins_with_the_day_that_the_rule_says() -> None:
    """The example of RFC 5545."""
    start, found = datetime(1997, 8, 5, 9), []  # noqa: DTZ001 - wall time
    for wkst in ("MO", "SU"):
        fields = RuleFields(f"FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST={wkst}", start)
        wall, days = start - timedelta(days=1), list[int]()
        while (after := fields.after(wall)) is not None:
            wall, days = after, [*days, after.day]
        found.append(days)
    assert found == [[5, 10, 19, 24], [5, 17, 19, 31]]


@holds_for(few=100, many=300, text=rules(), start=st.integers(-2000, 2000), asked=st.integers(0, 4000))
def test_the_minutes_of_a_rule_are_dateutils(text: str, start: int, asked: int) -> None:
    begin = datetime(2027, 6, 1, 2, 30) + timedelta(days=start)  # noqa: DTZ001 - wall time
    wall, theirs, fields = (
        begin + timedelta(days=asked, hours=asked % 24),
        dateutils(text, begin),
        RuleFields(text, begin),
    )
    coming = theirs.after(wall) if "2030" not in text or wall.year < 2030 else None
    assert fields.after(wall) == coming
    for day in (wall, begin):
        assert fields.until(day) == theirs.before(day, inc=True)
    year = timedelta(days=366)
    assert fields.count(wall - year, wall, 9_999) == len(
        [each for each in theirs.between(wall - year, wall, inc=True) if each < wall]
    )


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-10-24T23:00:00+00:00", "2026-10-25T00:30:00+00:00"),  # both lie ahead: the first
        ("2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"),  # the first is now
        ("2026-10-25T00:45:00+00:00", "2026-10-25T01:30:00+00:00"),
    ],
)
def test_the_second_of_two_repeated_times_counts_after_the_first(now: str, expected: str) -> None:
    schedule = read(at("2026-10-25T02:30:00"), now=datetime.fromisoformat(now))
    assert isinstance(schedule, AtSchedule)
    assert schedule.at == datetime.fromisoformat(expected)


def test_repeated_and_skipped_local_times_are_refused_once_past() -> None:
    for day, time in (("2026-10-25", "01:30"), ("2026-03-29", "01:00")):
        assert refusal(at(f"{day}T02:30:00"), now=datetime.fromisoformat(f"{day}T{time}Z")).code == "past_at"


NO_CRON: dict[str, list[Any]] = {
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
    "no such special day": ["0 0 40W * *", "0 0 0W * *", "0 0 L-3 * *", "0 0 * * 8L", "0 0 * * FOOL"],
    "no such weekday of a month": [f"0 0 * * {each}" for each in ("1#0", "1#6", "#1", "1-5#2", "1#1/2")],
    "a special day in a list": ["0 0 * * 1,3#3", "0 0 15W,16 * *"],
    "two days that croniter would join by AND": ["0 9 15 * 5#3", "0 9 15W * 1", "0 9 1 * L5"],
    "a question mark and more": ["0 0 ?,5 * *", "0 0 ?/2 * *", "0 0 * ? *"],
    "digits and blanks of other scripts": ["\u0663 * * * *", "0\u00a09 * * *", "0 9 * * *\x00"],
    "too long": ["0" * 200 + " * * * *", ",".join(["1"] * 100) + " * * * *", "* * * * *" + " " * 200],
}


def test_an_expression_that_cron_does_not_know_is_refused() -> None:
    for why, expressions in NO_CRON.items():
        for expr in expressions:
            assert refusal(cron(expr)).code == "bad_cron", f"{why}: {expr!r}"


def test_forms_of_other_crons_are_refused_with_the_form_that_works() -> None:
    for expr, form in {
        "@daily": "`0 0 * * *`",
        "0 0 9 * * *": "leave out seconds",
        "0 0 9 ? * MON 2027": "leave out seconds",
        "0 22-6 * * *": "`22-23,0-6`",
        "0 0 L-3 * *": "`FREQ=MONTHLY;BYMONTHDAY=-4`",
        "0 0 * * L": "`L5` for the last Friday",
        "0 0 LW * *": "`FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1`",
        "H H * * *": "jitter_seconds",
    }.items():
        assert form in refusal(cron(expr)).message, expr


FIRST = {
    "2026-11-21T12:59": ["59/15 * * * *"],
    "2026-11-21T13:00": ["*/60 * * * *"],
    # `1-31` is any day: neither field begins with a star
    "2026-11-22T00:00": ["0 0 1-L * *", "0 0 * NOV-FEB FRI-MON", "0 0 * * 0-7", "0 0 1-31 * 3"],
    # the 1st or a Monday; an odd Monday, as Vixie cron and cronsim have it
    "2026-11-23T00:00": ["0 0 ? * mon", "0 0 1 * 1", "0 0 */2 * 1"],
    "2026-11-25T00:00": ["0 0 */1 * 3"],
    "2026-11-27T00:00": ["0 0 * * L5", "0 0 * * FRIL", "0 0 * * 5#-1"],
    "2026-11-27T09:00": ["0 9 31 11 FRI"],
    "2026-11-30T00:00": ["0 0 L * *"],
    "2026-12-07T00:00": ["0 0 * * MON#1"],
    "2026-12-14T00:00": ["0 0 W13 * *"],  # the 13th is a Sunday
    "2027-02-01T09:00": ["0 9 30-31 2 MON-FRI"],
    "2027-05-03T00:00": ["0 0 1W 5 *"],  # the 1st is a Saturday; it stays in its month
}


def test_names_and_special_days_are_understood() -> None:
    for first, expressions in FIRST.items():
        for expr in expressions:
            assert read(cron(expr), "UTC").next(NOW) == datetime.fromisoformat(f"{first}Z"), expr


@pytest.mark.parametrize(
    ("expr", "now", "fires"),
    [
        ("0 0 31 2 *", "2026-11-21", False),
        ("0 0 31 4,6,9,11 *", "2026-11-21", False),
        ("0 9 29 2 *", "2026-11-21", True),
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


CODES = {code for code, *_ in REFUSED} | {"bad_cron"}


def outcome(data: Any) -> Schedule | ScheduleError:
    try:
        return read(data)
    except ScheduleError as error:
        return error


RULE_PARTS = [
    *(
        "FREQ=DAILY",
        "FREQ=WEEKLY",
        "FREQ=MONTHLY",
        "FREQ=YEARLY",
        "INTERVAL=3",
        "COUNT=1000",
        "UNTIL=20280101Z",
    ),
    *(
        "BYMONTH=2",
        "BYMONTHDAY=29,-31",
        "BYYEARDAY=366",
        "BYWEEKNO=53",
        "BYDAY=MO",
        "BYDAY=5SU",
        "BYSETPOS=-1",
    ),
    *("BYHOUR=0,23", "BYMINUTE=59", "WKST=SU", "BYSETPOS=366", "FREQ=HOURLY", "X=Y", "", "BYDAY=-53MO"),
]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
RULISH = st.lists(st.sampled_from(RULE_PARTS), max_size=5).map(";".join)
CRONISH = st.text("0123456789*,-/?#LWRHMONJA @", max_size=30)


@holds_for(
    few=100,
    many=400,
    data=st.fixed_dictionaries(
        {"kind": st.sampled_from(["cron", "rrule", "every", "at"])},
        optional={
            "expr": ANY | CRONISH,
            "seconds": ANY,
            "at": ANY,
            "timezone": ANY | st.just("UTC"),
            "rule": ANY | RULISH,
            "starts_at": ANY | st.just("2026-11-01T09:00"),
            "except": ANY,
            "except_holidays": ANY | st.just("DE"),
        },
    ),
)
def test_whatever_is_sent_is_read_or_refused_with_a_code(data: dict[str, Any]) -> None:
    came = outcome(data)
    if isinstance(came, ScheduleError):
        assert came.code in CODES
        assert came.message
    else:
        assert json.dumps(came.to_json())


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


WALLS = st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1))  # noqa: DTZ001 - wall time


@holds_for(few=100, many=300, expr=EXPRESSIONS, wall=WALLS)
def test_the_named_minutes_are_cronsims(expr: str, wall: datetime) -> None:
    if isinstance(outcome(cron(expr)), ScheduleError) or re.search("[0-9]W", expr):  # which it does not know
        return
    assert CronFields(expr).after(wall) == next(sim_of(expr, wall))
    assert CronFields(expr).until(wall - timedelta(microseconds=1)) == next(sim_of(expr, wall, reverse=True))
