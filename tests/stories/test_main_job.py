"""The main job: an automation runs as a normal turn of its session, end to end."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db.models import Count
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.agents.documents import put_document
from sessions_app.agents.edit import update_agent
from sessions_app.models import Message, OnBusy, Session, Turn, TurnKind
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.delete import delete_session
from tests.agent_core.planner.plans import says
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.automations.turn_kinds.test_heartbeat import routine
from tests.automations.turn_kinds.test_isolated import job_of
from tests.conftest import Person, new_person
from tests.fleet import Fleet, until
from tests.inside import Inside, call, listening, makes
from tests.talk import say

pytestmark = pytest.mark.rule("4.8")


def runs(state: str, session: Session) -> list[RunRecord]:
    return list(RunRecord.objects.filter(state=state, session=session).order_by("scheduled_for"))


def due(session: Session, message: str, seconds: float = 1, **more: Any) -> CronJob:
    """An automation whose only slot was so many seconds ago."""
    at = {"kind": "at", "at": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    job = new(session, message=message, schedule=at, **more)
    slot = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=seconds)
    CronJob.objects.filter(pk=job.pk).update(at=slot)
    JobClock.objects.filter(job=job).update(next_run_at=slot)
    return job


@pytest.mark.long("a beat and a worker start, and a slot of the next second comes")
@pytest.mark.rule("4.1")
def test_an_automation_and_its_session_share_one_history(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    fleet.beat()
    session = person.session()
    say(session, "My favourite colour is blue.")
    job = new(session, name="colours", message="What is my favourite colour?", schedule=EVERY_SECOND)
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


DAY = {"heartbeat": {"active_hours": [0, 24]}}


@pytest.mark.full
@pytest.mark.rule("4.4")
def test_beats_that_race_claim_each_inline_and_isolated_slot_once(fleet: Fleet) -> None:
    people = [new_person(f"p{number}") for number in range(4)]
    jobs: list[CronJob] = []
    for person in people:
        update_agent(person.agent.pk, DAY)
        jobs += [routine(person, f"inline {number}") for number in range(6)]
        jobs += [job_of(person, "look", name=f"isolated {number}") for number in range(6)]
    JobClock.objects.update(next_run_at=Now() + timedelta(hours=1))
    for beat in [fleet.beat(ready=False) for _ in range(4)]:
        beat.wait_for("beat_ready", 60)
    JobClock.objects.update(next_run_at=Now())
    fleet.worker()
    done = RunRecord.objects.filter(state=RunState.SUCCEEDED)
    until(lambda: done.count() == len(jobs), 60)
    assert RunRecord.objects.count() == len(jobs)
    assert not RunRecord.objects.values("job").annotate(runs=Count("pk")).filter(runs__gt=1).exists()
    tasks = [task["id"] for turn in Turn.objects.filter(kind=TurnKind.HEARTBEAT) for task in turn.input.tasks]
    assert sorted(tasks) == sorted(job.pk for job in jobs if job.execution_mode == "inline")
    assert Session.objects.filter(type="job").count() == 24
    assert Turn.objects.filter(kind=TurnKind.JOB).count() == 24


@pytest.mark.rule("6.7")
def test_an_edited_document_overrides_what_the_session_remembers(inside: Inside) -> None:
    agent, session = inside.person.agent, inside.person.session()
    for name, text in (("AGENTS.md", "Be formal."), ("AGENTS.md", "Be playful."), ("USER.md", "Likes tea.")):
        put_document(agent.pk, name, text)
        # as a session of another program kept them
        Session.objects.filter(pk=session.pk).update(variables={name: "OLD", "workspace_instructions": "OLD"})
        inside.say(session, "hello")
        asked = str(inside.model.calls[-1])
        assert text in asked
        assert "OLD" not in asked
    assert "Be formal." not in str(inside.model.calls[-1])
