"""Every way a background run ends leaves nothing of its end out: outcome, archive, mail (rules 4.7, 6.3)."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.exceptions import ModelUnavailable
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.inline_routines import InlineRoutineStarter
from automations.firing.retries import queue_due_retries
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.routines.edit import remove_routine, update_routine
from automations.runs.figures import failing_jobs, jobs_failing_in_a_row
from automations.runs.report import LONGEST, MOST, artifacts_of
from sessions_app.agents.edit import update_agent
from sessions_app.models import Agent, Delivery, MailboxEvent, Message, Session, SessionState, Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.open import archive, primary_session
from tests.automations.turn_kinds.test_bound import fire
from tests.automations.turn_kinds.test_heartbeat import heartbeat_turn, routine
from tests.automations.turn_kinds.test_isolated import job_of
from tests.conftest import Person
from tests.inside import Inside
from tests.races import before

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def awake(inside: Inside) -> Person:
    """Someone whose heartbeat beats at every hour."""
    update_agent(inside.person.agent.pk, {"heartbeat": {"active_hours": [0, 24]}})
    inside.person.agent.refresh_from_db()
    return inside.person


def waits_for_a_retry(job: CronJob) -> tuple[RunRecord, Session]:
    """The run of a job after its first attempt failed, as its turn's commit leaves it."""
    run: Any = RunRecord.objects.select_related("session", "turn").get(job=job)
    Turn.objects.filter(pk=run.turn.pk).update(state=TurnState.FAILED, finished_at=Now(), started_at=Now())
    said = {"reason": "model_unavailable", "response_summary": "The turn failed: the model did not answer."}
    waits = {"state": RunState.QUEUED, "attempt": 2, "not_before": Now() + timedelta(minutes=5)}
    RunRecord.objects.filter(pk=run.pk).update(**waits, **said)
    return run, run.session


def test_a_repeatedly_failing_routine_is_reported_once_with_sessions_archived(inside: Inside) -> None:
    Agent.objects.update(policy={"max_attempts": 1}, events_url="https://events.invalid/")
    inside.model.answer_with(*[ModelUnavailable("down")] * 3)
    home = inside.person.session()
    job = job_of(inside.person, "look", max_retry=3, home=home)
    for slots in range(4):
        fire(job)
        superseded = RunRecord.objects.filter(job=job, state=RunState.CANCELLED, reason="superseded")
        assert superseded.count() == slots
        left = Session.objects.filter(pk__in=superseded.values("session")).exclude(state="archived")
        assert not left.exists()
        if slots < 3:
            inside.run_all()
            assert RunRecord.objects.filter(job=job, not_before__isnull=False).count() == 1
    event = MailboxEvent.objects.get()
    assert (event.target_id, event.event_type, event.priority) == (home.pk, "job_failed", 1)
    assert event.summary.startswith("report: The turn failed")
    # each run had one attempt, which failed, so operators and the owner's program are told, too
    assert jobs_failing_in_a_row() == failing_jobs(1).count == 1
    reports = Delivery.objects.filter(event__type="run.failed").order_by("id")
    assert [each.event["data"]["attempts"] for each in reports if each.event] == [1, 1, 1]
    assert {each.event["data"]["reason"] for each in reports if each.event} == {"superseded"}


@pytest.mark.parametrize("how", ["paused", "deleted", "edited"])
def test_stopping_a_routine_before_its_retry_archives_its_session_silently(awake: Person, how: str) -> None:
    job = job_of(awake, "look", max_retry=3)
    fire_due_jobs()
    run, session = waits_for_a_retry(job)
    if how == "paused":
        update_routine(job.pk, {"enabled": False})
    elif how == "deleted":
        remove_routine(job.pk, hard=True)
    else:
        update_routine(job.pk, {"execution_mode": "inline"})
        RunRecord.objects.filter(pk=run.pk).update(not_before=Now())
        InlineRoutineStarter().step()
    session.refresh_from_db()
    assert session.state == SessionState.ARCHIVED
    assert not MailboxEvent.objects.exists()
    left = RunRecord.objects.filter(pk=run.pk).values_list("state", "reason").first()
    assert left == (None if how == "deleted" else ("cancelled", how))
    assert not Turn.objects.filter(state=TurnState.QUEUED).exists()


def test_an_inline_routine_superseded_by_its_next_slot_is_reported(awake: Person) -> None:
    job = routine(awake, "tea", "make tea")
    InlineRoutineStarter().step()
    run, _ = waits_for_a_retry(job)
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    InlineRoutineStarter().step()
    run.refresh_from_db()
    assert (run.state, run.reason) == (RunState.CANCELLED, "superseded")
    event = MailboxEvent.objects.get()
    assert (event.target_id, event.event_type) == (primary_session(awake.agent).pk, "routine_failed")
    assert "tea" in event.summary


def test_a_shared_turns_attempt_is_not_retried_in_another_session(awake: Person) -> None:
    tea, news = routine(awake, "tea"), routine(awake, "news")
    InlineRoutineStarter().step()
    run, _ = waits_for_a_retry(tea)
    update_routine(tea.pk, {"execution_mode": "isolated"})
    RunRecord.objects.filter(pk=run.pk).update(not_before=Now())
    assert not queue_due_retries(10)
    run.refresh_from_db()
    assert (run.state, run.reason) == (RunState.CANCELLED, "edited")
    assert not Turn.objects.filter(session__agent=awake.agent, state=TurnState.QUEUED).exists()
    assert RunRecord.objects.get(job=news).job_id == news.pk


@pytest.mark.parametrize("how", ["paused", "deleted"])
def test_removing_one_of_a_shared_turn_keeps_the_others(inside: Inside, awake: Person, how: str) -> None:
    tea, news = routine(awake, "tea", "make tea"), routine(awake, "news", "look for news")
    InlineRoutineStarter().step()
    turn = heartbeat_turn(awake)
    if how == "paused":
        update_routine(tea.pk, {"enabled": False})
        assert RunRecord.objects.get(job=tea).reason == "paused"
    else:
        remove_routine(tea.pk, hard=True)
    turn.refresh_from_db()
    assert (turn.state, turn.content) == (TurnState.QUEUED, "Due: news")
    inside.run_all()
    assert RunRecord.objects.get(job=news).state == RunState.SUCCEEDED
    shown = turn.steps.get(n=0).data["message"]
    assert "look for news" in shown
    assert "make tea" not in shown


def test_the_last_who_leaves_a_shared_turn_ends_it(awake: Person) -> None:
    tea, news = routine(awake, "tea"), routine(awake, "news")
    InlineRoutineStarter().step()
    for job in (tea, news):
        update_routine(job.pk, {"enabled": False})
    assert heartbeat_turn(awake).state == TurnState.CANCELLED
    assert set(RunRecord.objects.values_list("state", "reason")) == {("cancelled", "paused")}


def test_reminders_of_a_shared_turn_survive_deleting_one_routine(inside: Inside, awake: Person) -> None:
    home = inside.person.session()
    about: dict[str, Any] = {"task_type": "time_reminder", "timezone": "UTC", "home": home}
    jobs = {title: routine(awake, title, **about) for title in ("water", "walk", "sleep")}
    InlineRoutineStarter().step()
    turn = heartbeat_turn(awake)
    remove_routine(jobs["water"].pk, hard=True)
    # gone without a word to the turn, as one that is deleted while it runs
    RunRecord.objects.filter(job=jobs["walk"]).delete()
    CronJob.objects.filter(pk=jobs["walk"].pk).delete()
    inside.run_all()
    turn.refresh_from_db()
    assert turn.state == TurnState.SUCCEEDED
    told = {(event.target_id, event.summary.partition(":")[0]) for event in MailboxEvent.objects.all()}
    assert told == {(home.pk, "walk"), (home.pk, "sleep")}
    lines = json.loads(Message.objects.get(turn=turn, role="assistant").content)
    assert [line["id"] for line in lines] == [task["id"] for task in turn.input.tasks]


def test_a_routine_deleted_while_running_still_reports_to_its_home(inside: Inside) -> None:
    home = inside.person.session()
    job = job_of(inside.person, "look", home=home)
    fire_due_jobs()
    with before(" FOR SHARE", lambda: remove_routine(job.pk, hard=True)) as came:  # its first write
        inside.run_all()
    assert came == [None]
    event = MailboxEvent.objects.get()
    assert (event.event_type, event.target_id) == ("job_completed", home.pk)
    assert not Session.objects.filter(type="job", state=SessionState.OPEN).exists()


def test_archiving_a_session_cancels_its_waiting_turns_and_runs(person: Person) -> None:
    job = job_of(person, "look")
    fire_due_jobs()
    session: Any = RunRecord.objects.get(job=job).session
    chat = person.session()
    said = receive(chat.pk, MessageInput(content="hello"))
    assert archive(chat.pk)
    assert not archive(chat.pk), "once"
    said.refresh_from_db()
    assert (said.state, said.error_code) == (TurnState.CANCELLED, "session_archived")
    assert archive(session.pk)
    assert RunRecord.objects.get(job=job).state == RunState.CANCELLED


THERE = "https://example.org"
ARTIFACTS: dict[str, tuple[str, ...]] = {
    "Nothing was written.": (),
    f"See {THERE}/a?b=c#d.": (f"{THERE}/a?b=c#d",),
    f"[the page]({THERE}/x_(y)) and ({THERE}/z)": (f"{THERE}/x_(y)", f"{THERE}/z"),
    f"**{THERE}/b**, \u300c{THERE}/c\u300d\u3002": (f"{THERE}/b", f"{THERE}/c"),
    "I wrote out/a.pdf and `./b.csv`; b.csv again, c.md.": ("out/a.pdf", "./b.csv", "b.csv", "c.md"),
    "Twice: a.pdf, a.pdf": ("a.pdf",),
    "3.14 of e.g. v1.2 at example.org for ada@mail.txt.example": (),
    f"{THERE}/file.pdf": (f"{THERE}/file.pdf",),
    f"{THERE}/{'x' * LONGEST}": (),
}


def test_links_and_files_are_found_once_in_order() -> None:
    for text, found in ARTIFACTS.items():
        assert artifacts_of(text) == found, text


def test_artifacts_are_bounded_and_long_texts_are_read_quickly() -> None:
    assert len(artifacts_of(" ".join(f"f{number}.txt" for number in range(100)))) == MOST
    for piece in ("a.", "a/", "(", "https://x/(", "../", "x.pdf/"):
        artifacts_of(piece * 100_000)
