"""New time-zone data: the plans of the zones that changed are made anew (rule 4.6)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.clock import current_plan
from automations.jobs.edit import update_job
from automations.jobs.move import move_slot
from automations.models import CronJob, JobClock, RunRecord, ZoneData
from automations.retention.zones import ZoneWalk, changed_zones, used_zones
from automations.routines.edit import update_routine
from automations.schedules import zone_files
from automations.schedules.plan import plan_of
from automations.schedules.zone_files import fingerprint
from sessions_app.models import MailboxEvent, Priority
from sessions_app.retention.walk import WalkStep, prune_batch
from tests.automations.jobs.made import add, clock_of, new, planned_for
from tests.automations.schedules.zone_folder import ZoneFolder, zone_folder
from tests.conftest import Person
from tests.fleet import until
from tests.races import in_thread, waiting

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("4.6")]
BATCH = 10

NAME = "Test/Moving"
OLD, NEW = "AAA-1", "AAA-3"  # one and three hours ahead of UTC
DAILY = {"kind": "cron", "expr": "0 9 * * *", "timezone": NAME}


@pytest.fixture
def zones(tmp_path: Path) -> Iterator[ZoneFolder]:
    with zone_folder(tmp_path / "zones") as folder:
        folder.write(NAME, OLD)
        yield folder


def look() -> None:
    """The walk of one round of maintenance."""
    while prune_batch(ZoneWalk(), BATCH).more:
        pass


def daily(person: Person, **fields: Any) -> CronJob:
    return new(person.session(), **({"schedule": DAILY} | fields))


def hours_of(zone: str = NAME) -> set[int]:
    rows = JobClock.objects.filter(job__timezone=zone).values_list("next_run_at", flat=True)
    return {row.hour for row in rows if row is not None}


def test_new_data_are_seen_at_the_next_look(person: Person, zones: ZoneFolder) -> None:
    job, other = daily(person), daily(person, schedule=DAILY | {"timezone": "Europe/Berlin"})
    rule = {"kind": "rrule", "rule": "FREQ=DAILY", "starts_at": "2026-11-01T09:00", "timezone": NAME}
    by_rule = daily(person, schedule=rule)
    look()
    theirs = clock_of(other)
    assert planned_for(job).hour == planned_for(by_rule).hour == 8
    assert ZoneData.objects.get(name=NAME).fingerprint == fingerprint(NAME)
    zones.write(NAME, NEW)
    look()
    after = planned_for(job)
    assert after.hour == planned_for(by_rule).hour == 6
    assert after - datetime.now(UTC) <= timedelta(days=1)
    job.refresh_from_db()
    assert job.revision == 1
    assert ZoneData.objects.get(name=NAME).fingerprint == fingerprint(NAME)
    same = clock_of(other)
    assert (same.next_run_at, same.planned_from) == (theirs.next_run_at, theirs.planned_from)
    assert same.last_slot is None


def test_used_zones_are_those_of_enabled_jobs_on_wall_time(person: Person, zones: ZoneFolder) -> None:
    daily(person)
    daily(person)
    daily(person, schedule=DAILY | {"timezone": "Asia/Tokyo"})
    daily(person, schedule=DAILY | {"timezone": "Asia/Kolkata"}, enabled=False)
    daily(person, schedule={"kind": "every", "seconds": 60})
    assert used_zones() == ["Asia/Tokyo", NAME]
    assert changed_zones() == ["Asia/Tokyo", NAME]
    look()
    assert changed_zones() == []


def test_new_data_neither_repeats_nor_drops_any_slot(person: Person, zones: ZoneFolder) -> None:
    """Slots count from what was accounted for, not from now: what came meanwhile by the new data is due."""
    ends_at = (datetime.now(UTC) + timedelta(days=4)).isoformat()
    fields: list[dict[str, Any]] = [{}, {}, {"ends_at": ends_at}, {"max_runs": 1}, {"jitter_seconds": 3600}]
    everyone = served, fresh, ended, counted, late = [daily(person, **each) for each in fields]
    look()
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=3)
    JobClock.objects.filter(job__in=everyone).update(planned_from=day, next_run_at=day.replace(hour=8))
    JobClock.objects.filter(job=served).update(last_slot=day.replace(hour=8))
    JobClock.objects.filter(job=counted).update(runs_started=1, next_run_at=None)
    CronJob.objects.filter(pk=ended.pk).update(ends_at=day + timedelta(hours=5))
    zones.write(NAME, NEW)
    look()
    assert planned_for(served) == day.replace(hour=6) + timedelta(days=1)
    assert planned_for(fresh) == day.replace(hour=6)
    assert clock_of(ended).next_run_at is clock_of(counted).next_run_at is None
    jitter = plan_of(late, 0).jitter
    assert jitter
    assert planned_for(late) == day.replace(hour=6) + jitter
    fire_due_jobs()
    assert RunRecord.objects.get(job=fresh, state="queued").scheduled_for.hour == 6


def test_a_moved_slot_runs_only_where_it_went_also_by_new_data(person: Person, zones: ZoneFolder) -> None:
    job = daily(person)
    look()
    slot = planned_for(job)
    to = slot + timedelta(hours=5)
    move_slot(job.pk, slot=slot.isoformat(), to=to.isoformat())
    zones.write(NAME, NEW)
    look()
    plan = current_plan(job, clock_of(job))
    assert planned_for(job) == to
    assert plan.slots.next(to) == slot + timedelta(hours=22)


def test_a_given_first_firing_stands_and_later_ones_are_replanned(person: Person, zones: ZoneFolder) -> None:
    """An instant lies on no grid of the zone, wherever it was given: with a new routine or with a change."""
    first = datetime.now(UTC).replace(minute=17, second=0, microsecond=0) + timedelta(days=3)
    given: dict[str, Any] = {"schedule": DAILY["expr"], "timezone": NAME, "execution_mode": "isolated"}
    first_given = add(person, "new", next_run_at=first.isoformat(), **given)
    changed, plain = add(person, "changed", **given), add(person, "plain", **given)
    update_routine(changed.pk, {"next_run_at": first.isoformat()})
    look()
    zones.write(NAME, NEW)
    look()
    assert planned_for(first_given) == planned_for(changed) == first
    assert planned_for(plain).hour == 6
    past = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    JobClock.objects.filter(job=first_given).update(next_run_at=past, planned_from=past)
    assert fire_due_jobs().queued == 1
    assert planned_for(first_given).hour == 6


def test_what_a_killed_worker_leaves_is_finished_in_the_next_round(person: Person, zones: ZoneFolder) -> None:
    for _ in range(BATCH + 2):
        daily(person)
    zones.write(NAME, NEW)
    assert prune_batch(ZoneWalk(), BATCH).more
    assert hours_of() == {6, 8}
    assert not ZoneData.objects.exists(), "nothing says that the zone is done"
    look()
    assert hours_of() == {6}
    assert ZoneData.objects.get().fingerprint == fingerprint(NAME)
    assert set(CronJob.objects.values_list("revision", flat=True)) == {1}


def test_replanning_waits_for_a_concurrent_edit_and_respects_it(person: Person, zones: ZoneFolder) -> None:
    """It moves the job to another zone: that one's plan stays as the edit made it."""
    job = daily(person)
    zones.write(NAME, NEW)
    with transaction.atomic():
        update_job(job.pk, {"schedule": DAILY | {"timezone": "Asia/Tokyo"}})
        thread, came = in_thread(lambda: prune_batch(ZoneWalk()))
        until(waiting)
    thread.join(20)
    assert came == [WalkStep(position={"zone": NAME, "after": ""}, more=True)]
    assert planned_for(job).hour == 0


def test_a_zone_missing_at_two_checks_sets_its_jobs_aside(person: Person, zones: ZoneFolder) -> None:
    job, due, paused = daily(person), daily(person), daily(person, enabled=False)
    look()
    JobClock.objects.filter(job=due).update(next_run_at=datetime.now(UTC) - timedelta(minutes=1))
    zones.remove(NAME)
    look()
    assert CronJob.objects.get(pk=job.pk).enabled, "the file may be about to be replaced"
    look()
    job.refresh_from_db()
    assert (job.enabled, job.fault, job.revision) == (False, "There is no time zone 'Test/Moving'.", 1)
    assert clock_of(job).next_run_at is None
    for untouched in (due, paused):
        assert CronJob.objects.get(pk=untouched.pk).fault == ""
    zone_files._loaded.clear()  # a beat that was started since
    fire_due_jobs()
    due.refresh_from_db()
    assert (due.enabled, due.fault) == (False, "There is no time zone 'Test/Moving'.")
    assert RunRecord.objects.get(job=due).reason == "schedule_error"
    told = MailboxEvent.objects.order_by("id")
    urgent = [(each.session_id, Priority.URGENT) for each in (job, due)]
    assert [(mail.target_id, mail.priority) for mail in told] == urgent
    assert all(each.pk in mail.summary for mail, each in zip(told, (job, due), strict=True))


def test_a_zone_that_is_away_for_a_moment_harms_nobody(person: Person, zones: ZoneFolder) -> None:
    job = daily(person)
    look()
    zones.remove(NAME)
    look()
    zones.write(NAME, NEW)
    look()
    assert planned_for(job).hour == 6
    assert CronJob.objects.get(pk=job.pk).fault == ""


def test_a_job_that_cannot_be_planned_holds_up_no_other(person: Person, zones: ZoneFolder) -> None:
    bad, good = daily(person), daily(person)
    look()
    CronJob.objects.filter(pk=bad.pk).update(expr="nonsense")
    zones.write(NAME, NEW)
    look()
    assert (planned_for(bad).hour, planned_for(good).hour) == (8, 6)
    assert ZoneData.objects.get(name=NAME).fingerprint == fingerprint(NAME)
