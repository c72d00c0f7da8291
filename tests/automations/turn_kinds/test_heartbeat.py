"""Heartbeats: when they beat, what they are told, what people hear of them (rules 5.1 to 5.6)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from agent_core.exceptions import ModelUnavailable
from agent_core.llm.protocol import ModelReply
from agent_core.policy import TurnPolicy
from agent_core.types import NOTES, Ended
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.inline_routines import InlineRoutineStarter
from automations.firing.placement import heartbeat_session
from automations.heartbeats.readiness import FIRST_BACKOFF, read_sessions
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.routines.reads import routine_of, shown_routines
from automations.schedules.plan import plan_of
from config.operations.doctor import CHECKS
from sessions_app.agents.documents import write_document
from sessions_app.agents.edit import update_agent
from sessions_app.mailbox.updates import updates_to_show
from sessions_app.models import Agent, Event, MailboxEvent, Session, Turn, TurnKind, TurnState
from sessions_app.queue.kinds import kind_of
from sessions_app.sessions.open import primary_session
from tests.automations.jobs.made import planned_for
from tests.automations.messages import a_worker, run_turn
from tests.conftest import Person, new_person
from tests.inside import Inside, begun, call, makes

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("5.1", "5.2", "5.3", "5.4", "5.5")]
DAY = [0, 24]


@pytest.fixture
def awake(transactional_db: None) -> Person:
    """A person whose agent is always awake; of its system jobs only the heartbeat is left."""
    person = new_person("ada", dreams=True)
    CronJob.objects.exclude(system_event="heartbeat").delete()
    update_agent(person.agent.pk, {"heartbeat": {"active_hours": DAY}})
    person.agent.refresh_from_db()
    return person


def heartbeat_of(person: Person) -> CronJob:
    return CronJob.objects.get(agent=person.agent, system_event="heartbeat")


def beat_now(person: Person) -> int:
    again(heartbeat_of(person))
    return fire_due_jobs().queued


def routine(person: Person, title: str, description: str = "", **more: Any) -> CronJob:
    """An inline routine that is due now."""
    now = datetime.now(UTC).replace(microsecond=0)
    given = {"name": title, "description": description, "execution_mode": "inline", "max_retry": 3} | more
    every = {"schedule_kind": "every", "every_seconds": 3600, "anchor": now}
    job = CronJob.objects.create(agent=person.agent, **given, **every)
    JobClock.objects.create(job=job, inline=True, next_run_at=now, planned_from=now - timedelta(hours=1))
    return job


@pytest.fixture
def inside(awake: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """The same person, whose agent's turns run in this process."""
    return begun(tmp_path, monkeypatch, awake)


def says(text: str) -> ModelReply:
    return ModelReply(text=text)


QUIET = says("HEARTBEAT_OK")


def beat(inside: Inside) -> Turn:
    """A heartbeat that is due now."""
    assert beat_now(inside.person) == 1
    inside.run_all()
    return heartbeat_turn(inside.person)


def again(job: CronJob) -> None:
    """Let the job's next slot come now."""
    JobClock.objects.filter(job=job).update(next_run_at=Now())


def shown(turn: Turn) -> str:
    """The message that the model was to answer."""
    return str(turn.steps.get(n=0).data["message"])


def heartbeat_turn(person: Person) -> Turn:
    return Turn.objects.filter(session__agent=person.agent, kind=TurnKind.HEARTBEAT).latest("id")


def mail(session: Session) -> list[tuple[str, str]]:
    return [(event.event_type, event.summary) for event in MailboxEvent.objects.filter(target=session)]


def test_an_agent_is_made_with_its_heartbeat_by_its_settings(transactional_db: None) -> None:
    job = heartbeat_of(new_person("bob", dreams=True, timezone="Asia/Tokyo"))
    assert (job.every_seconds, job.active_from, job.active_to, job.timezone) == (1800, 8, 22, "Asia/Tokyo")
    assert (job.catch_up, job.overlap) == ("one", "skip"), "a long stop is one heartbeat and one gap"
    assert 8 <= planned_for(job).astimezone(ZoneInfo("Asia/Tokyo")).hour < 22


@pytest.mark.rule("5.3", "10.2")
def test_inline_routines_run_without_a_heartbeat_and_doctor_agrees(inside: Inside) -> None:
    update_agent(inside.person.agent.pk, {"heartbeat": {"enabled": False}})
    job = routine(inside.person, "Water", "the plants")
    of_jobs = [check for check in CHECKS.values() if check.__module__ == "config.operations.checks"]
    assert of_jobs
    assert not [check for check in of_jobs if job.pk in check().detail]
    inside.model.answer_with(says("Done."))
    inside.beat()
    assert RunRecord.objects.get(job=job).state == "succeeded"


def test_settings_change_the_heartbeat_and_off_means_off(awake: Person) -> None:
    update_agent(awake.agent.pk, {"heartbeat": {"interval_seconds": 60, "active_hours": [22, 6]}})
    job = heartbeat_of(awake)
    assert (job.every_seconds, job.active_from, job.active_to) == (60, 22, 6)
    slot: Any = plan_of(job, 0).next_firing(datetime(2027, 1, 1, 12, tzinfo=UTC))
    assert slot - datetime(2027, 1, 1, 22, tzinfo=UTC) < timedelta(seconds=60)
    for is_on in (False, True):
        update_agent(awake.agent.pk, {"heartbeat": {"enabled": is_on}})
        assert (JobClock.objects.get(job=job).next_run_at is not None) is is_on


@pytest.mark.rule("3.3", "6.2", "6.4")
def test_due_tasks_share_one_turn_and_its_outcome(inside: Inside) -> None:
    steps = {"message": "1. open the page\n2. sum it up"}
    jobs = routine(inside.person, "tea", "make tea"), routine(inside.person, "news", "look for news", **steps)
    inside.model.answer_with(says("HEARTBEAT_OK " + "The tea is ready. " * 20))
    inside.beat()
    turn = heartbeat_turn(inside.person)
    assert "## Due Tasks\n" in shown(turn)
    for job in jobs:
        assert f"- [{job.pk}] {job.name}: {job.description}" in shown(turn)
        run = RunRecord.objects.get(job=job)
        assert (run.state, run.turn_id) == (RunState.SUCCEEDED, turn.pk)
    assert "look for news\n    1. open the page\n    2. sum it up" in shown(turn)
    primary = primary_session(inside.person.agent)
    assert mail(primary) == [("heartbeat_result", "The tea is ready.")]
    assert Event.objects.filter(content__has_unread_background_updates=True).count() == 1
    [update] = updates_to_show(primary.pk).updates
    assert "HEARTBEAT_OK" not in update.detail


def test_what_is_due_is_done_at_any_hour(awake: Person) -> None:
    hour = datetime.now(UTC).hour
    update_agent(awake.agent.pk, {"heartbeat": {"active_hours": [(hour + 2) % 24, (hour + 4) % 24]}})
    tea = routine(awake, "tea")
    water = routine(awake, "water", task_type="time_reminder", timezone="UTC")
    assert waits_for(tea) is None
    InlineRoutineStarter().step()
    for job in (tea, water):
        assert RunRecord.objects.get(job=job).state == RunState.QUEUED


@pytest.mark.rule("3.5")
def test_each_home_gets_its_own_turn_and_only_its_results(inside: Inside) -> None:
    person = inside.person
    family, work = person.session(), person.session()
    routine(person, "gifts", "find gifts", home=family)
    routine(person, "cards", "find cards", home=family)
    report = routine(person, "report", "read the report", home=work)
    routine(person, "news", "look for news")
    names = {family: {"gifts", "cards"}, work: {"report"}, primary_session(person.agent): {"news"}}
    InlineRoutineStarter().step()
    for turn in Turn.objects.filter(kind="heartbeat").order_by("pk"):
        titles = " ".join(task["title"] for task in turn.input.tasks)
        inside.model.replies.append(says(f"Done: {titles}."))
    inside.run_all()
    assert MailboxEvent.objects.count() == 3
    for home, own in names.items():
        [event] = MailboxEvent.objects.filter(target=home)
        told = f"{event.summary} {event.detail}"
        assert {name for name in ("gifts", "cards", "report", "news") if name in told} == own
    again(report)
    inside.beat()
    seen = str(inside.model.calls[-1].entries)
    assert "Done: report" in seen, "what was done for this home before"
    assert not any(name in seen for name in ("gifts", "cards", "news"))


@pytest.mark.rule("3.5")
def test_a_routine_requests_consent_once_at_its_home(inside: Inside) -> None:
    home = inside.person.session()
    job = routine(inside.person, "tidy", "remove what is old", home=home)
    for _ in range(2):
        inside.model.answer_with(makes(call("remove_routine", routine_id=job.pk)), QUIET)
        again(job)
        inside.beat()
        [asked] = MailboxEvent.objects.filter(dropped_at=None)
        assert (asked.event_type, asked.target_id) == ("consent_needed", home.pk), "who asks again, asks once"
    assert RunRecord.objects.filter(job=job, state=RunState.SUCCEEDED).count() == 2
    job.refresh_from_db()
    assert job.enabled


@pytest.mark.rule("6.1")
def test_a_reminder_is_superseded_by_the_next_and_expires(inside: Inside) -> None:
    job = routine(inside.person, "water", task_type="time_reminder", timezone="Asia/Shanghai")
    for _ in range(3):
        again(job)
        inside.beat()
    assert inside.model.calls == [], "it asks no model"
    assert RunRecord.objects.filter(job=job, state=RunState.SUCCEEDED).count() == 3
    primary = primary_session(inside.person.agent)
    assert {kind for kind, _ in mail(primary)} == {"reminder"}
    [update] = updates_to_show(primary.pk).updates
    assert update.summary.startswith("water: it is 20")
    assert "(Asia/Shanghai)" in update.summary
    assert MailboxEvent.objects.filter(reason="superseded").count() == 2
    MailboxEvent.objects.update(created_at=Now() - timedelta(hours=25))
    assert updates_to_show(primary.pk).updates == ()


@pytest.mark.rule("5.4")
def test_a_reply_that_is_not_whole_is_not_suppressed_for_its_token(inside: Inside) -> None:
    job = routine(inside.person, "server", "look at the server")
    for ended, waiting in ((Ended.STOP, 0), (Ended.LENGTH, 1)):
        inside.model.answer_with(ModelReply(text="HEARTBEAT_OK The server is", ended_by=ended))
        again(job)
        inside.beat()
        assert MailboxEvent.objects.count() == waiting
    assert NOTES[Ended.LENGTH] in MailboxEvent.objects.get().detail


def test_the_events_of_an_inline_turn_carry_its_run(inside: Inside) -> None:
    alone = routine(inside.person, "alone", "x", home=inside.person.session())
    shared = [routine(inside.person, name, "y") for name in ("one", "two")]
    inside.beat()
    run = RunRecord.objects.get(job=alone)
    own = Event.objects.filter(turn_id=run.turn_id)
    assert {event.type for event in own} >= {"turn_queued", "turn_start", "message", "turn_end", "status"}
    assert {event.run_id for event in own} == {run.pk}
    runs = RunRecord.objects.filter(job__in=shared)
    [turn_id] = {each.turn_id for each in runs}
    for event in Event.objects.filter(turn_id=turn_id):
        assert (event.run_id, set(event.content["runs"])) == ("", {each.pk for each in runs}), event.type


@pytest.mark.rule("6.3")
def test_only_its_own_sessions_work_skips_a_heartbeat(awake: Person) -> None:
    Turn.objects.create(session=primary_session(awake.agent), kind="message", lane="turns", content="x")
    assert beat_now(awake) == 1
    assert beat_now(awake) == 0
    assert RunRecord.objects.get(job=heartbeat_of(awake), state=RunState.SKIPPED).reason == "session_busy"
    job = routine(awake, "tea")
    InlineRoutineStarter().step()
    assert not RunRecord.objects.filter(job=job).exists(), "late, not lost"
    Turn.objects.filter(kind="heartbeat").update(state=TurnState.SUCCEEDED, finished_at=Now())
    InlineRoutineStarter().step()
    assert RunRecord.objects.filter(job=job, state=RunState.QUEUED).exists()


def test_heartbeats_back_off_while_the_model_is_down(awake: Person) -> None:
    job = heartbeat_of(awake)
    beat_now(awake)
    down = {"state": TurnState.FAILED, "finished_at": Now(), "error_code": "model_unavailable"}
    Turn.objects.filter(kind="heartbeat").update(**down)
    model_is_down(awake, 3)
    assert beat_now(awake) == 0
    assert RunRecord.objects.filter(job=job, state=RunState.SKIPPED).get().reason == "model_down"
    task = routine(awake, "tea")
    assert InlineRoutineStarter().step() > 0
    assert not RunRecord.objects.filter(job=task).exists()
    Turn.objects.filter(kind="heartbeat").update(due_at=Now() - timedelta(days=1))
    InlineRoutineStarter().step()
    assert RunRecord.objects.filter(job=task).exists()


def test_an_uncomputable_reminder_goes_to_the_model_with_a_warning(inside: Inside) -> None:
    job = routine(inside.person, "drink water", task_type="time_reminder", timezone="Mars/Olympus")
    inside.beat()
    turn = heartbeat_turn(inside.person)
    assert (turn.state, RunRecord.objects.get(job=job).state) == (TurnState.SUCCEEDED, RunState.SUCCEEDED)
    assert "A program that does them by itself has failed." in shown(turn)
    assert "drink water" in shown(turn)
    assert turn.input.deterministic is False, "its model calls count for the back-off"


BROKEN = 'Be kind.\n\n```json\n{"version": 2, "tasks": [{"title": "Tea", "schedule": "1h"}\n```\n'


@pytest.mark.rule("6.6")
def test_a_heartbeat_shows_intents_and_a_broken_document_until_repair(inside: Inside) -> None:
    agent = inside.person.agent
    write_document(agent.pk, "MEMORY.md", "- look at the news daily [to be registered]\n")
    write_document(agent.pk, "HEARTBEAT.md", BROKEN)
    repair = call("repair_heartbeat", revision=1, tasks=[{"title": "Tea", "schedule": "1h"}])
    inside.model.answer_with(QUIET, makes(repair), QUIET, QUIET)
    told = [shown(beat(inside)) for _ in range(3)]
    for message in told:
        assert "(MEMORY.md has revision 1)\n- line 1: " in message
        assert "look at the news daily" in message
        assert "Be kind." in message
    for message in told[:2]:
        assert "HEARTBEAT.md (revision 1) cannot be read: the JSON block cannot be read" in message
        assert ' of="HEARTBEAT.md">\n```json\n{"version": 2, "tasks": [{"title": "Tea"' in message
    assert "cannot be read" not in told[2]
    tea = CronJob.objects.get(name="Tea")
    assert (tea.every_seconds, tea.enabled) == (3600, True)
    assert [kind for kind, _ in mail(primary_session(agent))] == ["heartbeat_repaired"]


def test_a_failed_task_retries_with_the_next_due_tasks(inside: Inside) -> None:
    Agent.objects.update(policy={"max_attempts": 1})
    job = routine(inside.person, "fail", "fail")
    inside.model.answer_with(ModelUnavailable("down"))
    inside.beat()
    run = RunRecord.objects.get(job=job)
    assert (run.state, run.not_before is None) == (RunState.QUEUED, False)
    RunRecord.objects.filter(pk=run.pk).update(not_before=Now())
    Turn.objects.filter(kind="heartbeat").update(error_code="")  # the model is not looked upon as down
    other = routine(inside.person, "tea", "make tea")
    inside.beat()
    turns = {each.turn_id for each in RunRecord.objects.filter(job__in=[job, other])}
    assert turns == {heartbeat_turn(inside.person).pk}


LIMITS: list[tuple[tuple[int | None, ...], int | None, int]] = [
    *(((None, None), None, 120), ((None, 300), None, 120), ((300, 200), None, 200)),
    *(((30, None), None, 30), ((None, 300), 60, 60), ((None, 90), 600, 90)),
]


@pytest.mark.parametrize(("timeouts", "agents", "limit"), LIMITS)
def test_a_shared_turn_has_its_strictest_timeout(
    awake: Person, timeouts: Any, agents: Any, limit: int
) -> None:
    if agents:
        update_agent(awake.agent.pk, {"policy": {"timeout_seconds": agents}})
    for number, timeout in enumerate(timeouts):
        routine(awake, f"r{number}", timeout_seconds=timeout)
    InlineRoutineStarter().step()
    turn = heartbeat_turn(awake)
    policies = kind_of(turn).policy, turn.session.agent.policy, turn.input.policy
    assert TurnPolicy().merged(*policies).timeout_seconds == limit, "as its worker reckons it"


def model_is_down(person: Person, beats: int = 4) -> Session:
    """As so many heartbeats leave it that found no model."""
    session = heartbeat_session(person.agent)
    for _ in range(beats):
        Turn.objects.create(session=session, kind="heartbeat", lane="auto", state=TurnState.FAILED, content="x",
                            finished_at=Now(), error_code="model_unavailable")  # fmt: skip
    return session


def retry_at(session: Session) -> datetime | None:
    key = session.agent_id, session.key
    return read_sessions([key])[key].retry_at(FIRST_BACKOFF)


def test_a_reminder_runs_during_model_backoff_without_changing_it(inside: Inside) -> None:
    session, task = model_is_down(inside.person), routine(inside.person, "tea", "make tea")
    rest = retry_at(session)
    later = routine(inside.person, "sleep", task_type="time_reminder", timezone="UTC")
    JobClock.objects.filter(job=later).update(next_run_at=Now() + timedelta(seconds=30))
    assert InlineRoutineStarter().step() <= 30, "the next reminder is not slept through"
    assert not RunRecord.objects.exists()
    reminder = routine(inside.person, "water", task_type="time_reminder", timezone="UTC")
    inside.beat()
    assert RunRecord.objects.get(job=reminder).state == RunState.SUCCEEDED
    assert not RunRecord.objects.filter(job=task).exists()
    assert retry_at(session) == rest


def waits_for(job: CronJob) -> tuple[str, bool] | None:
    found = routine_of(shown_routines(pk=job.pk).get()).waits_for
    return None if found is None else (found.reason, found.until is not None)


def test_a_routine_that_is_late_says_what_it_waits_for(awake: Person) -> None:
    task = routine(awake, "tea")
    reminder = routine(awake, "water", task_type="time_reminder", timezone="UTC")
    assert waits_for(task) is None, "nothing holds it up"
    session = model_is_down(awake)
    assert waits_for(task) == ("model_down", True)
    assert waits_for(reminder) is None
    Turn.objects.create(session=session, kind="heartbeat", lane="auto", content="x")
    assert waits_for(task) == ("session_busy", False)
    assert routine_of(shown_routines(pk=task.pk).get()).to_json()["waits_for"]["reason"] == "session_busy"
    JobClock.objects.filter(job=task).update(next_run_at=Now() + timedelta(hours=1))
    assert waits_for(task) is None


def test_a_heartbeat_with_many_calls_leaves_only_itself_in_the_window(inside: Inside) -> None:
    Agent.objects.update(policy={"max_same_tool_intent": 10})
    for calls, window in ((0, 1), (5, 3), (6, 3)):
        inside.model.answer_with(*[makes(call("list_routines", ""))] * calls, QUIET)
        turn = beat(inside)
        assert turn.session.window_from_seq == window, "the first input among the newest 12, if there is one"
        assert turn.session.last_seq == turn.messages.latest("seq").seq


def test_a_heartbeat_that_reflects_and_reports_is_at_most_thirty_statements(inside: Inside) -> None:
    """A worker adds those of the lock, of its owner's share and of the search for the next turn."""
    inside.model.answer_with(says("The report is late."))
    assert beat_now(inside.person) == 1
    session, worker = heartbeat_turn(inside.person).session, a_worker()
    with CaptureQueriesContext(connection) as asked:
        run_turn(session, worker)  # which looks at the turn once more
    assert mail(primary_session(inside.person.agent)) == [("heartbeat_result", "The report is late.")]
    told = [each["sql"] for each in asked if each["sql"].split()[0] in {"SELECT", "INSERT", "UPDATE", "WITH"}]
    assert len(told) <= 30, "\n".join(told)
