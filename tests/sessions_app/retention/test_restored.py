"""A database that was restored on another server forgets the events whose order only the old server knew (rule 9.1)."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection

from sessions_app.models import Event, Pruning, Session
from sessions_app.models.process import EVENTS
from sessions_app.streams.event_log import Position, horizon, now, read_events
from tests.conftest import Person

pytestmark = pytest.mark.rule("9.1")

FUTURE = 4_000_000_000_000


def _event(session: Session) -> Event:
    return Event.objects.create(agent=session.agent, session=session, type="status")


def test_migrate_removes_events_of_another_server_and_keeps_ours(person: Person) -> None:
    session = person.session()
    Event.objects.all().delete()
    ours, foreign = _event(session), _event(session)
    change = "UPDATE sessions_app_event SET xid = %s::text::xid8 WHERE id = %s"
    connection.cursor().execute(change, [FUTURE, foreign.pk])
    Pruning.objects.update_or_create(pk=EVENTS, defaults={"horizon_xid": FUTURE, "horizon_id": foreign.pk})
    window = Position(session_id=session.pk, cursor=now())
    [page] = read_events([window])
    assert page.hidden  # the window would wait for it
    call_command("migrate", verbosity=0)
    assert list(Event.objects.values_list("pk", flat=True)) == [ours.pk]
    assert horizon().xid == 0
    [page] = read_events([window])
    assert (page.events, page.hidden) == ([], False)


def test_migrate_keeps_the_horizon_of_this_server(person: Person) -> None:
    before = now()
    Pruning.objects.update_or_create(pk=EVENTS, defaults={"horizon_xid": before.xid - 1, "horizon_id": 7})
    call_command("migrate", verbosity=0)
    assert horizon().xid == before.xid - 1
