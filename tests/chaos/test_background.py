"""A conversation, a heartbeat and three jobs of several turns at the same time, in one worker, and after its death.

What the jobs give reaches the primary session's next turn, each once, urgent first (rules 6.2, 6.3).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.inline_routines import InlineRoutineStarter
from automations.models import CronJob, JobClock, RunRecord, RunState
from sessions_app.agents.edit import update_agent
from sessions_app.models import MailboxEvent, Session, SessionState, Turn, TurnKind, TurnState
from sessions_app.sessions.open import primary_session
from sessions_app.turns.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, Process, until

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


def running() -> set[str]:
    return set(Turn.objects.filter(state=TurnState.RUNNING).values_list("kind", flat=True))


@pytest.mark.rule("6.2")
@pytest.mark.parametrize("dies", [False, True], ids=["undisturbed", "the worker is killed"])
def test_chat_heartbeat_and_jobs_run_concurrently_and_show_results_once(
    fleet: Fleet, person: Person, dies: bool
) -> None:
    worker = fleet.worker()
    jobs = [
        due_now(person, f"job {n}", "isolated", in_turns(3, f"remember that result {n} is in"))
        for n in range(3)
    ]
    inline = due_now(person, "look", "inline", "look around")
    update_agent(person.agent.pk, {"heartbeat": {"active_hours": [0, 24]}})  # whenever this test runs
    primary = primary_session(person.agent)
    chat = receive(primary.pk, MessageInput(content="think for 20 seconds"))
    until(lambda: TurnKind.MESSAGE in running())
    InlineRoutineStarter().step()
    fire_due_jobs()
    until(lambda: len(finished(jobs)) >= 1, 60)
    if dies:
        _replace(fleet, worker)
    until(lambda: len(finished([*jobs, inline])) == 4, 90)
    chat.refresh_from_db()
    if not dies:
        assert chat.state == TurnState.RUNNING, "the others did not wait for the conversation"
    assert _turns_of(jobs) == [3, 3, 3]
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


def _replace(fleet: Fleet, worker: Process) -> None:
    worker.kill()
    fleet.worker()


def _turns_of(jobs: list[CronJob]) -> list[int]:
    """How many turns each job's session had, none of them twice."""
    counts = []
    for job in jobs:
        turns = Turn.objects.filter(origin_run__startswith=f"{job.pk}:", kind=TurnKind.JOB)
        assert set(turns.values_list("state", flat=True)) == {TurnState.SUCCEEDED}
        counts.append(turns.count())
    return counts


@pytest.mark.rule("6.2")
def test_urgent_news_comes_first(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    good, bad = (
        due_now(person, "good", "isolated", "remember that all is well"),
        due_now(person, "bad", "isolated", "fail"),
    )
    fire_due_jobs()
    until(lambda: RunRecord.objects.filter(job__in=[good, bad], finished_at__isnull=False).count() == 2)
    turn = receive(primary_session(person.agent).pk, MessageInput(content="hello"))
    until(lambda: Turn.objects.get(pk=turn.pk).finished_at)
    shown = turn.steps.get(n=0).data["message"]
    assert shown.index("[job_failed]") < shown.index("[job_completed]")
