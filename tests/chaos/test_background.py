"""A conversation, a heartbeat and three jobs of several turns at the same time, in one worker, and after its death.

What the jobs give reaches the primary session's next turn, each once, urgent first (rules 6.2, 6.3).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now

from agent_core.testing import ModelServer
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.inline_routines import InlineRoutineStarter
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.agents.edit import update_agent
from sessions_app.models import MailboxEvent, Session, SessionState, Turn, TurnKind, TurnState
from sessions_app.sessions.open import primary_session
from sessions_app.turns.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("6.3")]


def due_now(person: Person, name: str, mode: str, description: str) -> CronJob:
    now = datetime.now(UTC).replace(microsecond=0)
    job = CronJob.objects.create(
        agent=person.agent,
        name=name,
        description=description,
        execution_mode=mode,
        schedule_kind="every",
        every_seconds=3600,
        anchor=now,
    )
    JobClock.objects.create(
        job=job, inline=mode == "inline", next_run_at=Now(), planned_from=now - timedelta(hours=1)
    )
    return job


def in_turns(count: int, last: str) -> str:
    """A task that an agent does in so many turns, by the offline model's sentences."""
    task = last
    for _ in range(count - 1):
        task = f'use tool next_turn with {{"task": {_quoted(task)}}}'
    return task


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@pytest.mark.full
@pytest.mark.rule("6.2")
def test_chat_heartbeat_and_jobs_run_concurrently_and_show_results_once(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """The conversation's model thinks all the time, and the worker is killed once."""
    person = person_with_server
    worker = fleet.worker()
    jobs = [
        due_now(person, f"job {n}", "isolated", in_turns(3, f"remember that result {n} is in"))
        for n in range(3)
    ]
    inline = due_now(person, "look", "inline", "look around")
    update_agent(person.agent.pk, {"heartbeat": {"active_hours": [0, 24]}})  # whenever this test runs
    primary = primary_session(person.agent)
    chat = receive(primary.pk, MessageInput(content="[[hold:chat]] hello"))
    until(lambda: model_server.held.get("chat"))
    InlineRoutineStarter().step()
    fire_due_jobs()
    until(lambda: len(finished(jobs)) >= 1, 60)
    worker.kill()
    fleet.worker()
    until(lambda: len(finished([*jobs, inline])) == 4, 90)
    chat.refresh_from_db()
    assert chat.state == TurnState.RUNNING, "the others did not wait for the conversation"
    assert _turns_of(jobs) == [3, 3, 3]
    model_server.release("chat")
    until(lambda: Turn.objects.get(pk=chat.pk).finished_at, 60)
    following = receive(primary.pk, MessageInput(content="what is new?"))
    until(lambda: Turn.objects.get(pk=following.pk).state == TurnState.SUCCEEDED, 60)
    shown = following.steps.get(n=0).data["message"]
    for n in range(3):
        assert len(re.findall(rf"\[job_completed\] .*result {n} is in", shown)) == 1, shown
    assert shown.count("[heartbeat_result]") == 1
    events = MailboxEvent.objects.filter(target=primary)
    assert {event.acknowledged_by_id for event in events} == {following.pk}
    assert len(events) == 4
    assert set(Session.objects.filter(type="job").values_list("state", flat=True)) == {SessionState.ARCHIVED}


def finished(jobs: list[CronJob]) -> list[RunRecord]:
    return list(RunRecord.objects.filter(job__in=jobs, state=RunState.SUCCEEDED))


def _turns_of(jobs: list[CronJob]) -> list[int]:
    """How many turns each job's session had, none of them twice."""
    counts = []
    for job in jobs:
        turns = Turn.objects.filter(origin_run__startswith=f"{job.pk}:", kind=TurnKind.JOB)
        assert set(turns.values_list("state", flat=True)) == {TurnState.SUCCEEDED}
        counts.append(turns.count())
    return counts
