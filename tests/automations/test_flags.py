"""The feature flags: off means the way back that is described, and on again undoes it (rule 10.1)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.testing import ModelServer
from automations.ahead import look
from automations.due_tasks import DueTasks
from automations.fire import fire_due
from automations.follow import follow_flag
from automations.inline import agents_with_due
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.retries import queue_due
from automations.routine_tools import offered
from automations.routines import NewRoutine, add_routine, update_routine
from config import checks, status
from sessions_app import flags
from sessions_app.agents import update_agent, write_document
from sessions_app.claim import claim_next
from sessions_app.mailbox import Mail, deposit
from sessions_app.models import Event, MailboxEvent, Session, SessionType, Turn, TurnKind, Worker
from sessions_app.tools import ToolContext
from tests.automations.test_heartbeat import beat_now, ended, heartbeat_turn
from tests.conftest import Person, new_person
from tests.fleet import Fleet, until
from tests.up import ROOT

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def awake(transactional_db: None) -> Person:
    """A person whose agent is always awake; of its system jobs only the heartbeat is left."""
    person = new_person("ada", dreams=True)
    CronJob.objects.exclude(system_event="heartbeat").delete()
    update_agent(person.agent.pk, {"heartbeat": {"active_hours": [0, 24]}})
    person.agent.refresh_from_db()
    return person


def isolated(person: Person, title: str = "report") -> CronJob:
    return add_routine(
        NewRoutine(agent_id=person.agent.pk, title=title, schedule="1h", execution_mode="isolated")
    )


def due(job: CronJob) -> None:
    JobClock.objects.filter(job=job).update(next_run_at=Now())


def test_without_cron_jobs_an_isolated_routine_runs_with_the_heartbeat(
    fleet: Fleet, awake: Person, settings: Any
) -> None:
    settings.RONDO_SCHEDULER_CRON_JOBS = False
    fleet.worker(RONDO_SCHEDULER_CRON_JOBS="0")
    job = isolated(awake)
    due(job)
    assert fire_due().claimed == 0, "it is not beat's"
    DueTasks().step()
    run = until(lambda: RunRecord.objects.filter(job=job, state=RunState.SUCCEEDED).first())
    assert (run.turn.kind, run.session.type) == (TurnKind.HEARTBEAT, SessionType.HEARTBEAT)
    assert not Session.objects.filter(key__startswith="job:").exists()
    job.refresh_from_db()
    assert job.execution_mode == "isolated", "what its creator chose stays"


def test_routines_that_are_there_follow_the_flag_and_come_back(awake: Person, settings: Any) -> None:
    job = isolated(awake)
    assert follow_flag() == 0
    settings.RONDO_SCHEDULER_CRON_JOBS = False
    assert follow_flag() == 1
    due(job)
    assert (look().slots, look().inline) == (False, True)
    assert agents_with_due([]) == [awake.agent.pk]
    update_routine(job.pk, {"title": "another"})
    assert JobClock.objects.get(job=job).inline, "an edit does not undo it"
    settings.RONDO_SCHEDULER_CRON_JOBS = True
    assert follow_flag() == 1
    assert (look().slots, look().inline) == (True, False)
    assert fire_due().queued == 1
    assert Turn.objects.get().kind == TurnKind.JOB


def test_an_attempt_that_waits_is_made_by_who_starts_the_routine(awake: Person, settings: Any) -> None:
    job = isolated(awake)
    due(job)
    fire_due()
    Turn.objects.update(state="failed", finished_at=Now(), started_at=Now())
    RunRecord.objects.update(attempt=2, not_before=Now() - timedelta(seconds=1))
    settings.RONDO_SCHEDULER_CRON_JOBS = False
    follow_flag()
    assert queue_due(10) == []
    DueTasks().step()
    assert heartbeat_turn(awake) == RunRecord.objects.get().turn
    assert not Session.objects.filter(type="job", state="open").exists()
    RunRecord.objects.update(not_before=Now() + timedelta(hours=1))
    settings.RONDO_SCHEDULER_CRON_JOBS = True
    assert follow_flag() == 0, "its attempt is a part of a heartbeat's turn"
    RunRecord.objects.update(not_before=None)
    assert follow_flag() == 1


def test_a_beat_has_routines_follow_its_flag(fleet: Fleet, awake: Person) -> None:
    job = isolated(awake)
    first = fleet.beat(RONDO_SCHEDULER_CRON_JOBS="0")
    until(lambda: JobClock.objects.get(job=job).inline)
    first.stop()
    fleet.beat()
    until(lambda: not JobClock.objects.get(job=job).inline)


def heartbeat_context(person: Person) -> ToolContext:
    session: Session = person.session()
    turn = Turn(session=session, kind=TurnKind.HEARTBEAT)
    return ToolContext(turn=turn, session=session, agent=person.agent, interactive=False)


def test_without_reflection_a_heartbeat_registers_nothing(awake: Person, settings: Any) -> None:
    add, context = tools.get("add_routine"), heartbeat_context(awake)
    assert add.offered(context)
    settings.RONDO_HEARTBEAT_ROUTINE_REFLECTION = False
    assert not add.offered(context)
    assert offered(context), "the others are: with them it repairs HEARTBEAT.md"
    with pytest.raises(ToolFailed, match="register no routines"):
        add.run(context, {"title": "more"})
    assert not CronJob.objects.exclude(system_event="heartbeat").exists()


def test_without_reflection_a_heartbeat_is_not_told_what_could_be_registered(
    fleet: Fleet, awake: Person, model_server: ModelServer
) -> None:
    update_agent(awake.agent.pk, {"model": "openai-chat:test"})
    write_document(awake.agent.pk, "MEMORY.md", "- water the plants weekly [to be registered]")
    fleet.worker(RONDO_HEARTBEAT_ROUTINE_REFLECTION="0")
    assert beat_now(awake) == 1
    until(lambda: ended(heartbeat_turn(awake)))
    body = model_server.requests[-1].body
    asked = body["messages"][-1]["content"]
    assert "Register no routines." in asked
    assert "<intents>" not in asked
    names = [each["function"]["name"] for each in body["tools"]]
    assert "add_routine" not in names
    assert "update_routine" in names


def test_without_the_hint_an_update_waits_and_no_window_hears_of_it(person: Person, settings: Any) -> None:
    settings.RONDO_HEARTBEAT_REALTIME_STATUS_HINT = False
    assert deposit(person.session().pk, Mail(event_type="news", summary="a"))
    assert MailboxEvent.objects.get().dropped_at is None
    assert not Event.objects.exists()


def test_with_the_scope_session_the_windows_of_that_session_alone_hear_of_an_update(
    person: Person, settings: Any
) -> None:
    settings.RONDO_HEARTBEAT_BROADCAST_SCOPE = "session"
    session = person.session()
    deposit(session.pk, Mail(event_type="news", summary="a"))
    [event] = Event.objects.all()
    assert (event.scope, event.session_id) == ("session", session.pk)
    assert event.content["has_unread_background_updates"] is True


@pytest.mark.parametrize("scope", ["agent", "session"])
def test_the_scope_says_whether_other_windows_hear_of_work_in_the_background(
    fleet: Fleet, awake: Person, scope: str
) -> None:
    fleet.worker(RONDO_HEARTBEAT_BROADCAST_SCOPE=scope)
    assert beat_now(awake) == 1
    until(lambda: ended(heartbeat_turn(awake)))
    told = list(
        Event.objects.filter(scope="agent").order_by("id").values_list("content__background", flat=True)
    )
    assert told == (["turn_start", "turn_end"] if scope == "agent" else [])
    own = Event.objects.filter(scope="session", type__in=["turn_start", "turn_end"])
    assert own.count() == 2, "its own windows see it as ever"


def test_a_claim_tells_nobody_else_with_the_scope_session(awake: Person, settings: Any) -> None:
    settings.RONDO_HEARTBEAT_BROADCAST_SCOPE = "session"
    worker = Worker.objects.create(host="here", pid=1)
    beat_now(awake)
    turn = heartbeat_turn(awake)
    assert claim_next(turn.session_id, worker.pk, auto_allowed=True) == turn
    assert not Event.objects.filter(scope="agent").exists()


def test_flags_that_were_changed_are_shown(person: Person, settings: Any) -> None:
    assert flags.changed() == []
    assert checks.flags_changed().detail == "as they are by default"
    assert not any(line.startswith("flags") for line in status.in_words(status.look()))
    settings.RONDO_SCHEDULER_CRON_JOBS = False
    settings.RONDO_HEARTBEAT_BROADCAST_SCOPE = "session"
    found = checks.flags_changed()
    assert found.ok
    assert found.detail == "heartbeat.broadcast_scope is session; scheduler.cron_jobs is off"
    lines = [line for line in status.in_words(status.look()) if "is " in line and "." in line][-2:]
    assert lines == [
        "flags        heartbeat.broadcast_scope is session",
        "             scheduler.cron_jobs is off",
    ]


def test_the_commands_show_them_by_their_environment(person: Person) -> None:
    environ = os.environ | {"RONDO_HEARTBEAT_ROUTINE_REFLECTION": "0"}
    done = subprocess.run(
        [sys.executable, "manage.py", "status", "--json"],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["flags"] == {
        "heartbeat.broadcast_scope": "agent",
        "heartbeat.realtime_status_hint": True,
        "heartbeat.routine_reflection": False,
        "scheduler.cron_jobs": True,
    }


def test_a_scope_that_is_none_is_refused_at_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT, env=os.environ | {"RONDO_HEARTBEAT_BROADCAST_SCOPE": "world"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "RONDO_HEARTBEAT_BROADCAST_SCOPE must be agent or session" in done.stderr
