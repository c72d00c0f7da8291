"""Isolated routines: a fresh session for each slot, several turns, one mail, an archive (rule 6.3)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.exceptions import ToolFailed
from agent_core.llm.protocol import ModelReply
from agent_core.types import EMPTY, NOTES, Ended
from automations.firing.fire_jobs import fire_due_jobs
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.tools.background import request_next_turn
from automations.turn_kinds.isolated import MOST_TURNS, queue_next_turn
from sessions_app.models import Agent, MailboxEvent, Message, Session, SessionState, Turn, TurnKind
from sessions_app.retention import rules
from sessions_app.retention.rules import JobSessionsWalk
from sessions_app.retention.walk import prune_batch
from sessions_app.sessions.open import open_session, primary_session, rename_session
from sessions_app.turns.tool_calls import ToolContext
from tests.automations.jobs.made import add
from tests.automations.messages import claimed
from tests.automations.turn_kinds.test_bound import repeated
from tests.automations.turn_kinds.test_heartbeat import routine, says
from tests.conftest import Person
from tests.inside import Inside, call, makes

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("6.3")]


def job_of(person: Person, description: str, **more: Any) -> CronJob:
    """An isolated routine that is due now."""
    now = datetime.now(UTC).replace(microsecond=0)
    given: dict[str, Any] = {"schedule_kind": "every", "every_seconds": 3600, "anchor": now, "name": "report"}
    given |= {"description": description, "execution_mode": "isolated"} | more
    job = CronJob.objects.create(agent=person.agent, **given)
    JobClock.objects.create(job=job, next_run_at=now, planned_from=now - timedelta(hours=1))
    return job


def run_of(job: CronJob) -> RunRecord:
    return RunRecord.objects.get(job=job)


def ran(inside: Inside, job: CronJob, *replies: ModelReply | Exception) -> RunRecord:
    """A slot of the job, from its instant to its end."""
    inside.model.answer_with(*replies)
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    inside.beat()
    return RunRecord.objects.filter(job=job).latest("scheduled_for")


@pytest.mark.rule("6.4")
def test_each_slot_uses_its_own_session_and_notifies_home_once(inside: Inside) -> None:
    home = inside.person.session()
    given: dict[str, Any] = {"instructions": "Answer in French, always.", "policy": {"max_tool_calls": 1}}
    job = add(inside.person, "n", execution_mode="isolated", session_id=home.pk, **given)
    run = ran(inside, job, says("Rien. Absolument rien."))
    session = Session.objects.get(key=f"job:{run.run_id}")
    assert (session.type, session.state, run.state) == ("job", SessionState.ARCHIVED, RunState.SUCCEEDED)
    assert run.session_key == session.key
    event = MailboxEvent.objects.get()
    assert (event.target_id, event.event_type) == (home.pk, "job_completed")
    assert (event.summary, event.detail) == ("Rien.", "Rien. Absolument rien.")
    assert event.source_key == session.key
    assert not Message.objects.filter(session=home).exists()
    assert "Answer in French, always." in inside.model.calls[0].system_prompt
    assert Turn.objects.get(runs=run).input.policy == {"max_tool_calls": 1}


@pytest.mark.rule("6.1")
@pytest.mark.parametrize("due", [job_of, routine])
def test_a_result_supersedes_older_ones_unless_empty(inside: Inside, due: Callable[..., CronJob]) -> None:
    """Of an isolated routine and of an inline one."""
    job = due(inside.person, "report")
    said = ("Nothing new. Really.", "Done. See https://example.org/r and out/report.pdf.", "", "")
    for text in said:
        ran(inside, job, says(text))
    left = MailboxEvent.objects.filter(dropped_at=None).order_by("id")
    assert list(left.values_list("summary", "detail", "artifacts")) == [
        ("Done.", said[1], ["https://example.org/r", "out/report.pdf"]),
        ("Finished with no output.", "", []),
    ]
    assert MailboxEvent.objects.filter(reason="superseded").count() == 2


@pytest.mark.rule("3.6")
def test_a_result_that_is_not_whole_says_so(inside: Inside) -> None:
    job = job_of(inside.person, "report")
    for text, told in (("Half of", f"Half of\n\n({NOTES[Ended.LENGTH]})"), ("", EMPTY[Ended.LENGTH])):
        run = ran(inside, job, ModelReply(text=text, ended_by=Ended.LENGTH))
        assert (run.state, run.turn.ended_by if run.turn else "") == (RunState.SUCCEEDED, "length")
        latest = MailboxEvent.objects.latest("id")
        assert told in (latest.detail, latest.summary)


def test_a_job_sees_the_briefing_but_no_other_conversation(inside: Inside) -> None:
    person = inside.person
    inside.say(primary_session(person.agent), "my secret colour is mauve")
    thread = person.session()
    rename_session(thread.pk, "")
    inside.say(thread, "mauve is my secret colour")
    named = open_session(person.agent, title="Colours")
    ran(inside, job_of(person, "what is my colour?"))
    shown = inside.model.shown()
    assert "mauve" not in shown
    assert thread.title.startswith("mauve"), "people see it, background sessions do not"
    for name in ("Primary", thread.key, named.title):
        assert f"- conversation: {name}, last active" in shown


def test_a_job_takes_several_turns_and_returns_the_last_answer(inside: Inside) -> None:
    job = job_of(inside.person, "two steps")
    on = makes(call("next_turn", task="remember that step two was done"))
    run = ran(inside, job, on, says("One."), says("Two."))
    turns = list(Turn.objects.filter(kind=TurnKind.JOB).order_by("id"))
    assert [turn.state for turn in turns] == ["succeeded", "succeeded"]
    assert (run.state, run.turn_id, run.attempt) == (RunState.SUCCEEDED, turns[1].pk, 1)
    assert MailboxEvent.objects.get().summary == "Two."
    assert Session.objects.get(pk=turns[0].session_id).state == SessionState.ARCHIVED


@pytest.mark.rule("4.5")
def test_a_slot_waits_while_the_previous_run_waits_and_is_skipped_while_it_runs(inside: Inside) -> None:
    def fire() -> list[str]:
        JobClock.objects.filter(job=job).update(next_run_at=Now())
        fire_due_jobs()
        runs = RunRecord.objects.filter(job=job).order_by("scheduled_for", "created_at")
        return [run.reason or run.state for run in runs]

    job = job_of(inside.person, "report", every_seconds=1)
    assert fire() == ["queued"]
    assert fire() == ["queued", "queued"]
    inside.model.answer_with(says("One."), says("Two."))
    for run in RunRecord.objects.filter(job=job):
        assert run.session is not None
        inside.run(run.session)
    assert fire() == ["succeeded", "succeeded", "queued"]
    running: Any = RunRecord.objects.get(job=job, state="queued")
    turn = claimed(running.session)
    assert fire() == ["succeeded", "succeeded", "running", "overlap"]
    # between two turns of a run that has begun
    queue_next_turn(turn, "go on", has_read=False)
    following = Turn.objects.get(state="queued", origin_run=running.pk)
    Turn.objects.filter(pk=turn.pk).update(state="succeeded", finished_at=Now())
    RunRecord.objects.filter(pk=running.pk).update(turn=following)
    assert fire() == ["succeeded", "succeeded", "running", "overlap", "overlap"]


def test_a_job_that_never_ends_is_told_to(person: Person) -> None:
    job = job_of(person, "go on")
    fire_due_jobs()
    turn = Turn.objects.get(runs=run_of(job))
    for _ in range(MOST_TURNS - 1):
        Turn.objects.filter(pk=turn.pk).update(state="succeeded", finished_at=Now())
        turn = queue_next_turn(turn, "more", has_read=False)
    Turn.objects.filter(pk=turn.pk).update(state="running")
    context = ToolContext(turn=turn, session=turn.session, agent=person.agent, interactive=False)
    with pytest.raises(ToolFailed, match="at most"):
        request_next_turn(context, {"task": "more"})


def test_a_failure_is_reported_only_after_the_last_attempt(inside: Inside) -> None:
    Agent.objects.update(policy={"max_attempts": 1})
    job = job_of(inside.person, "look", max_retry=1)
    assert ran(inside, job, RuntimeError("a bug")).not_before is not None
    session = Session.objects.get(key=f"job:{run_of(job).pk}")
    assert session.state == SessionState.OPEN
    assert not MailboxEvent.objects.exists()
    run = repeated(inside, run_of(job), RuntimeError("a bug"))
    assert (run.state, run.attempt) == (RunState.FAILED, 2)
    event = MailboxEvent.objects.get()
    assert (event.event_type, event.priority) == ("job_failed", 1)
    assert event.target == primary_session(inside.person.agent)
    session.refresh_from_db()
    assert session.state == SessionState.ARCHIVED


def test_pruning_archived_sessions_keeps_their_mail(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(inside.person, "look")
    for _ in range(3):
        ran(inside, job)
    sessions = Session.objects.filter(type="job", state=SessionState.ARCHIVED)
    assert sessions.count() == 3
    monkeypatch.setattr(rules, "KEPT_PER_JOB", 2)
    assert prune_batch(JobSessionsWalk()).removed == 1
    sessions.update(updated_at=Now() - timedelta(days=15))
    Session.objects.filter(pk=sessions[0].pk).update(state=SessionState.OPEN)
    assert prune_batch(JobSessionsWalk()).removed == 1
    assert (Session.objects.filter(type="job").count(), MailboxEvent.objects.count()) == (1, 3)
    assert RunRecord.objects.filter(job=job, state=RunState.SUCCEEDED).count() == 3
