"""Heartbeats: when they beat, what they are told, what people hear of them (rules 5.1 to 5.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db.models.functions import Now

from agent_core.policy import TurnPolicy
from agent_core.testing import ModelServer
from automations.due_tasks import DueTasks
from automations.fire import fire_due
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.plan import plan_of
from automations.rest import SHORTEST_REST, rests_until
from automations.routine_reads import routine_of, shown_routines
from automations.routines import update_routine
from automations.slot_turn import heartbeat_session
from sessions_app.agents import update_agent, write_document
from sessions_app.kinds import kind_of
from sessions_app.mailbox import prepare_drain
from sessions_app.models import Agent, Event, MailboxEvent, Message, Session, Turn, TurnKind, TurnState
from sessions_app.open import primary_session
from tests.conftest import Person, new_person
from tests.fleet import Fleet, until

pytestmark = pytest.mark.django_db(transaction=True)
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
    JobClock.objects.filter(job=heartbeat_of(person)).update(next_run_at=Now())
    return fire_due().queued


def routine(person: Person, title: str, description: str = "", **more: Any) -> CronJob:
    """An inline routine that is due now."""
    now = datetime.now(UTC).replace(microsecond=0)
    job = CronJob.objects.create(
        agent=person.agent,
        name=title,
        description=description,
        execution_mode="inline",
        schedule_kind="every",
        every_seconds=3600,
        anchor=now,
        max_retry=3,
        **more,
    )
    JobClock.objects.create(job=job, inline=True, next_run_at=now, planned_from=now - timedelta(hours=1))
    return job


def ended(turn: Turn) -> bool:
    turn.refresh_from_db()
    return turn.finished_at is not None


def heartbeat_turn(person: Person) -> Turn:
    return Turn.objects.filter(session__agent=person.agent, kind=TurnKind.HEARTBEAT).latest("id")


def mail(session: Session) -> list[tuple[str, str]]:
    return [(event.event_type, event.summary) for event in MailboxEvent.objects.filter(target=session)]


def test_an_agent_is_made_with_its_heartbeat_by_its_settings(transactional_db: None) -> None:
    person = new_person("bob", dreams=True, timezone="Asia/Tokyo")
    job = heartbeat_of(person)
    assert (job.every_seconds, job.active_from, job.active_to, job.timezone) == (1800, 8, 22, "Asia/Tokyo")
    clock = JobClock.objects.get(job=job)
    assert clock.next_run_at is not None
    assert 8 <= clock.next_run_at.astimezone(ZoneInfo("Asia/Tokyo")).hour < 22


def test_agents_are_spread_over_the_interval(transactional_db: None) -> None:
    anchors = set()
    for number in range(8):
        job = heartbeat_of(new_person(f"p{number}", dreams=True))
        assert job.anchor is not None
        anchors.add(int(job.anchor.timestamp()) // 60)
    assert len(anchors) >= 4


def test_settings_change_the_heartbeat_and_off_means_off(awake: Person) -> None:
    update_agent(awake.agent.pk, {"heartbeat": {"interval_seconds": 60, "active_hours": [22, 6]}})
    job = heartbeat_of(awake)
    assert (job.every_seconds, job.active_from, job.active_to) == (60, 22, 6)
    slot = plan_of(job, 0).next_firing(datetime(2027, 1, 1, 12, tzinfo=UTC))
    assert slot is not None
    assert slot - datetime(2027, 1, 1, 22, tzinfo=UTC) < timedelta(seconds=60)
    update_agent(awake.agent.pk, {"heartbeat": {"enabled": False}})
    assert JobClock.objects.get(job=job).next_run_at is None
    update_agent(awake.agent.pk, {"heartbeat": {"enabled": True}})
    assert JobClock.objects.get(job=job).next_run_at is not None


def test_a_quiet_heartbeat_is_kept_in_its_own_session_and_nobody_hears_of_it(
    fleet: Fleet, awake: Person
) -> None:
    fleet.worker()
    assert beat_now(awake) == 1
    turn = heartbeat_turn(awake)
    until(lambda: ended(turn))
    assert turn.session.key == f"heartbeat:{awake.agent.name}"
    assert (
        Message.objects.filter(turn=turn, role="assistant").latest("seq").content.startswith("HEARTBEAT_OK")
    )
    assert RunRecord.objects.get(job=heartbeat_of(awake)).state == RunState.SUCCEEDED
    assert not MailboxEvent.objects.exists()
    assert not Message.objects.filter(session=primary_session(awake.agent)).exists()


def test_due_tasks_start_one_turn_at_once_and_share_its_outcome(fleet: Fleet, awake: Person) -> None:
    fleet.worker()
    tea, news = routine(awake, "tea", "make tea"), routine(awake, "news", "look for news")
    DueTasks().step()
    turn = heartbeat_turn(awake)
    until(lambda: ended(turn))
    shown = turn.steps.get(n=0).data["message"]
    assert "## Due Tasks\n" in shown
    for job in (tea, news):
        assert f"- [{job.pk}] {job.name}: {job.description}" in shown
        run = RunRecord.objects.get(job=job)
        assert (run.state, run.turn_id) == (RunState.SUCCEEDED, turn.pk)
    [(kind, _)] = mail(primary_session(awake.agent))
    assert kind == "heartbeat_result"
    assert Event.objects.filter(content__has_unread_background_updates=True).count() == 1


def test_a_delivered_heartbeat_is_told_with_the_next_message(fleet: Fleet, awake: Person) -> None:
    fleet.worker()
    routine(awake, "tea", "make tea")
    DueTasks().step()
    until(MailboxEvent.objects.exists)
    [update] = prepare_drain(primary_session(awake.agent).pk).updates
    assert "HEARTBEAT_OK" not in update.detail


def test_a_home_that_was_given_is_told_and_one_that_is_gone_is_not(fleet: Fleet, awake: Person) -> None:
    fleet.worker()
    home = awake.session()
    routine(awake, "tea", "make tea", home=home)
    DueTasks().step()
    until(MailboxEvent.objects.exists)
    assert mail(primary_session(awake.agent)) == []
    assert len(mail(home)) == 1


def test_outside_the_active_hours_tasks_stay_due(awake: Person) -> None:
    hour = datetime.now(UTC).hour
    update_agent(awake.agent.pk, {"heartbeat": {"active_hours": [(hour + 2) % 24, (hour + 4) % 24]}})
    job = routine(awake, "tea")
    watch = DueTasks()
    assert watch.step() > 1
    assert not RunRecord.objects.exists()
    assert JobClock.objects.get(job=job).next_run_at is not None
    update_agent(awake.agent.pk, {"heartbeat": {"active_hours": DAY}})
    watch.look_anew()
    watch.step()
    assert RunRecord.objects.get(job=job).state == RunState.QUEUED


def test_only_its_own_sessions_work_skips_a_heartbeat(awake: Person) -> None:
    chat = primary_session(awake.agent)
    Turn.objects.create(session=chat, kind="message", lane="turns", content="x")
    assert beat_now(awake) == 1
    assert beat_now(awake) == 0
    skipped = RunRecord.objects.get(job=heartbeat_of(awake), state=RunState.SKIPPED)
    assert skipped.reason == "session_busy"
    job = routine(awake, "tea")
    DueTasks().step()
    assert not RunRecord.objects.filter(job=job).exists(), "late, not lost"
    Turn.objects.filter(kind="heartbeat").update(state=TurnState.SUCCEEDED, finished_at=Now())
    DueTasks().step()
    assert RunRecord.objects.filter(job=job, state=RunState.QUEUED).exists()


def test_after_a_day_down_one_heartbeat_and_one_gap(awake: Person) -> None:
    job = heartbeat_of(awake)
    back = timedelta(days=1)
    CronJob.objects.filter(pk=job.pk).update(anchor=Now() - back)
    JobClock.objects.filter(job=job).update(next_run_at=Now() - back, planned_from=Now() - back)
    assert fire_due().queued == 1
    assert fire_due().queued == 0
    gap = RunRecord.objects.get(job=job, state=RunState.SKIPPED)
    assert (gap.reason, (gap.slots_count or 0) >= 46) == ("missed", True)


def test_while_the_model_is_down_it_beats_less_and_less_often(awake: Person) -> None:
    job = heartbeat_of(awake)
    beat_now(awake)
    session = heartbeat_turn(awake).session
    for _ in range(3):
        Turn.objects.filter(kind="heartbeat").update(
            state=TurnState.FAILED, finished_at=Now(), error_code="model_unavailable"
        )
        Turn.objects.create(session=session, kind="heartbeat", lane="auto", state=TurnState.FAILED, content="x",
                            finished_at=Now(), error_code="model_unavailable")  # fmt: skip
    assert beat_now(awake) == 0
    assert RunRecord.objects.filter(job=job, state=RunState.SKIPPED).get().reason == "model_down"
    task = routine(awake, "tea")
    assert DueTasks().step() > 0
    assert not RunRecord.objects.filter(job=task).exists()
    Turn.objects.filter(kind="heartbeat").update(due_at=Now() - timedelta(days=1))
    DueTasks().step()
    assert RunRecord.objects.filter(job=task).exists()


def test_a_time_reminder_asks_no_model(fleet: Fleet, model_server: ModelServer, awake: Person) -> None:
    Agent.objects.update(model="openai-chat:none")  # nothing answers there
    fleet.worker(OPENAI_BASE_URL="http://127.0.0.1:1/v1", OPENAI_API_KEY="x")
    job = routine(awake, "drink water", task_type="time_reminder", timezone="Asia/Shanghai")
    DueTasks().step()
    until(MailboxEvent.objects.exists)
    [(kind, summary)] = mail(primary_session(awake.agent))
    assert kind == "reminder"
    assert summary.startswith("drink water: it is 20")
    assert "(Asia/Shanghai)" in summary
    assert RunRecord.objects.get(job=job).state == RunState.SUCCEEDED


def test_a_reminder_that_cannot_be_computed_goes_to_the_model_with_a_warning(
    fleet: Fleet, awake: Person
) -> None:
    fleet.worker()
    job = routine(awake, "drink water", task_type="time_reminder", timezone="Mars/Olympus")
    DueTasks().step()
    turn = heartbeat_turn(awake)
    until(lambda: ended(turn))
    assert (turn.state, RunRecord.objects.get(job=job).state) == (TurnState.SUCCEEDED, RunState.SUCCEEDED)
    shown = turn.steps.get(n=0).data["message"]
    assert "A program that does them by itself has failed." in shown
    assert "drink water" in shown


def test_the_next_heartbeat_is_shown_a_short_history_that_begins_with_a_turn(
    fleet: Fleet, awake: Person
) -> None:
    fleet.worker()
    for _ in range(9):
        assert beat_now(awake) == 1
        until(lambda: ended(heartbeat_turn(awake)))
    session = heartbeat_turn(awake).session
    session.refresh_from_db()
    assert session.last_seq == 18
    first = Message.objects.get(session=session, seq=session.window_from_seq)
    assert (first.role, session.last_seq - session.window_from_seq < 12) == ("user", True)


def test_a_quiet_hour_shows_what_memory_is_marked_with_and_a_broken_document_once(
    fleet: Fleet, awake: Person
) -> None:
    fleet.worker()
    write_document(awake.agent.pk, "MEMORY.md", "- look at the news daily [to be registered]\n")
    write_document(awake.agent.pk, "HEARTBEAT.md", 'Be kind.\n\n```json\n{"version": 2, "tasks": [\n```\n')
    shown = []
    for _ in range(2):
        assert beat_now(awake) == 1
        turn = heartbeat_turn(awake)
        until(lambda turn=turn: ended(turn))  # type: ignore[misc]
        shown.append(turn.steps.get(n=0).data["message"])
    for message in shown:
        assert "(MEMORY.md has revision 1)\n- line 1: " in message
        assert "look at the news daily" in message
        assert "Be kind." in message
    assert ["HEARTBEAT.md cannot be read" in message for message in shown] == [True, False]


def test_pausing_one_of_the_routines_that_share_a_turn_leaves_the_others(awake: Person) -> None:
    tea, news = routine(awake, "tea"), routine(awake, "news")
    DueTasks().step()
    update_routine(tea.pk, {"enabled": False})
    assert RunRecord.objects.get(job=news).state == RunState.QUEUED
    assert heartbeat_turn(awake).state == TurnState.QUEUED


def test_a_failed_task_is_tried_again_with_what_is_due_then_and_gives_way_to_its_next_slot(
    fleet: Fleet, awake: Person
) -> None:
    fleet.worker()
    Agent.objects.filter(pk=awake.agent.pk).update(policy={"max_attempts": 1})
    job = routine(awake, "fail", "fail")
    Agent.objects.filter(pk=awake.agent.pk).update(model="openai-chat:none")
    DueTasks().step()
    until(lambda: ended(heartbeat_turn(awake)))
    run = RunRecord.objects.get(job=job)
    assert run.state in {RunState.QUEUED, RunState.FAILED}
    RunRecord.objects.filter(pk=run.pk).update(
        state=RunState.QUEUED, attempt=2, not_before=Now(), finished_at=None, reason=""
    )
    Turn.objects.filter(kind="heartbeat").update(error_code="")
    Agent.objects.filter(pk=awake.agent.pk).update(model="offline")
    other = routine(awake, "tea", "make tea")
    DueTasks().step()
    until(lambda: ended(heartbeat_turn(awake)))
    assert {each.turn_id for each in RunRecord.objects.filter(job__in=[job, other])} == {
        heartbeat_turn(awake).pk
    }
    RunRecord.objects.filter(pk=run.pk).update(state=RunState.QUEUED, not_before=Now(), finished_at=None)
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    DueTasks().step()
    run.refresh_from_db()
    assert (run.state, run.reason) == (RunState.CANCELLED, "superseded")
    assert RunRecord.objects.filter(job=job).exclude(pk=run.pk).exists()


def limit_of(turn: Turn) -> float:
    """How long the turn may take, as its worker reckons it."""
    session = turn.session
    return (
        TurnPolicy()
        .merged(kind_of(turn).policy, session.agent.policy, turn.metadata.get("policy", {}))
        .timeout_seconds
    )


@pytest.mark.parametrize(
    ("timeouts", "agents", "limit"),
    [
        ((None, None), None, 120),
        ((None, 300), None, 120),
        ((300, 200), None, 200),
        ((30, None), None, 30),
        ((None, 300), 60, 60),
        ((None, 90), 600, 90),
    ],
)
def test_a_shared_turn_may_take_as_long_as_the_strictest_of_its_tasks(
    awake: Person, timeouts: tuple[int | None, ...], agents: int | None, limit: int
) -> None:
    if agents:
        update_agent(awake.agent.pk, {"policy": {"timeout_seconds": agents}})
    for number, timeout in enumerate(timeouts):
        routine(awake, f"r{number}", timeout_seconds=timeout)
    DueTasks().step()
    assert limit_of(heartbeat_turn(awake)) == limit


def test_a_heartbeat_that_takes_too_long_ends_by_its_tasks_own_limit(
    fleet: Fleet, model_server: ModelServer, awake: Person
) -> None:
    fleet.worker()
    Agent.objects.update(model="openai-chat:test")
    job = routine(awake, "slow", "[[hold:never]]", timeout_seconds=1)
    DueTasks().step()
    until(lambda: RunRecord.objects.filter(job=job, not_before__isnull=False).exists())
    assert RunRecord.objects.get(job=job).reason == "timeout"


def model_is_down(person: Person, beats: int = 4) -> Session:
    """As so many heartbeats leave it that found no model."""
    session = heartbeat_session(person.agent)
    for _ in range(beats):
        Turn.objects.create(session=session, kind="heartbeat", lane="auto", state=TurnState.FAILED, content="x",
                            finished_at=Now(), error_code="model_unavailable")  # fmt: skip
    return session


def test_a_reminder_waits_for_no_model_and_says_nothing_of_it(fleet: Fleet, awake: Person) -> None:
    session = model_is_down(awake)
    task = routine(awake, "tea", "make tea")
    rest = rests_until(session.pk, SHORTEST_REST)
    later = routine(awake, "sleep", task_type="time_reminder", timezone="UTC")
    JobClock.objects.filter(job=later).update(next_run_at=Now() + timedelta(seconds=30))
    assert DueTasks().step() <= 30, "the next reminder is not slept through"
    assert not RunRecord.objects.exists()
    reminder = routine(awake, "water", task_type="time_reminder", timezone="UTC")
    fleet.worker()
    DueTasks().step()
    until(lambda: RunRecord.objects.filter(job=reminder, state=RunState.SUCCEEDED).exists())
    assert not RunRecord.objects.filter(job=task).exists()
    assert rests_until(session.pk, SHORTEST_REST) == rest


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
    hour = datetime.now(UTC).hour
    update_agent(awake.agent.pk, {"heartbeat": {"active_hours": [(hour + 2) % 24, (hour + 4) % 24]}})
    assert waits_for(task) == ("active_hours", True)
    assert routine_of(shown_routines(pk=task.pk).get()).to_json()["waits_for"]["reason"] == "active_hours"
    JobClock.objects.filter(job=task).update(next_run_at=Now() + timedelta(hours=1))
    assert waits_for(task) is None
