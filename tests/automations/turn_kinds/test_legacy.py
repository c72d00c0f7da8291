"""Legacy jobs run the old way (rule 4.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.models import Agent, Delivery, Message, Session, SessionState, SessionType, Turn, TurnKind
from sessions_app.sessions.delete import delete_agent, delete_session
from tests.api.conftest import Caller
from tests.conftest import Person
from tests.inside import Inside
from tests.races import in_thread
from tests.tokens import token_of

pytestmark = pytest.mark.rule("4.1")

EVERY = {"kind": "every", "seconds": 60}


def legacy_job(person: Person, *, due: bool = True, **fields: Any) -> CronJob:
    """A legacy job as the import leaves it; its next slot has just passed."""
    slot = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1)
    job = CronJob.objects.create(
        **{
            "agent": person.agent,
            "name": "old",
            "message": "say it",
            "schedule_kind": "every",
            "every_seconds": 3600,
            "anchor": slot,
            "deliver": True,
            "channel": "telegram",
            "to": "42",
            "channel_meta": {"thread": 7},
            **fields,
        }
    )
    JobClock.objects.create(job=job, next_run_at=slot if due else None)
    return job


def again(job: CronJob) -> None:
    """Let the job's next slot come now."""
    JobClock.objects.filter(job=job).update(next_run_at=Now())


def test_a_legacy_job_runs_in_its_own_internal_session(inside: Inside) -> None:
    person = inside.person
    job = legacy_job(person)
    inside.beat()
    session = Turn.objects.get(kind=TurnKind.LEGACY).session
    assert (session.key, session.type, session.agent) == (f"cron:{job.pk}", SessionType.JOB, person.agent)
    assert session.owner == person.user
    run = RunRecord.objects.get(job=job, state=RunState.SUCCEEDED)
    assert (run.session_id, run.session_key) == (session.pk, session.key)
    trigger, answer = Message.objects.filter(session=session)
    assert trigger.content == "Scheduled automation triggered: old\n\nsay it"
    assert run.prompt_ref is not None
    assert run.prompt_ref["id"] == "cron.legacy.reminder"
    assert answer.metadata["route"] == {"channel": "telegram", "chat_id": "42", "meta": {"thread": 7}}
    again(job)
    inside.beat()
    assert Turn.objects.filter(session=session).count() == 2, "the next slot has the same session"


def test_the_next_run_replaces_a_deleted_internal_session(person: Person) -> None:
    job = legacy_job(person)
    fire_due_jobs()
    first = Session.objects.get(key=f"cron:{job.pk}")
    assert delete_session(first.pk).deleted
    run = RunRecord.objects.get(job=job)
    assert (run.state, run.reason, run.turn, run.session) == ("cancelled", "session_deleted", None, None)
    again(job)
    assert fire_due_jobs().queued == 1
    second = Session.objects.filter(key=f"cron:{job.pk}")
    assert second.get().pk != first.pk
    second.update(state=SessionState.DELETING, deleting_since=datetime.now(UTC))
    again(job)
    assert fire_due_jobs().queued == 0
    assert RunRecord.objects.get(job=job, state=RunState.SKIPPED).reason == "session_closed"


@pytest.mark.usefixtures("telegram")
def test_legacy_jobs_are_in_the_way_of_no_deletion(person: Person) -> None:
    session = person.session(key="telegram:42")
    job = legacy_job(person, session_key=session.key)
    assert delete_session(session.pk).deleted
    assert CronJob.objects.filter(pk=job.pk).exists()
    fire_due_jobs()
    assert delete_agent(person.agent.pk).deleted
    assert not CronJob.objects.exists()
    assert not RunRecord.objects.exists()


def test_deliveries_outlive_their_session_and_what_was_not_sent_is_closed(inside: Inside) -> None:
    Agent.objects.update(model="offline")
    told, kept = (legacy_job(inside.person, message=text) for text in ("news!", "nothing new"))
    inside.beat()
    assert RunRecord.objects.filter(state=RunState.SUCCEEDED).count() == 2
    for job in (told, kept):
        assert delete_session(Session.objects.get(key=f"cron:{job.pk}").pk).deleted
    rows = Delivery.objects.order_by("session_key").values_list("session_key", "state", "reason")
    assert set(rows) == {
        (f"cron:{told.pk}", "closed", "session_deleted"),
        (f"cron:{kept.pk}", "withheld", "It says: nothing new."),
    }
    assert not Delivery.objects.exclude(session=None, message=None).exists()


def test_concurrent_beats_open_one_internal_session_per_job(person: Person) -> None:
    jobs = [legacy_job(person, name=f"old {number}") for number in range(20)]
    beats = [in_thread(lambda: fire_due_jobs(limit=3)) for _ in range(8)]
    for thread, _ in beats:
        thread.join(30)
    while fire_due_jobs().claimed:
        pass
    assert Turn.objects.filter(kind=TurnKind.LEGACY).count() == len(jobs)
    keys = Session.objects.filter(type=SessionType.JOB).values_list("key", flat=True)
    assert sorted(keys) == sorted(f"cron:{job.pk}" for job in jobs)


LEGACY_FIELDS = {
    "channel": "telegram",
    "to": "42",
    "deliver": True,
    "channel_meta": {"thread": 7},
    "session_key": "telegram:42",
}


@pytest.mark.usefixtures("telegram")
def test_the_api_refuses_legacy_fields_and_has_no_place_for_their_jobs(person: Person) -> None:
    call = Caller(user=person.user, token=token_of(person.user))
    session = person.session(key="telegram:42")
    job = legacy_job(person, session_key=session.key)
    path, body = f"/api/sessions/{session.pk}/automations/", {"message": "go", "schedule": EVERY}
    assert call("GET", path).json()["results"] == []
    for method in ("GET", "PATCH", "DELETE"):
        assert call(method, f"/api/automations/{job.pk}/", {}).status_code == 404
    made = call("POST", path, body).json()
    before = list(CronJob.objects.values())
    for name, value in LEGACY_FIELDS.items():
        for method, address, more in (("POST", path, body), ("PATCH", f"/api/automations/{made['id']}/", {})):
            answer = call(method, address, more | {name: value})
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_input"), name
            assert name in answer.json()["errors"]
    assert list(CronJob.objects.values()) == before
