"""Two requests at the same instant do not exceed a quota of their user."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from django.conf import settings as server

from automations.exceptions import TooManyJobs, TooManyMessages, TooManyRoutines
from automations.models import CronJob, ScheduledMessage
from sessions_app.agents.edit import create_agent
from sessions_app.exceptions import TooManyAgents, TooManySessions
from sessions_app.models import Agent, Session
from tests.automations.jobs.made import new
from tests.automations.jobs.test_quota import message, routine
from tests.conftest import Person
from tests.fleet import until
from tests.races import in_thread, waiting

pytestmark = pytest.mark.rule("10.0")


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
    message(chats[0]), message(chats[1])
    sent = [partial(message, chat) for chat in chats[2:]]
    assert at_once(ScheduledMessage, *sent) == [ScheduledMessage, TooManyMessages]
    new(chats[0]), new(chats[1])
    assert at_once(CronJob, *(partial(new, chat) for chat in chats[2:])) == [CronJob, TooManyJobs]
    CronJob.objects.get(session=chats[0]).delete()
    planned = [partial(routine, each, "1h") for each in (person, other)]
    assert at_once(CronJob, *planned) == [CronJob, TooManyRoutines]
