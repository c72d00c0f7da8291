"""Active hours: slots within them only, on the wall of the zone, over midnight and changes of the clocks (rule 5.1).

Heartbeats whose interval is longer than their hours: one each so many days.
"""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st

from automations.models import CronJob, JobClock
from automations.schedules.plan import plan_of
from automations.schedules.schedule import EverySchedule
from automations.schedules.slots import ActiveDays, ActiveHours, ActiveSchedule
from config.operations import checks
from sessions_app.agents.edit import update_agent
from tests.automations.jobs.made import planned_for
from tests.automations.schedules.examples import holds_for
from tests.automations.schedules.oracle import walked
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("5.1", "5.2")

START = datetime(2027, 3, 27, 0, 0, tzinfo=UTC)  # Berlin's clocks go forward on the 28th
ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe", "UTC"]


def schedule(first: int, end: int, zone: str = "UTC", seconds: int = 1800) -> ActiveSchedule:
    hours = ActiveHours(first=first, end=end, timezone=zone)
    return ActiveSchedule(slots=EverySchedule(seconds=seconds, anchor=START), hours=hours)


@pytest.mark.rule("5.3")
@pytest.mark.parametrize(
    ("first", "end", "active"), [(22, 6, [*range(6), 22, 23]), (0, 24, range(24)), (8, 24, range(8, 24))]
)
def test_the_first_hour_counts_and_the_last_does_not(first: int, end: int, active: list[int]) -> None:
    hours = {slot.hour for slot in walked(schedule(first, end), START, START + timedelta(days=1))}
    assert hours == set(active)


@pytest.mark.timeout(400)
@holds_for(
    many=60,
    zone=st.sampled_from(ZONES),
    first=st.integers(0, 23),
    length=st.integers(1, 23),
    seconds=st.sampled_from([900, 1800, 3600, 7200, 86_400]),
    begin=st.integers(0, 60 * 24 * 3),
    span=st.integers(1, 60 * 24 * 2),
)
def test_it_is_the_schedule_without_what_lies_outside(
    zone: str, first: int, length: int, seconds: int, begin: int, span: int
) -> None:
    wanted = schedule(first, (first + length) % 24, zone, seconds)
    after = START + timedelta(minutes=begin)
    until = after + timedelta(minutes=span)
    inside = {hour % 24 for hour in range(first, first + length)}
    tz = ZoneInfo(zone)
    step = timedelta(seconds=seconds)
    grid = [START + n * step for n in range(timedelta(days=6) // step)]
    expected = [slot for slot in grid if after < slot <= until and slot.astimezone(tz).hour in inside]
    assert walked(wanted, after, until) == expected
    assert wanted.count(after, until, 10_000) == len(expected)
    assert wanted.last(after, until) == (expected[-1] if expected else None)


def test_an_interval_that_never_meets_the_hours_has_no_slot() -> None:
    assert schedule(8, 9, seconds=86_400).next(START) is None


def test_counting_stops_at_the_limit() -> None:
    assert schedule(0, 24, seconds=60).count(START, START + timedelta(days=1), 100) is None


YEAR = timedelta(days=366)
NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
DAY_ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]
db = pytest.mark.django_db(transaction=True)


@holds_for(
    many=60,
    zone=st.sampled_from(DAY_ZONES),
    first=st.integers(0, 23),
    length=st.integers(1, 23),
    days=st.integers(1, 7),
    minutes=st.integers(0, 23 * 60),
    begin=st.integers(0, 60 * 24 * 400),
)
def test_each_interval_of_days_has_one_slot_within_active_hours(
    zone: str, first: int, length: int, days: int, minutes: int, begin: int
) -> None:
    hours = ActiveHours(first=first, end=(first + length) % 24, timezone=zone)
    offset = timedelta(minutes=minutes % (length * 60))
    plan = ActiveDays(hours=hours, days=days, since=date(2027, 1, 5), offset=offset)
    after = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(minutes=begin)
    until = after + timedelta(days=60)
    slots = walked(plan, after, until)
    assert all(hours.contain(slot) for slot in slots)
    # a day may be robbed of its only hour by its clocks
    assert 60 // days - 2 <= len(slots) <= 60 // days + 1
    # where its clocks rob a day of the instant it lies at the opening, which may be most of a day earlier
    assert all(late - early > timedelta(days=days - 1) for early, late in pairwise(slots))
    assert plan.last(after, until) == (slots[-1] if slots else None)
    assert plan.count(after, until) == len(slots)


def heartbeat_of(person: Person) -> CronJob:
    return CronJob.objects.get(agent=person.agent, system_event="heartbeat")


@db
@pytest.mark.parametrize(
    ("interval", "hours", "zone", "a_year"),
    [
        (43_200, [9, 12], "UTC", 366),
        (86_400, [9, 10], "Europe/Berlin", 366),
        (86_400, [8, 22], "America/New_York", 366),
        (50_000, [22, 6], "Asia/Tokyo", 366),
        (3 * 86_400, [8, 22], "UTC", 122),
        (7 * 86_400, [0, 24], "UTC", 52),
    ],
)
def test_whatever_is_accepted_beats_all_through_the_year(
    interval: int, hours: list[int], zone: str, a_year: int
) -> None:
    seen = set()
    for number in range(4):
        person = new_person(f"p{number}", dreams=True, timezone=zone)
        update_agent(person.agent.pk, {"heartbeat": {"interval_seconds": interval, "active_hours": hours}})
        job = heartbeat_of(person)
        slots = plan_of(job, 0).slots.count(NOON + YEAR, NOON + 2 * YEAR)
        assert abs((slots or 0) - a_year) <= 1
        seen.add(f"{planned_for(job).astimezone(ZoneInfo(zone)):%H:%M}")
    assert len(seen) > 1, "not all at once"


@db
def test_a_daily_heartbeat_beats_in_its_new_zone() -> None:
    person = new_person("ada", dreams=True, timezone="Europe/Berlin")
    update_agent(person.agent.pk, {"heartbeat": {"interval_seconds": 86_400, "active_hours": [9, 10]}})
    update_agent(person.agent.pk, {"timezone": "America/Los_Angeles"})
    beat = planned_for(heartbeat_of(person))
    assert beat.astimezone(ZoneInfo("America/Los_Angeles")).hour == 9


@db
def test_doctor_names_a_system_job_without_a_next_slot() -> None:
    job = heartbeat_of(new_person("ada", dreams=True))
    assert checks.plans().ok
    # as one that could never meet its hours was left
    CronJob.objects.filter(pk=job.pk).update(ends_at=NOON - YEAR)
    JobClock.objects.filter(job=job).update(next_run_at=None)
    finding = checks.plans()
    assert not finding.ok
    assert job.pk in finding.detail
