"""The quota of a user: automations, routines and messages to come, whatever agent, session or interface makes them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from django.conf import settings as server

from automations.exceptions import AutomationsError, TooManyJobs, TooManyMessages, TooManyRoutines
from automations.jobs.edit import update_job
from automations.jobs.validate import MOST_FREQUENT
from automations.models import CronJob, ScheduledMessage
from automations.routines.edit import update_routine
from sessions_app.agents.documents import write_document
from sessions_app.agents.edit import create_agent
from sessions_app.exceptions import TooManyAgents, TooManySessions
from sessions_app.models import Agent, Session
from tests.automations.jobs.made import add, new
from tests.automations.messages import later
from tests.conftest import Person, new_person
from tests.fleet import until
from tests.races import in_thread, waiting

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]
FAST, SLOW = {"kind": "every", "seconds": 59}, {"kind": "every", "seconds": 60}


def routine(person: Person, schedule: str, **fields: Any) -> CronJob:
    return add(person, schedule, schedule=schedule, allow_duplicate=True, **fields)


def test_a_user_has_a_quota_of_appointments(person: Person, settings: Any) -> None:
    settings.RONDO_AUTOMATIONS_PER_USER = 3
    other = create_agent(person.user, "other")
    elsewhere = Session.objects.create(agent=other, owner=person.user, key="web:1")
    paused, first = new(person.session(), enabled=False), new(person.session())
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
    for make, error in over.items():
        with pytest.raises(error, match="you have 3 enabled automations and routines"):
            make()
    assert list(CronJob.objects.order_by("pk").values()) == before
    new(new_person("bob").session())  # another user's
    update_job(first.pk, {"name": "changed"})
    update_job(first.pk, {"enabled": False})
    new(person.session())
    for _ in range(2):
        later(elsewhere)
    later(person.session())
    for replaces in (False, True):
        with pytest.raises(TooManyMessages, match="you have 3 pending scheduled messages"):
            later(person.session(), replace_existing=replaces)
    later(elsewhere, replace_existing=True)


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
    for make, error in over.items():
        with pytest.raises(error, match="with an interval of less than 60 s"):
            make()
    update_routine(fast.pk, {"schedule": "1s"})  # it is one of them already
    new(new_person("bob").session(), schedule=FAST)


def at_once(model: Any, *actions: Callable[[], Any]) -> list[type]:
    """Let all go on when none can go further without writing this table; the types of what they came to."""
    with psycopg.connect(server.DATABASE_LOCK_URL) as holder:
        holder.execute(f"LOCK TABLE {model._meta.db_table} IN SHARE MODE")
        started = [in_thread(action) for action in actions]
        until(lambda: waiting() == len(actions), 20, "all wait")
    for thread, _ in started:
        thread.join(60)
    return sorted((type(came) for _, [came] in started), key=lambda each: each.__name__)


def test_the_last_place_of_a_quota_is_given_once(person: Person, settings: Any) -> None:
    settings.RONDO_AGENTS_PER_USER = settings.RONDO_AUTOMATIONS_PER_USER = 3
    settings.RONDO_SESSIONS_PER_USER = 5
    other = Person(user=person.user, agent=create_agent(person.user, "other"))
    CronJob.objects.all().delete()
    chats = [person.session() for _ in range(4)]
    agents = [partial(create_agent, person.user, name) for name in ("one", "two")]
    assert at_once(Agent, *agents) == [Agent, TooManyAgents]
    assert at_once(Session, person.session, person.session) == [Session, TooManySessions]
    later(chats[0]), later(chats[1])
    sent = [partial(later, chat) for chat in chats[2:]]
    assert at_once(ScheduledMessage, *sent) == [ScheduledMessage, TooManyMessages]
    new(chats[0]), new(chats[1])
    assert at_once(CronJob, *(partial(new, chat) for chat in chats[2:])) == [CronJob, TooManyJobs]
    CronJob.objects.get(session=chats[0]).delete()
    planned = [partial(routine, each, "1h") for each in (person, other)]
    assert at_once(CronJob, *planned) == [CronJob, TooManyRoutines]
