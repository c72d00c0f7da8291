"""Any number of beats: one run per slot, whatever a row, a broker or a session does meanwhile (rule 4.4)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import DateTimeField
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.clock import notify_beats
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.models import Session, Turn, TurnState
from tests.automations.jobs.made import new
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.races import backends_that, in_thread, waiting, with_each_new_run

pytestmark = pytest.mark.rule("4.4")


def soon(seconds: float = 1.5) -> datetime:
    instant = datetime.now(UTC) + timedelta(seconds=seconds)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def once(session: Session, message: str = "go") -> CronJob:
    """Due far ahead, until `make_due`."""
    return new(session, message=message, schedule={"kind": "at", "at": "2099-01-01T09:00:00Z"})


def make_due(jobs: list[CronJob], at: datetime) -> None:
    """All at one instant, which may have passed; beats are woken for it."""
    ids = [job.pk for job in jobs]
    with transaction.atomic():
        CronJob.objects.filter(pk__in=ids).update(at=at)
        JobClock.objects.filter(job__in=ids).update(next_run_at=at)
        notify_beats()


def many(person: Person, count: int) -> list[CronJob]:
    """A quarter of them to a session."""
    sessions = [person.session() for _ in range(4)]
    return [once(sessions[number % 4], f"job {number}") for number in range(count)]


def slots_and_runs() -> tuple[int, int, int]:
    return RunRecord.objects.count(), Turn.objects.count(), CronJob.objects.count()


@pytest.fixture
def trap(transactional_db: None) -> Iterator[None]:
    """One job's run is refused: the batch's own statement fails."""
    with with_each_new_run("IF NEW.snapshot->>'name' = 'trap' THEN RAISE EXCEPTION 'trapped'; END IF"):
        yield


def batches_under_way() -> list[int]:
    return backends_that("xact_start IS NOT NULL AND pid <> pg_backend_pid()")


def test_a_beat_killed_before_its_commit_has_fired_nothing(fleet: Fleet, person: Person) -> None:
    job, at = once(person.session()), soon(0)
    with transaction.atomic():
        # a row in the way that is not committed: the batch's insert waits for it
        RunRecord.objects.create(run_id="in-the-way", job=job, scheduled_for=at)
        thread, _ = in_thread(lambda: make_due([job], at))
        thread.join(20)
        beat = fleet.beat()
        until(waiting, 60, "beat waits within its batch")
        beat.kill()
        transaction.set_rollback(True)
    until(lambda: not batches_under_way())
    assert slots_and_runs() == (0, 0, 1)
    fleet.beat()
    until(lambda: slots_and_runs() == (1, 1, 1))


FAULTY = {  # what is set aside, with its reason
    "a zone that is gone": "timezone = 'Mars/Olympus', schedule_kind = 'cron', at = NULL, expr = '* * * * *'",
    "an empty zone": "timezone = '', schedule_kind = 'cron', at = NULL, expr = '* * * * *'",
    "a zone that is a path": "timezone = '../../etc/passwd', schedule_kind = 'cron', at = NULL, expr = '0 9 * * *'",
    "a field out of range": "schedule_kind = 'cron', at = NULL, expr = '61 * * * *'",
    "no fields at all": "schedule_kind = 'cron', at = NULL, expr = 'often'",
    "six fields": "schedule_kind = 'cron', at = NULL, expr = '* * * * * *'",
    "fields that never come": "schedule_kind = 'cron', at = NULL, expr = '0 0 31 2 *'",
    "a kind of no category": "kind = 'system_event', system_event = 'nonsense', session_id = NULL",
    "a row that the database refuses": "name = 'trap'",
}
ODD = {  # what is run or skipped all the same
    "an interval without end": "schedule_kind = 'every', at = NULL, every_seconds = 2147483647,"
    " anchor = '9999-12-29'",
    "a moment before time": "at = '0001-01-03 00:00:00+00'",
    "a message that is too long": "message = repeat('x', 2000000)",
    "an empty message": "message = ''",
    "a name of control characters": "name = E'\\n\\r\\t\\u2028'",
    "an end before its beginning": "ends_at = '2001-01-01'",
    "no runs left": "max_runs = 1",
    "a jitter of centuries": "jitter_seconds = 2147483647",
    "a timeout of centuries": "timeout_seconds = 2147483647",
}


def test_jobs_poisoned_in_every_way_block_no_other_job(person: Person, trap: None) -> None:
    jobs, ways, at = many(person, 40), FAULTY | ODD, soon(-1)
    make_due(jobs, at)
    poisoned = dict(zip(ways, jobs[:: len(jobs) // len(ways)], strict=False))
    assert len(poisoned) == len(ways)
    taken = poisoned["a run that is there"] = jobs[1]
    RunRecord.objects.create(run_id="x", job=taken, scheduled_for=at, state="succeeded", finished_at=Now())
    with connection.cursor() as cursor:
        for way, update in ways.items():
            cursor.execute(f"UPDATE automations_cronjob SET {update} WHERE id = %s", [poisoned[way].pk])
        cursor.execute(
            "UPDATE automations_jobclock SET next_run_at = '0001-01-03', runs_started = 1 WHERE job_id = %s",
            [poisoned["no runs left"].pk],
        )
    until(lambda: fire_due_jobs().claimed == 0)
    sound = [job.pk for job in jobs if job not in poisoned.values()]
    assert RunRecord.objects.filter(job__in=sound, state=RunState.QUEUED).count() == len(sound)
    queued = Turn.objects.filter(metadata__automation_id__in=sound, state=TurnState.QUEUED)
    assert queued.count() == len(sound)
    assert not JobClock.objects.filter(next_run_at__lte=Now()).exists(), "nothing stays due for ever"
    assert RunRecord.objects.get(job=taken).pk == "x"
    for way in ways:
        job = CronJob.objects.get(pk=poisoned[way].pk)
        run = RunRecord.objects.filter(job=job).first()
        assert run is not None, way
        assert run.state == RunState.QUEUED or (run.reason and run.state == RunState.SKIPPED), way
        assert (run.reason == "schedule_error") == (way in FAULTY), way
        assert (bool(job.fault), job.enabled) == (way in FAULTY, way not in FAULTY), way


UNREADABLE = ("infinity", "-infinity", "0044-03-15 BC", "20000-01-01")


def test_unreadable_instants_are_rejected_by_every_time_column(person: Person) -> None:
    """One such row would break the statements of every batch that it is in."""
    make_due([once(person.session())], soon(0))
    fire_due_jobs()
    columns = [
        (model._meta.db_table, field.column)
        for model in (CronJob, JobClock, RunRecord)
        for field in model._meta.concrete_fields
        if isinstance(field, DateTimeField)
    ]
    assert {table for table, _ in columns} == {
        f"automations_{name}" for name in ("cronjob", "jobclock", "runrecord")
    }
    for (table, column), instant in product(columns, UNREADABLE):
        with (
            pytest.raises(
                IntegrityError,
                match=r"times_readable|finished_iff_ended|retry_waits|next_is|pause_ends|says_where",
            ),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(f"UPDATE {table} SET {column} = %s", [instant])
