"""Isolated routines: a fresh session for each slot, several turns, one mail, an archive (rule 6.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.retries import queue_due_retries
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.routines.edit import NewRoutine, add_routine
from automations.runs.report import first_sentence
from automations.turn_kinds.isolated import MOST_TURNS, queue_next_turn
from sessions_app.hints import send
from sessions_app.models import Agent, MailboxEvent, Message, Session, SessionState, Turn, TurnKind
from sessions_app.retention import job_sessions
from sessions_app.retention.job_sessions import JobSessionsWalk
from sessions_app.retention.walk import prune_batch
from sessions_app.sessions.open import open_session, primary_session, rename_session
from sessions_app.turns.receive import MessageInput, receive
from tests.automations.turn_kinds.test_heartbeat import has_run
from tests.conftest import Person
from tests.fleet import Fleet, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("6.3")]


def job_of(person: Person, description: str, **more: Any) -> CronJob:
    """An isolated routine that is due now."""
    now = datetime.now(UTC).replace(microsecond=0)
    given: dict[str, Any] = {"schedule_kind": "every", "every_seconds": 3600, "anchor": now} | more
    job = CronJob.objects.create(
        agent=person.agent, description=description, execution_mode="isolated", **({"name": "report"} | given)
    )
    JobClock.objects.create(job=job, next_run_at=now, planned_from=now - timedelta(hours=1))
    return job


def run_of(job: CronJob) -> RunRecord:
    return RunRecord.objects.get(job=job)


def ended(job: CronJob) -> RunRecord | None:
    run = run_of(job)
    return run if run.finished_at is not None else None


@pytest.mark.rule("6.4")
def test_each_slot_uses_its_own_session_and_notifies_home_once(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    home = person.session()
    job = job_of(person, "say what is new", home=home)
    fire_due_jobs()
    run = until(lambda: ended(job))
    session = Session.objects.get(key=f"job:{run.run_id}")
    assert (session.type, session.state, run.state) == ("job", SessionState.ARCHIVED, RunState.SUCCEEDED)
    assert run.session_key == session.key
    answer = Message.objects.filter(session=session, role="assistant").latest("seq").content
    event = MailboxEvent.objects.get()
    assert (event.target_id, event.event_type) == (home.pk, "job_completed")
    assert event.summary == first_sentence(answer)
    assert (event.detail or event.summary) == answer
    assert event.source_key == session.key
    assert not Message.objects.filter(session=home).exists()


@pytest.mark.rule("6.1")
def test_a_result_supersedes_the_last_and_lists_links_and_files(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    job = job_of(person_with_server, "report")
    said = ("Nothing new. Really.", "Done. See https://example.org/r and out/report.pdf.", "", "")
    for times, text in enumerate(said, 1):
        model_server.answer_with(ModelReply(text=text))
        JobClock.objects.filter(job=job).update(next_run_at=Now())
        fire_due_jobs()
        has_run(job, times)
    assert [
        (event.summary, event.detail, event.artifacts)
        for event in MailboxEvent.objects.filter(dropped_at=None).order_by("id")
    ] == [
        ("Done.", said[1], ["https://example.org/r", "out/report.pdf"]),
        ("Finished with no output.", "", []),
    ]
    assert MailboxEvent.objects.filter(reason="superseded").count() == 2


def test_a_job_sees_the_briefing_but_no_other_conversation(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    chat = primary_session(person.agent)
    said = receive(chat.pk, MessageInput(content="my secret colour is mauve"))
    until(lambda: Turn.objects.get(pk=said.pk).finished_at)
    thread = person.session()
    rename_session(thread.pk, "")
    told = receive(thread.pk, MessageInput(content="mauve is my secret colour"))
    until(lambda: Turn.objects.get(pk=told.pk).finished_at)
    named = open_session(person.agent, title="Colours")
    job = job_of(person, "what is my colour?")
    fire_due_jobs()
    run = until(lambda: ended(job))
    shown = run.turn.steps.get(n=0).data["message"]
    assert "mauve" not in shown
    thread.refresh_from_db()
    assert thread.title.startswith("mauve"), "people see it, background sessions do not"
    for name in ("Primary", thread.key, named.title):
        assert f"- conversation: {name}, last active" in shown


def test_a_job_takes_several_turns_and_returns_the_last_answer(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    job = job_of(person, 'use tool next_turn with {"task": "remember that step two was done"}')
    fire_due_jobs()
    run = until(lambda: ended(job))
    turns = list(Turn.objects.filter(kind=TurnKind.JOB).order_by("id"))
    assert [turn.state for turn in turns] == ["succeeded", "succeeded"]
    assert (run.state, run.turn_id, run.attempt) == (RunState.SUCCEEDED, turns[1].pk, 1)
    event = MailboxEvent.objects.get()
    assert (event.detail or event.summary) == Message.objects.filter(turn=turns[1], role="assistant").latest(
        "seq"
    ).content
    assert Session.objects.get(pk=turns[0].session_id).state == SessionState.ARCHIVED


def test_a_job_that_never_ends_is_told_to(person: Person) -> None:
    from agent_core.exceptions import ToolFailed
    from automations.tools.next_turn import request_next_turn as next_turn
    from sessions_app.turns.tool_calls import ToolContext

    job = job_of(person, "go on")
    fire_due_jobs()
    turn = run_of(job).turn
    assert turn is not None
    for _ in range(MOST_TURNS - 1):
        Turn.objects.filter(pk=turn.pk).update(state="succeeded", finished_at=Now())
        turn = queue_next_turn(turn, "more", has_read=False)
    Turn.objects.filter(pk=turn.pk).update(state="running")
    context = ToolContext(turn=turn, session=turn.session, agent=person.agent, interactive=False)
    with pytest.raises(ToolFailed, match="at most"):
        next_turn(context, {"task": "more"})


def test_a_failure_is_reported_only_after_the_last_attempt(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    Agent.objects.filter(pk=person_with_server.agent.pk).update(policy={"max_attempts": 1})
    job = job_of(person_with_server, "[[fail:503x2]] look", max_retry=1)
    fire_due_jobs()
    until(lambda: run_of(job).not_before)
    session = Session.objects.get(key=f"job:{run_of(job).pk}")
    assert session.state == SessionState.OPEN
    assert not MailboxEvent.objects.exists()
    RunRecord.objects.update(not_before=Now())
    send(queue_due_retries(10))
    run = until(lambda: ended(job))
    assert (run.state, run.attempt) == (RunState.FAILED, 2)
    event = MailboxEvent.objects.get()
    assert (event.event_type, event.priority, event.target_id) == (
        "job_failed", 1, primary_session(person_with_server.agent).pk,
    )  # fmt: skip
    session.refresh_from_db()
    assert session.state == SessionState.ARCHIVED


def test_its_own_instructions_stand_in_its_system_prompt(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    given: dict[str, Any] = {"instructions": "Answer in French, always.", "policy": {"max_tool_calls": 1}}
    job = add_routine(
        NewRoutine(agent_id=person_with_server.agent.pk, title="look", execution_mode="isolated", **given)
    )
    until(lambda: fire_due_jobs().queued)
    until(lambda: ended(job))
    turn = run_of(job).turn
    assert turn is not None
    assert turn.metadata["policy"] == {"max_tool_calls": 1}
    assert "Answer in French, always." in str(model_server.requests[-1])


@pytest.mark.rule("5.2")
def test_an_agents_jobs_and_chat_run_concurrently(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    jobs = [job_of(person, "think for 2 seconds", name=f"r{number}") for number in range(2)]
    fire_due_jobs()
    chat = receive(primary_session(person.agent).pk, MessageInput(content="think for 2 seconds"))
    until(lambda: Turn.objects.filter(state="running").count() == 3)
    until(lambda: all(ended(job) for job in jobs) and Turn.objects.get(pk=chat.pk).finished_at)


def test_pruning_archived_sessions_by_age_and_count_keeps_their_mail(
    fleet: Fleet, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.worker()
    job = job_of(person, "look")
    for _ in range(3):
        JobClock.objects.filter(job=job).update(next_run_at=Now())
        fire_due_jobs()
        until(lambda: not RunRecord.objects.filter(job=job, finished_at=None).exists())
    sessions = Session.objects.filter(type="job", state=SessionState.ARCHIVED)
    assert sessions.count() == 3
    monkeypatch.setattr(job_sessions, "KEPT_PER_JOB", 2)
    assert prune_batch(JobSessionsWalk()).removed == 1
    sessions.update(updated_at=Now() - timedelta(days=15))
    Session.objects.filter(pk=sessions[0].pk).update(state=SessionState.OPEN)
    assert prune_batch(JobSessionsWalk()).removed == 1
    assert (Session.objects.filter(type="job").count(), MailboxEvent.objects.count()) == (1, 3)
    assert RunRecord.objects.filter(job=job, state=RunState.SUCCEEDED).count() == 3
