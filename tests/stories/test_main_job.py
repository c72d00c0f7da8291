"""The main job: an automation runs as a normal turn of its session, end to end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import NewJob, create_job
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.models import Event, EventType, Message, OnBusy, Session, Turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.delete import delete_session
from tests.agent_core.planner.plans import says
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.inside import Inside, call, listening, makes
from tests.talk import ended, say

__all__ = ["ended"]  # for other modules
pytestmark = pytest.mark.rule("4.8")


def runs(state: str, session: Session) -> list[RunRecord]:
    return list(RunRecord.objects.filter(state=state, session=session).order_by("scheduled_for"))


def due(session: Session, message: str, seconds: float = 1, **more: Any) -> CronJob:
    """An automation whose only slot was so many seconds ago."""
    at = {"kind": "at", "at": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    job = create_job(NewJob(session_id=session.pk, message=message, schedule=at, **more))
    slot = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=seconds)
    CronJob.objects.filter(pk=job.pk).update(at=slot)
    JobClock.objects.filter(job=job).update(next_run_at=slot)
    return job


@pytest.mark.long("a beat and a worker")
@pytest.mark.rule("4.1")
def test_an_automation_and_its_session_share_one_history(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    fleet.beat()
    session = person.session()
    say(session, "My favourite colour is blue.")
    job = create_job(
        NewJob(
            session_id=session.pk,
            name="colours",
            message="What is my favourite colour?",
            schedule={"kind": "every", "seconds": 1},
        )
    )
    run = until(lambda: runs(RunState.SUCCEEDED, session))[0]
    history = list(Message.objects.filter(session=session, turn=run.turn))
    assert [message.role for message in history] == ["user", "assistant"]
    trigger, answer = history
    assert trigger.content == "Scheduled automation triggered: colours\n\nWhat is my favourite colour?"
    assert (trigger.model_content, "blue" in answer.content) == (None, True)
    following = say(session, "What did the automation say?")
    assert "blue" in Message.objects.filter(turn=following, role="assistant").get().content
    assert [blocker.id for blocker in delete_session(session.pk).blockers] == [job.pk]
    assert delete_session(session.pk, with_dependents=True).deleted
    assert not RunRecord.objects.exists()


def test_seqs_have_no_gap_and_the_revision_counts_the_commits(inside: Inside) -> None:
    session = inside.person.session()
    notes = [f"note {number}" for number in range(12)]
    turns = [receive(session.pk, MessageInput(content=note, on_busy=OnBusy.ENQUEUE)) for note in notes]
    inside.run(session)
    assert session.revision == 12
    said = Message.objects.filter(session=session).order_by("seq")
    assert list(said.values_list("seq", flat=True)) == list(range(1, session.last_seq + 1))
    assert list(said.filter(role="user").values_list("content", flat=True)) == notes
    assert session.title == "note 0"
    for turn in turns:
        ends = Event.objects.filter(turn_id=turn.pk, type=EventType.TURN_END)
        assert ends.count() == 1


@pytest.mark.rule("2.3")
def test_a_long_turn_delays_only_its_session_and_keeps_order(inside: Inside) -> None:
    busy, other = inside.person.session(), inside.person.session()

    def work() -> None:
        """While the turn is at work, slots come due and somebody writes."""
        due(busy, "go", 1, name="job 2")
        due(busy, "go", 60, name="job 1")
        due(other, "elsewhere")
        fire_due_jobs()
        inside.run(other)
        assert len(runs(RunState.SUCCEEDED, other)) == 1
        assert len(runs(RunState.QUEUED, busy)) == 2
        receive(busy.pk, MessageInput(content="and me", on_busy=OnBusy.ENQUEUE))

    inside.model.answer_with(makes(call("listen")), says("Elsewhere."), says("Done."))
    with listening(work):
        inside.say(busy, "think about it")
    assert len(runs(RunState.SUCCEEDED, busy)) == 2
    order = Turn.objects.filter(session=busy).order_by("started_at")
    names = [turn.input.automation_name or turn.content for turn in order]
    assert names == ["think about it", "and me", "job 1", "job 2"]
    finished = list(order.values_list("started_at", "finished_at"))
    assert all(end and begin and end <= begin for (_, end), (begin, _) in pairwise(finished))


def test_an_automation_requested_in_chat_is_bound_to_the_session(inside: Inside) -> None:
    session = inside.person.session()
    inside.model.answer_with(
        makes(call("cron", action="add", message="check the repo", every_seconds=10)), says("I will.")
    )
    asked = inside.say(session, "Every 10 seconds check the repo")
    job = session.jobs.get()
    assert (job.every_seconds, job.source, job.created_by_turn_id) == (10, "chat", asked.pk)
    assert job.pk in Message.objects.get(turn=asked, role="tool").parts["results"][0]["output"]
