"""The form of a schedule: what people choose is the schedule that is stored, and is shown so again."""

from datetime import UTC, datetime, time
from typing import Any

import pytest

from automations.models import CronJob
from automations.schedules.plan import schedule_columns
from automations.schedules.schedule import parse_schedule
from interfaces.web.appointments.forms import ChangeForm, RoutineForm
from interfaces.web.appointments.schedule_form import ScheduleForm, schedule_fields
from sessions_app.models import Agent

NOW = datetime(2026, 11, 24, 8, tzinfo=UTC)
AT_NINE = {"time": "09:00", "timezone": "Europe/Berlin"}
CRON = {"kind": "cron", "timezone": "Europe/Berlin"}
RULE = {"kind": "rrule", "timezone": "Europe/Berlin"}
SCHEDULES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"repeat": "daily", **AT_NINE}, CRON | {"expr": "0 9 * * *"}),
    ({"repeat": "weekdays", **AT_NINE}, CRON | {"expr": "0 9 * * 1-5"}),
    ({"repeat": "weekly", "days": ["1", "0"], **AT_NINE}, CRON | {"expr": "0 9 * * 1,0"}),
    ({"repeat": "monthly", "day": "31", **AT_NINE}, CRON | {"expr": "0 9 31 * *"}),
    ({"repeat": "every", "count": "90", "unit": "60"}, {"kind": "every", "seconds": 5400}),
    ({"repeat": "every", "count": "7", "unit": "1"}, {"kind": "every", "seconds": 7}),
    ({"repeat": "once", "at": "2027-01-01T09:30"}, {"kind": "at", "at": "2027-01-01T09:30:00"}),
    ({"repeat": "cron", "expr": "*/5 8-18 * * 1"}, {"kind": "cron", "expr": "*/5 8-18 * * 1"}),
    ({"repeat": "daily", "also": "18:00,7:00", **AT_NINE}, CRON | {"expr": "0 7,9,18 * * *"}),
    ({"repeat": "monthly", "nth": "-1", "of_month": "5", **AT_NINE}, CRON | {"expr": "0 9 * * L5"}),
    ({"repeat": "monthly", "nth": "3", "of_month": "0", **AT_NINE}, CRON | {"expr": "0 9 * * 0#3"}),
    ({"repeat": "monthly", "nth": "-1", "of_month": "day", **AT_NINE}, CRON | {"expr": "0 9 L * *"}),
    (
        {"repeat": "weekdays", **AT_NINE, "except_on": "2026-12-31, 2026-12-24", "except_holidays": "DE-BY"},
        CRON | {"expr": "0 9 * * 1-5", "except": ["2026-12-31", "2026-12-24"], "except_holidays": "DE-BY"},
    ),
    (
        {"repeat": "weekly", "days": ["1", "4"], "weeks": "2", "since": "2026-11-30", **AT_NINE},
        RULE | {"rule": "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH", "starts_at": "2026-11-30T09:00:00"},
    ),
    (  # the others begin today
        {"repeat": "monthly", "nth": "-1", "of_month": "workday", **AT_NINE},
        RULE | {"rule": "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"},
    ),
    (
        {"repeat": "weekdays", "also": "12:30", **AT_NINE},
        RULE | {"rule": "FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9,12;BYMINUTE=0,30;BYSETPOS=1,4"},
    ),
    (
        {"repeat": "rule", "rule": "FREQ=YEARLY", "starts_at": "2026-12-01T09:30", "timezone": "UTC"},
        RULE | {"rule": "FREQ=YEARLY", "starts_at": "2026-12-01T09:30:00", "timezone": "UTC"},
    ),
]


@pytest.mark.parametrize(("given", "expected"), SCHEDULES)
def test_each_way_to_repeat_is_a_schedule_and_shown_as_chosen(given: Any, expected: dict[str, Any]) -> None:
    form = ScheduleForm(given)
    assert form.is_valid(), form.errors
    stored = form.cleaned_data["schedule"]
    expected = {name: stored[name] for name in ("starts_at",) if name in stored} | expected
    assert stored == expected
    agent = Agent(timezone="Europe/Berlin")
    schedule = parse_schedule(expected, default_timezone=agent.timezone, now=NOW)
    job = CronJob(agent=agent, **schedule_columns(schedule, agent.timezone))
    shown = schedule_fields(job, agent.timezone)
    assert shown["repeat"] == given["repeat"]
    again = ScheduleForm({name: _sent(value) for name, value in shown.items()})
    assert again.is_valid(), again.errors
    read = parse_schedule(again.cleaned_data["schedule"], default_timezone=agent.timezone, now=NOW)
    assert read == schedule


def _sent(value: Any) -> Any:
    """As a browser sends it."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M")
    return value.strftime("%H:%M") if isinstance(value, time) else value or ""


def test_other_expressions_stay_expressions() -> None:
    for expr in ("0 9 1 1 *", "0 9 * * 7", "0 9 * * mon", "0,30 6-9 * * *", "0 9 1 * 1", "0 9 15W * *"):
        job = CronJob(agent=Agent(timezone="UTC"), schedule_kind="cron", expr=expr, timezone="UTC")
        assert schedule_fields(job, "UTC")["repeat"] == "cron"


WRONG: dict[str, list[dict[str, Any]]] = {
    "at": [{"repeat": "once"}, {"repeat": "once", "at": "tomorrow"}],
    "time": [{"repeat": "daily", "time": time} for time in ("", "25:00")],
    "days": [{"repeat": "weekly", "time": "09:00"} | days for days in ({}, {"days": ["8"]})],
    "day": [{"repeat": "monthly", "time": "09:00", "day": "0"}],
    "count": [{"repeat": "every", "count": "0", "unit": "60"}],
    "unit": [{"repeat": "every", "count": "1", "unit": "61"}],
    "expr": [{"repeat": "cron", "expr": ""}],
    "rule": [{"repeat": "rule", "starts_at": "2026-12-01T09:30"}],
    "also": [
        {"repeat": "daily", "time": "09:00", "also": "noon"},
        {"repeat": "monthly", "day": "1", "time": "09:00", "also": "12:30"},  # not even cron can say it
        {"repeat": "monthly", "nth": "1", "of_month": "workday", "time": "09:00", "also": "12:00"},
    ],
    "except_on": [{"repeat": "daily", "time": "09:00", "except_on": "Christmas"}],
    "repeat": [{"repeat": "sometimes"}, {}],
}


def test_what_is_missing_or_wrong_is_said_at_its_field() -> None:
    for field, forms in WRONG.items():
        for given in forms:
            form = ScheduleForm(given)
            assert not form.is_valid(), given
            assert list(form.errors) == [field]


def test_only_what_differs_is_changed() -> None:
    initial = {"repeat": "every", "count": 90, "unit": "60", "message": "Hello", "timezone": "UTC"}
    sent = {name: str(value) for name, value in initial.items()} | {"time": "09:00"}
    sent |= {"overlap": "skip", "catch_up": "one", "max_retry": "0", "jitter_seconds": "0"}
    for given, changes in (
        ({"name": "New name"}, {"name": "New name"}),
        ({"name": "Hi", "count": "80"}, {"schedule": {"kind": "every", "seconds": 4800}}),
    ):
        form = ChangeForm(sent | given, initial=initial | {"name": "Hi"})
        assert form.is_valid(), form.errors
        assert form.changes() == changes


@pytest.mark.parametrize(
    "set_up", [{}, {"model": "offline"}, {"gate": "https://example.org/"}, {"max_retry": 2}]
)
def test_what_is_set_under_more_is_shown_at_once(set_up: dict[str, Any]) -> None:
    stored = {"name": "News", "overlap": "skip", "catch_up": "one", "max_retry": 0, "jitter_seconds": 0}
    assert ChangeForm(initial=stored | set_up).is_more_open == bool(set_up)
    assert not RoutineForm(initial={"title": "News", "max_retry": 3}).is_more_open
