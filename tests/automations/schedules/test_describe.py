"""A schedule in words, its preview and its warnings."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from automations.schedules.describe import changes_ahead, preview
from automations.schedules.excepted_days import ExceptedDays
from automations.schedules.schedule import (
    AtSchedule,
    CronSchedule,
    EverySchedule,
    RuleSchedule,
    Schedule,
    parse_schedule,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AT = datetime(2027, 1, 1, 8, 0, tzinfo=UTC)


def cron(expr: str, zone: str = "Europe/Berlin") -> CronSchedule:
    return CronSchedule(expr=expr, timezone=zone)


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        ("0 9 * * *", "every day at 09:00"),
        ("0 9,17 * * *", "every day at 09:00 and 17:00"),
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:59 on weekdays"),
        ("0 * * * *", "every hour"),
        ("15 * * * *", "at minute 15 of every hour"),
        ("0,30 * * * *", "at minutes 0 and 30 of every hour"),
        ("0 */2 * * *", "at minute 0 of every 2nd hour"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("*/10 3 * * *", "every 10 minutes of hour 03"),
        ("0 8 * * 1", "every Monday at 08:00"),
        ("0 8 * * mon,WED,5", "every Monday, Wednesday and Friday at 08:00"),
        ("30 8 * * 1-5", "on weekdays at 08:30"),
        ("0 10 * * 0,6", "on weekends at 10:00"),
        ("0 10 ? * 5-7", "Friday to Sunday at 10:00"),
        ("0 0 1 * *", "on the 1st of the month at 00:00"),
        ("0 0 2,3,11,22 * ?", "on the 2nd, 3rd, 11th and 22nd of the month at 00:00"),
        ("0 0 L * *", "on the last day of the month at 00:00"),
        ("0 9 15W * *", "on the weekday nearest to the 15th of the month at 09:00"),
        ("0 9 * * FRI#3", "on the 3rd Friday of the month at 09:00"),
        ("0 9 * * L5", "on the last Friday of the month at 09:00"),
        ("0 9 * * 5L", "on the last Friday of the month at 09:00"),
        ("0 9 * * fri#-1", "on the last Friday of the month at 09:00"),
        ("0 9 1 1,7 *", "on the 1st of the month at 09:00 in January and July"),
        ("0 9 * NOV-FEB *", "every day at 09:00, November to February"),
        ("0 9 1 * 1", "on the 1st of the month and every Monday at 09:00"),
        # No words of their own: shown as they are.
        ("*/7 * * * *", "cron `*/7 * * * *`"),
        ("0 9 */2 * 1", "cron `0 9 */2 * 1`"),
        ("1-5 * * * *", "cron `1-5 * * * *`"),
        ("0 9 * * SAT-WED/2", "cron `0 9 * * SAT-WED/2`"),
        ("0 9 1,* * MON", "cron `0 9 1,* * MON`"),
    ],
)
def test_a_cron_speaks_in_its_own_zone(expr: str, words: str) -> None:
    assert cron(expr).in_words("Asia/Shanghai") == f"{words} (Europe/Berlin)"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("FREQ=DAILY", "every day at 09:00"),
        ("FREQ=DAILY;INTERVAL=3;COUNT=2", "every three days at 09:00, 2 times"),
        ("FREQ=DAILY;BYHOUR=9,12;BYMINUTE=0,30;BYSETPOS=1,4", "every day at 09:00 and 12:30"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TH,MO", "every two weeks on Monday and Thursday at 09:00"),
        ("FREQ=WEEKLY;INTERVAL=13", "every 13 weeks on Sunday at 09:00"),
        ("FREQ=WEEKLY;BYDAY=SU,SA;UNTIL=20270301", "on weekends at 09:00 until 1 Mar 2027"),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "on the last weekday (Mon\u2013Fri) of the month at 09:00",
        ),
        ("FREQ=MONTHLY;BYDAY=FR;BYSETPOS=-2", "on the 2nd last Friday of the month at 09:00"),
        (
            "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=-1,1",
            "every three months on the 1st and last day of the month at 09:00",
        ),
        (
            "FREQ=MONTHLY;BYDAY=1TU,3TU;BYMONTH=1",
            "on the 1st Tuesday and 3rd Tuesday of the month in January at 09:00",
        ),
        ("FREQ=YEARLY", "every year on the 1st of November at 09:00"),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "every year on the last Sunday of March at 09:00"),
        ("FREQ=YEARLY;BYYEARDAY=100", "rule `FREQ=YEARLY;BYYEARDAY=100` from 2026-11-01 09:00"),
    ],
)
def test_a_rule_says_its_days(rule: str, words: str) -> None:
    start = datetime(2026, 11, 1, 9)  # noqa: DTZ001 - wall time
    assert RuleSchedule(rule=rule, starts_at=start, timezone="UTC").in_words() == f"{words} (UTC)"


def test_the_days_without_slots_are_named() -> None:
    dates = tuple(date(2026, 12, day) for day in range(24, 30))
    for count, holidays, words in (
        (1, "", "on 24 Dec 2026"),
        (3, "", "on 24 Dec 2026, 25 Dec 2026 and 26 Dec 2026"),
        (6, "", "on 24 Dec 2026, 25 Dec 2026, 26 Dec 2026 and 3 more days"),
        (0, "DE", "on public holidays in Germany"),
        (1, "DE-BY", "on public holidays in Germany (BY) and on 24 Dec 2026"),
    ):
        excepted = ExceptedDays(dates=dates[:count], holidays=holidays)
        assert (
            replace(cron("0 9 * * *"), excepted=excepted)
            .in_words()
            .startswith(f"every day at 09:00 except {words} (")
        )


def test_an_interval_has_no_zone() -> None:
    words = {1: "second", 90: "90 seconds", 60: "minute", 3600: "hour", 5400: "90 minutes"}
    words |= {86_400: "24 hours", 604_800: "7 days"}
    for seconds, each in words.items():
        assert EverySchedule(seconds=seconds, anchor=NOW).in_words() == f"every {each}"


def test_an_instant_is_read_in_the_agents_zone() -> None:
    assert AtSchedule(at=AT).in_words("Europe/Berlin") == "once at 2027-01-01 09:00 (Europe/Berlin)"
    assert AtSchedule(at=AT).in_words() == "once at 2027-01-01 08:00 (UTC)"
    assert AtSchedule(at=AT + timedelta(seconds=5)).in_words() == "once at 2027-01-01 08:00:05 (UTC)"


def test_a_preview_shows_instants_with_the_schedules_own_offset() -> None:
    shown = preview(cron("0 9 * * *", "Asia/Shanghai"), NOW, 3, zone="Europe/Berlin")
    days = [f"2026-11-{day}T09:00:00+08:00" for day in (22, 23, 24)]
    assert [slot.isoformat() for slot in shown.next] == days
    assert shown.words == "every day at 09:00 (Asia/Shanghai)"
    assert shown.warnings == ()
    every = EverySchedule(seconds=300, anchor=NOW)  # which has no zone: the agent's
    assert preview(every, NOW, zone="Europe/Berlin").next[0].isoformat() == "2026-11-21T13:05:00+01:00"


@pytest.mark.parametrize(
    ("given", "first", "words"),
    [
        ("2027-01-01T09:00:00-05:00", "2027-01-01T09:00:00-05:00", "once at 2027-01-01 09:00 (-05:00)"),
        ("2027-01-01T09:00:00+05:30", "2027-01-01T09:00:00+05:30", "once at 2027-01-01 09:00 (+05:30)"),
        ("2027-07-01T09:00:30Z", "2027-07-01T09:00:30+00:00", "once at 2027-07-01 09:00:30 (UTC)"),
        ("2027-07-01T09:00:00", "2027-07-01T09:00:00+02:00", "once at 2027-07-01 09:00 (Europe/Berlin)"),
    ],
)
def test_a_preview_of_an_instant_is_as_it_was_written(given: str, first: str, words: str) -> None:
    at = parse_schedule({"kind": "at", "at": given}, default_timezone="Europe/Berlin", now=NOW)
    shown = preview(at, NOW, zone="Asia/Tokyo")
    assert ([slot.isoformat() for slot in shown.next], shown.words) == ([first], words)


def test_a_preview_ends_with_the_schedule() -> None:
    assert len(preview(AtSchedule(at=AT), NOW, 5).next) == 1
    assert preview(AtSchedule(at=AT), AT, 5).next == ()
    assert preview(cron("* * * * *"), NOW, 0).next == ()


def test_a_skipped_day_is_warned_of() -> None:
    after = datetime(2011, 12, 29, 20, 0, tzinfo=UTC)
    assert list(preview(cron("0 9 * * *", "Pacific/Apia"), after, 2).warnings) == [
        "On 2011-12-30 the clocks go forward in Pacific/Apia: there is no 09:00, it runs at 2011-12-31 00:00 instead."
    ]


MARCH, OCTOBER = datetime(2027, 3, 27, 12, tzinfo=UTC), datetime(2027, 10, 30, 12, tzinfo=UTC)


def ahead(schedule: Schedule, after: datetime, days: int = 3) -> list[str]:
    return changes_ahead(schedule, zone="Europe/Berlin", after=after, shown_to=after + timedelta(days=days))


def test_fixed_times_warn_a_year_ahead_others_only_in_preview() -> None:
    gap = "On 2027-03-28 the clocks go forward in Europe/Berlin"
    back = "On 2027-10-31 the clocks go back in Europe/Berlin"
    assert ahead(cron("30 2 * * *"), MARCH, days=0) == [
        f"{gap}: there is no 02:30, it runs at 03:00 instead.",
        f"{back}: 02:30 comes twice, it runs the first time only.",
    ]
    elapsed = f"{gap}: this schedule follows elapsed time through the change."
    assert ahead(cron("*/30 * * * *"), MARCH) == [elapsed]
    assert ahead(cron("*/30 * * * *"), MARCH, days=0) == []
    day = EverySchedule(seconds=86_400, anchor=MARCH)
    assert ahead(day, OCTOBER) == [f"{back}: this interval is elapsed time, so its times of day move."]
    assert ahead(EverySchedule(seconds=1_800, anchor=MARCH), OCTOBER) == []
    assert ahead(AtSchedule(at=OCTOBER), MARCH) == []
    assert ahead(cron("0 3 * * *"), MARCH) == []  # the gap's end exists
    assert ahead(cron("0 9 * * *"), MARCH) == ahead(cron("0 9 * * *"), OCTOBER) == []
    for schedule in (cron("0 3 * * *"), cron("0 */2 * * *"), EverySchedule(seconds=7200, anchor=MARCH)):
        assert preview(schedule, MARCH, 50).warnings == preview(schedule, OCTOBER, 50).warnings == ()
    assert ahead(cron("30 2 * * *", "Asia/Shanghai"), MARCH) == []
