"""Promises of the runtime that need several of its parts at once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import Count
from django.db.models.functions import Now

from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.agents.documents import put_document
from sessions_app.agents.edit import update_agent
from sessions_app.models import MailboxEvent, Session, Turn, TurnKind
from tests.agent_core.planner.plans import says
from tests.automations.turn_kinds.test_heartbeat import routine
from tests.automations.turn_kinds.test_isolated import job_of
from tests.conftest import new_person
from tests.fleet import Fleet, until
from tests.inside import Inside, call, makes

pytestmark = pytest.mark.django_db(transaction=True)
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


@pytest.mark.rule("6.5")
@pytest.mark.parametrize("mode", ["inline", "isolated"])
def test_a_routine_from_chat_runs_and_its_result_returns_there(inside: Inside, mode: str) -> None:
    update_agent(inside.person.agent.pk, DAY)
    home = inside.person.session()
    tea = {"title": "Tea", "description": "make tea", "execution_mode": mode}
    replies = makes(call("add_routine", **tea)), says("I will."), says("The tea is ready.")
    inside.model.answer_with(*replies)
    inside.say(home, "Make tea.")
    job = CronJob.objects.get(agent=inside.person.agent, name="Tea")
    assert (job.execution_mode, job.home_id, job.source) == (mode, home.pk, "chat")
    inside.beat()
    assert RunRecord.objects.get(job=job).state == RunState.SUCCEEDED
    event = MailboxEvent.objects.get()
    assert (event.target_id, event.acknowledged_at) == (home.pk, None)
    following = inside.say(home, "hello")
    event.refresh_from_db()
    assert event.acknowledged_by_id == following.pk
    assert inside.model.shown().startswith("## Background Updates")
    assert event.summary in inside.model.shown()


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
