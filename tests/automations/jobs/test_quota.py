"""The quota of a user: automations, routines and scheduled messages, whatever agent, session or door makes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from automations.exceptions import AutomationsError, TooManyJobs, TooManyMessages, TooManyRoutines
from automations.jobs.edit import update_job
from automations.jobs.validate import MOST_FREQUENT
from automations.models import CronJob, ScheduledMessage
from automations.routines.edit import NewRoutine, add_routine, update_routine
from automations.scheduled_messages import MessageToSchedule, schedule_message
from sessions_app.agents.documents import write_document
from sessions_app.agents.edit import create_agent
from sessions_app.models import Session
from tests.automations.jobs.made import new
from tests.conftest import Person, new_person

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]
FAST, SLOW = {"kind": "every", "seconds": 59}, {"kind": "every", "seconds": 60}


def routine(person: Person, schedule: str, **fields: Any) -> CronJob:
    return add_routine(
        NewRoutine(
            agent_id=person.agent.pk, title=schedule, schedule=schedule, allow_duplicate=True, **fields
        )
    )


def message(session: Session, **fields: Any) -> ScheduledMessage:
    send_at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    given = MessageToSchedule(session_id=session.pk, send_at=send_at, message_text="Hello", **fields)
    return schedule_message(given).message


def test_a_user_has_a_quota_of_appointments(person: Person, settings: Any) -> None:
    settings.RONDO_AUTOMATIONS_PER_USER = 3
    other = create_agent(person.user, "other")
    elsewhere = Session.objects.create(agent=other, owner=person.user, key="web:1")
    paused = new(person.session(), enabled=False)
    first = new(person.session())
    new(elsewhere)
    disabled = routine(person, "1h", enabled=False)
    routine(person, "2h")
    heartbeat = '```json\n{"version": 2, "tasks": [{"title": "Tea", "schedule": "3h"}]}\n```'
    over: dict[Any, type[AutomationsError]] = {
        (lambda: new(person.session())): TooManyJobs,
        (lambda: update_job(paused.pk, {"enabled": True})): TooManyJobs,
        (lambda: routine(person, "3h")): TooManyRoutines,
        (lambda: update_routine(disabled.pk, {"enabled": True})): TooManyRoutines,
        (lambda: write_document(other.pk, "HEARTBEAT.md", heartbeat)): TooManyRoutines,
    }
    before = list(CronJob.objects.order_by("pk").values())
    for door, error in over.items():
        with pytest.raises(error, match="you have 3 enabled automations and routines"):
            door()
    assert list(CronJob.objects.order_by("pk").values()) == before
    new(new_person("bob").session())  # another user's
    update_job(first.pk, {"name": "changed"})
    update_job(first.pk, {"enabled": False})
    new(person.session())
    for _ in range(2):
        message(elsewhere)
    message(person.session())
    for replaces in (False, True):
        with pytest.raises(TooManyMessages, match="you have 3 pending scheduled messages"):
            message(person.session(), replace_existing=replaces)
    message(elsewhere, replace_existing=True)


def test_a_user_has_few_appointments_within_a_minute(person: Person) -> None:
    for _ in range(MOST_FREQUENT - 1):
        new(person.session(), schedule=FAST)
    fast = routine(person, "59s")
    slow, slow_routine = new(person.session(), schedule=SLOW), routine(person, "60s")
    new(person.session(), schedule=FAST, enabled=False)
    over: dict[Any, type[AutomationsError]] = {
        (lambda: new(person.session(), schedule=FAST)): TooManyJobs,
        (lambda: update_job(slow.pk, {"schedule": FAST})): TooManyJobs,
        (lambda: routine(person, "1s")): TooManyRoutines,
        (lambda: update_routine(slow_routine.pk, {"schedule": "1s"})): TooManyRoutines,
    }
    for door, error in over.items():
        with pytest.raises(error, match="with an interval of less than 60 s"):
            door()
    update_routine(fast.pk, {"schedule": "1s"})  # it is one of them already
    new(new_person("bob").session(), schedule=FAST)
