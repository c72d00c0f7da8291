"""Pruning reopens no slot: whatever of a job's past is gone, none of its slots comes twice (invariant 4)."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import update_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.models import Turn, TurnState
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.conftest import Person, new_person
from tests.past import ago, prune_all
from tests.races import selected, with_each_new_run

pytestmark = pytest.mark.rule("10.3")


@pytest.fixture
def ledger(transactional_db: None) -> Iterator[Callable[[CronJob], list[datetime]]]:
    """The slots of every run that was ever stored of a job, gone or not."""

    def slots(job: CronJob) -> list[datetime]:
        return selected("SELECT slot FROM ledger WHERE job_id = %s ORDER BY slot", job.pk)

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE ledger (job_id text, slot timestamptz)")
    with with_each_new_run("INSERT INTO ledger VALUES (NEW.job_id, NEW.scheduled_for)"):
        yield slots
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE ledger")


def end_all() -> None:
    """What was fired has run, long ago."""
    Turn.objects.filter(state=TurnState.QUEUED).update(
        state=TurnState.SUCCEEDED, queued_at=ago(200), finished_at=ago(200)
    )
    RunRecord.objects.filter(state=RunState.QUEUED).update(state=RunState.SUCCEEDED, finished_at=Now())
    RunRecord.objects.update(finished_at=ago(200))


def turn_back(job: CronJob, seconds: int = 10) -> CronJob:
    """What an operator's UPDATE or a restored table may do: the clock stands before slots that have run."""
    back = timedelta(seconds=seconds)
    JobClock.objects.filter(job=job).update(next_run_at=F("next_run_at") - back)
    return job


def set_back(job: CronJob, seconds: int) -> None:
    """As if the job were so much older and nobody had looked since: so many slots are due."""
    back = timedelta(seconds=seconds)
    CronJob.objects.filter(pk=job.pk).update(anchor=F("anchor") - back)
    JobClock.objects.filter(job=job).update(next_run_at=F("next_run_at") - back)


def forget(jobs: Iterable[CronJob]) -> None:
    """All of their past that may go goes; then, as no pruning would, the rest, too."""
    end_all()
    prune_all()
    assert not Turn.objects.exists()
    RunRecord.objects.filter(job__in=jobs).delete()


SAME, ANOTHER = {"schedule": EVERY_SECOND}, {"schedule": {"kind": "every", "seconds": 7}}
CHANGES: dict[str, Callable[[CronJob], object]] = {
    "nothing": lambda _job: None,
    "the clock turned back": turn_back,
    "the clock turned back and an edit": lambda job: update_job(turn_back(job).pk, SAME),
    "renamed": lambda job: update_job(job.pk, {"name": "other", "message": "other"}),
    "the same schedule": lambda job: update_job(job.pk, SAME),
    "another schedule and back": lambda job: [update_job(job.pk, each) for each in (ANOTHER, SAME)],
    "paused and resumed": lambda job: [update_job(job.pk, {"enabled": enabled}) for enabled in (False, True)],
    "catch up changed": lambda job: [
        update_job(job.pk, {"catch_up": catch_up}) for catch_up in ("none", "one", "all")
    ],
}


def test_no_slot_repeats_after_a_jobs_past_is_pruned(
    person: Person, ledger: Callable[[CronJob], list[datetime]], settings: Any
) -> None:
    settings.RONDO_KEEP_RUNS_PER_JOB = 1
    owners = {"one": person, "none": new_person("bob"), "all": new_person("carl")}  # within the quota of each
    jobs = {
        (change, catch_up): new(owner.session(), schedule=EVERY_SECOND, catch_up=catch_up, overlap="queue")
        for change in CHANGES
        for catch_up, owner in owners.items()
    }
    for job in jobs.values():
        set_back(job, 20)
    for _ in range(2):
        fire_due_jobs()
        end_all()
        fire_due_jobs()
        forget(jobs.values())
        for (change, _), job in jobs.items():
            CHANGES[change](job)
    fire_due_jobs()
    for (change, catch_up), job in jobs.items():
        slots = ledger(job)
        assert len(slots) >= (3 if catch_up == "all" else 2), (change, catch_up)
        assert slots == sorted(set(slots)), (change, catch_up)


def test_a_one_shot_never_repeats_after_its_run_is_pruned(
    person: Person, ledger: Callable[[CronJob], list[datetime]]
) -> None:
    later, at = ago(-1), ago(0)
    job = new(person.session(), schedule={"kind": "at", "at": later.isoformat()})
    CronJob.objects.filter(pk=job.pk).update(at=at)
    JobClock.objects.filter(job=job).update(next_run_at=at)
    assert fire_due_jobs().queued == 1
    forget([job])
    update_job(job.pk, {"enabled": False})
    update_job(job.pk, {"enabled": True, "catch_up": "all"})
    assert fire_due_jobs().claimed == 0
    assert ledger(job) == [at]


def test_a_gap_goes_on_growing_beside_pruning(person: Person, settings: Any) -> None:
    """The last gap is what the next one is joined to: it is never taken away, however old."""
    settings.RONDO_KEEP_RUNS_DAYS = settings.RONDO_KEEP_RUNS_PER_JOB = 1
    job = new(person.session(), schedule=EVERY_SECOND, overlap="skip", catch_up="all")
    set_back(job, 40)
    fire_due_jobs()  # its first slot runs on; all that follow are skipped
    Turn.objects.update(queued_at=ago(100))
    for _ in range(4):
        RunRecord.objects.exclude(state=RunState.QUEUED).update(finished_at=ago(300))
        prune_all()
        fire_due_jobs()
    gap = job.runs.get(state=RunState.SKIPPED)
    assert gap.slots_count is not None
    assert gap.slots_count >= 4
    assert job.runs.count() == 2
