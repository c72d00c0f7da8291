"""The feature flags: off means the way back that is described, and on again undoes it (rule 10.1)."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core import tools
from agent_core.exceptions import ToolFailed
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.inline_routines import InlineRoutineStarter, agents_with_due_routines
from automations.firing.retries import queue_due_retries
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.routines.edit import update_routine
from automations.routines.plan import apply_jobs_flag
from automations.tools.routines import offered
from config.operations import doctor, status
from sessions_app import flags
from sessions_app.agents.documents import write_document
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import Event, MailboxEvent, Session, SessionType, Turn, TurnKind
from tests.automations.jobs.made import add
from tests.automations.tools.test_routines import heartbeat
from tests.automations.turn_kinds.test_heartbeat import QUIET, again, awake, beat, heartbeat_turn, inside
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.inside import Inside

__all__ = ["awake", "inside"]  # fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.1")]


def isolated(person: Person, title: str = "report") -> CronJob:
    return add(person, title, schedule="1h", execution_mode="isolated")


def test_without_cron_jobs_an_isolated_routine_runs_with_the_heartbeat(inside: Inside, settings: Any) -> None:
    settings.RONDO_SCHEDULER_CRON_JOBS = False
    job = isolated(inside.person)
    again(job)
    assert fire_due_jobs().claimed == 0, "it is not beat's"
    inside.beat()
    run: Any = RunRecord.objects.get(job=job, state=RunState.SUCCEEDED)
    assert (run.turn.kind, run.turn.session.type) == (TurnKind.HEARTBEAT, SessionType.HEARTBEAT)
    assert not Session.objects.filter(key__startswith="job:").exists()
    job.refresh_from_db()
    assert job.execution_mode == "isolated", "what its creator chose stays"


def test_routines_that_are_there_follow_the_flag_and_come_back(awake: Person, settings: Any) -> None:
    job = isolated(awake)
    assert apply_jobs_flag() == 0
    settings.RONDO_SCHEDULER_CRON_JOBS = False
    assert apply_jobs_flag() == 1
    again(job)
    assert fire_due_jobs().claimed == 0
    assert agents_with_due_routines([]) == [awake.agent.pk]
    update_routine(job.pk, {"title": "another"})
    assert JobClock.objects.get(job=job).inline, "an edit does not undo it"
    settings.RONDO_SCHEDULER_CRON_JOBS = True
    assert apply_jobs_flag() == 1
    assert agents_with_due_routines([]) == []
    assert fire_due_jobs().queued == 1
    assert Turn.objects.get().kind == TurnKind.JOB


def test_a_pending_retry_follows_the_cron_jobs_flag(awake: Person, settings: Any) -> None:
    again(isolated(awake))
    fire_due_jobs()
    Turn.objects.update(state="failed", finished_at=Now(), started_at=Now())
    RunRecord.objects.update(attempt=2, not_before=Now() - timedelta(seconds=1))
    settings.RONDO_SCHEDULER_CRON_JOBS = False
    apply_jobs_flag()
    assert queue_due_retries(10) == []
    InlineRoutineStarter().step()
    assert heartbeat_turn(awake) == RunRecord.objects.get().turn
    assert not Session.objects.filter(type="job", state="open").exists()
    RunRecord.objects.update(not_before=Now() + timedelta(hours=1))
    settings.RONDO_SCHEDULER_CRON_JOBS = True
    assert apply_jobs_flag() == 0, "its attempt is a part of a heartbeat's turn"
    RunRecord.objects.update(not_before=None)
    assert apply_jobs_flag() == 1


@pytest.mark.full
def test_a_beat_has_routines_follow_its_flag(fleet: Fleet, awake: Person) -> None:
    job = isolated(awake)
    first = fleet.beat(RONDO_SCHEDULER_CRON_JOBS="0")
    until(lambda: JobClock.objects.get(job=job).inline)
    first.stop()
    fleet.beat()
    until(lambda: not JobClock.objects.get(job=job).inline)


def test_without_reflection_a_heartbeat_registers_nothing(awake: Person, settings: Any) -> None:
    add, context = tools.get("add_routine"), heartbeat(awake)
    assert add.offered(context)
    settings.RONDO_HEARTBEAT_ROUTINE_REFLECTION = False
    assert not add.offered(context)
    assert offered(context), "the others are: with them it repairs HEARTBEAT.md"
    with pytest.raises(ToolFailed, match="register no routines"):
        add.run(context, {"title": "more"})
    assert not CronJob.objects.exclude(system_event="heartbeat").exists()


def test_a_heartbeat_without_reflection_shows_no_intents_to_register(inside: Inside, settings: Any) -> None:
    settings.RONDO_HEARTBEAT_ROUTINE_REFLECTION = False
    write_document(inside.person.agent.pk, "MEMORY.md", "- water the plants weekly [to be registered]")
    beat(inside)
    assert "Register no routines." in inside.model.shown()
    assert 'of="intents"' not in inside.model.shown()
    names = {tool.name for tool in inside.model.calls[-1].tools}
    assert "add_routine" not in names
    assert "update_routine" in names


def test_the_hint_and_the_scope_decide_which_windows_hear_of_an_update(person: Person, settings: Any) -> None:
    settings.RONDO_HEARTBEAT_REALTIME_STATUS_HINT = False
    session = person.session()
    assert deposit(session.pk, NewUpdate(event_type="news", summary="a"))
    assert MailboxEvent.objects.get().dropped_at is None
    assert not Event.objects.exists()
    settings.RONDO_HEARTBEAT_REALTIME_STATUS_HINT = True
    settings.RONDO_HEARTBEAT_BROADCAST_SCOPE = "session"
    deposit(session.pk, NewUpdate(event_type="news", summary="b"))
    [event] = Event.objects.all()
    assert (event.scope, event.session_id) == ("session", session.pk)
    assert event.content["has_unread_background_updates"] is True


@pytest.mark.parametrize("scope", ["agent", "session"])
def test_the_scope_decides_who_sees_background_turns(inside: Inside, settings: Any, scope: str) -> None:
    settings.RONDO_HEARTBEAT_BROADCAST_SCOPE = scope
    inside.model.answer_with(QUIET)
    beat(inside)
    told = Event.objects.filter(scope="agent").order_by("id").values_list("content__background", flat=True)
    assert list(told) == (["turn_start", "turn_end"] if scope == "agent" else [])
    own = Event.objects.filter(scope="session", type__in=["turn_start", "turn_end"])
    assert own.count() == 2, "its own windows see it as ever"


def test_flags_that_were_changed_are_shown(person: Person, settings: Any) -> None:
    assert flags.changed_flags() == []
    assert doctor.check_flags().detail == "all have their defaults"
    assert not any(line.startswith("flags") for line in status.status_lines(status.read_status()))
    settings.RONDO_SCHEDULER_CRON_JOBS = False
    settings.RONDO_HEARTBEAT_BROADCAST_SCOPE = "session"
    found = doctor.check_flags()
    assert found.ok
    assert found.detail == "heartbeat.broadcast_scope is session; scheduler.cron_jobs is off"
    assert any(line.startswith("flags ") for line in status.status_lines(status.read_status()))
