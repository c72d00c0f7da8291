"""Legacy jobs run the old way; their answer is judged once and handed over once, whatever dies (rules 4.1, 9.3)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelReply
from automations.firing.fire_jobs import fire_due_jobs
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.deliveries.send import send_next
from sessions_app.hints import DeliveryLane
from sessions_app.models import Agent, Delivery, DeliveryState, Message, Session, SessionType, Turn, TurnKind
from sessions_app.sessions.delete import delete_session
from tests.automations.jobs.made import EVERY, at_once
from tests.automations.turn_kinds.test_heartbeat import again, says
from tests.chaos.test_beats import batches_under_way
from tests.conftest import Person
from tests.deletion import caller
from tests.inside import Inside, Reply, during

pytestmark = pytest.mark.rule("4.1")

PLACE: dict[str, Any] = {"deliver": True, "channel": "telegram", "to": "42", "channel_meta": {"thread": 7}}


def legacy_job(person: Person, *, due: bool = True, **fields: Any) -> CronJob:
    """A legacy job as the import leaves it; its next slot has just passed."""
    slot = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1)
    hourly = {"schedule_kind": "every", "every_seconds": 3600, "anchor": slot}
    given = PLACE | hourly | {"name": "old", "message": "say it"} | fields
    job = CronJob.objects.create(agent=person.agent, **given)
    JobClock.objects.create(job=job, next_run_at=slot if due else None)
    return job


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
    assert (run.prompt_ref or {})["id"] == "cron.legacy.reminder"
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
    second.update(state="deleting", deleting_since=datetime.now(UTC))
    again(job)
    assert fire_due_jobs().queued == 0
    assert RunRecord.objects.get(job=job, state=RunState.SKIPPED).reason == "session_closed"


def test_concurrent_beats_open_one_internal_session_per_job(person: Person) -> None:
    jobs = [legacy_job(person, name=f"old {number}") for number in range(20)]
    at_once(*[lambda: fire_due_jobs(limit=3)] * 8)
    while fire_due_jobs().claimed:
        pass
    assert Turn.objects.filter(kind=TurnKind.LEGACY).count() == len(jobs)
    keys = Session.objects.filter(type=SessionType.JOB).values_list("key", flat=True)
    assert sorted(keys) == sorted(f"cron:{job.pk}" for job in jobs)


@pytest.mark.usefixtures("telegram")
def test_the_api_refuses_legacy_fields_and_has_no_place_for_their_jobs(person: Person) -> None:
    call, session = caller(person), person.session(key="telegram:42")
    job = legacy_job(person, session_key=session.key)
    path, body = f"/api/sessions/{session.pk}/automations/", {"message": "go", "schedule": EVERY}
    assert call("GET", path).json()["results"] == []
    for method in ("GET", "PATCH", "DELETE"):
        assert call(method, f"/api/automations/{job.pk}/", {}).status_code == 404
    answer = call("POST", path, body | PLACE | {"session_key": session.key})
    assert (answer.status_code, answer.json()["errors"].keys()) == (400, {*PLACE, "session_key"})
    assert delete_session(session.pk).deleted, "it is not bound to what it names"
    assert CronJob.objects.get() == job


def run_of(job: CronJob) -> RunRecord | None:
    return RunRecord.objects.filter(job=job, finished_at__isnull=False).first()


ASKED = "decide whether a person is told"


def judged(inside: Inside, job: CronJob, *replies: Reply) -> tuple[RunRecord, int]:
    """The run of the job's slot, and how often a verdict was asked for."""
    inside.model.answer_with(*replies)
    before = len(inside.model.calls)
    inside.beat()
    found = run_of(job)
    assert found is not None
    return found, sum(ASKED in call.system_prompt for call in inside.model.calls[before:])


def test_an_answer_worth_telling_is_handed_to_the_jobs_address(inside: Inside, telegram: None) -> None:
    Agent.objects.update(model="offline")
    job = legacy_job(inside.person, message="Take the bread out!")
    run, _ = judged(inside, job)
    assert send_next(DeliveryLane(session_id=Turn.objects.get().session_id, channel="telegram"))
    delivery: Any = Delivery.objects.get(state=DeliveryState.SENT)
    assert (delivery.channel, delivery.address, delivery.meta) == ("telegram", "42", {"thread": 7})
    assert (delivery.reason, delivery.attempts, delivery.last_error) == ("", 1, "")
    [line] = (inside.folder / "telegram.sent").read_text().splitlines()
    assert line.startswith(f"run:{run.run_id} 42 'Done: Take the bread out!")
    assert delivery.idempotency_key == f"run:{run.run_id}"
    assert (delivery.session_id, delivery.session_key) == (run.session_id, f"cron:{job.pk}")
    assert delivery.message.turn == run.turn
    assert delivery.message.content.startswith("Done: Take the bread out!")
    again(job)
    inside.beat()
    assert Delivery.objects.filter(session=run.session).count() == 2, "each run has a delivery of its own"


def test_an_answer_with_nothing_new_is_withheld_with_a_reason(inside: Inside) -> None:
    Agent.objects.update(model="offline")
    run, _ = judged(inside, legacy_job(inside.person, message="report: nothing new in the garden"))
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.reason) == (DeliveryState.WITHHELD, "It says: nothing new.")
    assert delivery.ended_at is not None
    assert run.state == RunState.SUCCEEDED, "what is told and what was done are two things"


NEWS = ModelReply(text="News!")
NOWHERE = {"deliver": None, "channel": "", "to": "", "channel_meta": None}
SILENT: dict[str, tuple[dict[str, Any], Reply]] = {
    "it is not to be delivered": ({"deliver": False}, NEWS),
    "it has no channel": ({"channel": ""}, NEWS),
    "it has no address": ({"to": ""}, NEWS),
    "it says nothing": ({}, ModelReply(text="")),
    "it fails": ({}, ModelRefused("payment required")),
    "it belongs to a session": (NOWHERE, NEWS),
}


def test_nothing_is_judged_or_handed_over_when_there_is_nobody_to_tell(inside: Inside) -> None:
    for why, (fields, reply) in SILENT.items():
        session = inside.person.session() if fields == NOWHERE else None
        run, verdicts = judged(inside, legacy_job(inside.person, session=session, **fields), reply)
        assert run.state == (RunState.FAILED if why == "it fails" else RunState.SUCCEEDED), why
        assert verdicts == 0, why
        assert not Delivery.objects.exists(), why
        assert Message.objects.filter(turn=run.turn, role="assistant").exists(), "its closure can be seen"
    inside.say(inside.person.session(), "anything new?")
    assert not any(ASKED in call.system_prompt for call in inside.model.calls)
    assert not Delivery.objects.exists()


def test_a_run_cancelled_while_being_judged_delivers_nothing(inside: Inside) -> None:
    def cancel() -> None:
        assert not batches_under_way(), "no transaction is open while the judge thinks"
        inside.handles[-1].control.cancel()

    run, verdicts = judged(inside, legacy_job(inside.person), says("News!"), during(cancel, says("{}")))
    assert (run.state, verdicts) == (RunState.CANCELLED, 1)
    assert not Delivery.objects.exists()


def test_a_judge_in_trouble_keeps_nothing_back(inside: Inside) -> None:
    troubles: list[Reply] = [ModelRefused("payment required"), says("perhaps"), says("")]
    for number, trouble in enumerate(troubles, 1):
        run, verdicts = judged(inside, legacy_job(inside.person), says("News!"), trouble)
        assert (run.state, verdicts) == (RunState.SUCCEEDED, 1)
        assert Delivery.objects.filter(state=DeliveryState.PENDING).count() == number
