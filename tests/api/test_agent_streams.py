"""What every window of an agent is told, and the stream of the agent alone (rules 9.1, 9.2)."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import psycopg
import pytest
from django.conf import settings

from interfaces.api.sessions import streams
from sessions_app.events import Cursor
from sessions_app.models import (
    Agent,
    Event,
    EventType,
    Lane,
    Scope,
    Session,
    SessionType,
    Turn,
    TurnInput,
    TurnKind,
)
from sessions_app.sessions.open import open_session
from sessions_app.streams.event_log import PAGE, now
from sessions_app.streams.hub import Hub
from tests.api.conftest import Stream, Window
from tests.api.test_hub import BEGINNING, Reader, wake, write
from tests.api.test_streams import another
from tests.conftest import Person, new_person
from tests.fleet import until
from tests.talk import queue_turn

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.1", "9.2")]
processes = pytest.mark.processes

AGENT = "/api/agents/demo"
SECRET = "the words of the background"


def job_session() -> Session:
    """A session that works in the background, of the one agent there is."""
    session = open_session(Agent.objects.get())
    Session.objects.filter(pk=session.pk).update(type=SessionType.JOB, key=f"job:{uuid.uuid4()}")
    return session


def step_of_a_job(job: Session) -> Turn:
    """What a job left itself to do."""
    about = TurnInput(automation_id="x", automation_name="x", timezone="UTC", next_turn=True).to_json()
    return Turn(session=job, kind=TurnKind.JOB, lane=Lane.AUTO, content=SECRET, metadata=about)


def of_agent(stream: Stream) -> list[dict[str, Any]]:
    return [event for event in stream.events if event["scope"] == "agent"]


def tell_all(session: Session, count: int = 1) -> list[int]:
    """Status for every window of the agent, of this session."""
    made = Event.objects.bulk_create(
        Event(agent_id=session.agent_id, session=session, scope=Scope.AGENT, type=EventType.STATUS)
        for _ in range(count)
    )
    return [event.pk for event in made]


@processes
def test_every_window_sees_background_status_but_only_its_own_text(window: Window) -> None:
    job, other = job_session(), another(window)
    home = Window(site=window.site, token=window.token, session=str(job.pk), http=window.http)
    with window.stream() as one, other.stream() as two, window.stream(AGENT) as agent, home.stream() as own:
        turn = queue_turn(step_of_a_job(job)).pk
        own.wait_for_end(turn)
        for stream in (one, two, agent):
            until(lambda: len(of_agent(stream)) == 3, 10, "all are told")  # noqa: B023 - called at once
            assert [event["type"] for event in stream.events] == ["status"] * 3
            assert SECRET not in json.dumps(stream.events)
            began, ended = (event for event in stream.events if "background" in event["content"])
            [mark] = (event for event in stream.events if "event_id" in event["content"])  # of the result
            assert mark["content"]["has_unread_background_updates"] is True
            assert mark["source_type"] == "mailbox"
            assert began["content"] == {
                "turn": turn, "background": "turn_start", "kind": "job", "attempt": 1,
            }  # fmt: skip
            assert ended["content"] == {
                "turn": turn, "background": "turn_end", "kind": "job", "state": "succeeded",
            }  # fmt: skip
            assert {(each["session_id"], each["agent_name"]) for each in (began, ended)} == {
                (str(job.pk), "demo")
            }
        assert SECRET in json.dumps(own.events)
        assert len(own.of("turn_end")) == 1


def test_events_of_two_sessions_arrive_in_one_order_across_pages(hub: Hub, person: Person) -> None:
    session, other = person.session(), person.session()
    ids, told = [], []
    for _ in range(6):
        ids += write(session, PAGE // 2)
        told += (here := tell_all(other, PAGE // 2))
        ids += here
        write(other)
    late, alone = Reader(hub, session, BEGINNING), Reader(hub, person.agent, BEGINNING)
    until(lambda: late.ids() == ids, 20)
    until(lambda: alone.ids() == told, 20)


def test_nothing_that_another_session_tells_is_stepped_over(hub: Hub, person: Person) -> None:
    """An older transaction tells all windows after a younger one has told its own."""
    session, other = person.session(), person.session()
    readers = [Reader(hub, session, now()), Reader(hub, person.agent, now())]
    until(lambda: all(each.subscription.live for each in readers))
    with psycopg.connect(settings.DATABASE_LOCK_URL) as older:
        (earlier,) = older.execute(
            "INSERT INTO sessions_app_event (agent_id, session_id, scope, source_type, run_id, type, content)"
            " VALUES (%s, %s, 'agent', '', '', 'status', '{}') RETURNING id",
            [other.agent_id, other.pk],
        ).fetchone() or (0,)
        (own,), (later,) = write(session), tell_all(other)
        hub._hear("", {"s": str(other.pk), "a": other.agent_id})
        wake(hub, session)
        for _ in range(20):
            threading.Event().wait(0.01)
            assert [each.ids() for each in readers] == [[], []]
        older.commit()
    until(lambda: readers[0].ids() == [earlier, own, later])
    until(lambda: readers[1].ids() == [earlier, later])


def test_word_of_an_agent_wakes_its_windows_and_nobody_elses(hub: Hub, person: Person) -> None:
    session, other = person.session(), person.session()
    stranger = new_person("bob")
    readers = [Reader(hub, session, now()), Reader(hub, person.agent, now())]
    foreign = [Reader(hub, stranger.session(), now()), Reader(hub, stranger.agent, now())]
    until(lambda: all(each.subscription.live for each in [*readers, *foreign]))
    told = tell_all(other)
    hub._hear("", {"s": str(other.pk), "a": other.agent_id})
    until(lambda: all(each.ids() == told for each in readers), 1.5, "before anybody polls")
    assert [each.ids() for each in foreign] == [[], []]


def test_an_agent_window_is_told_when_its_events_were_pruned(hub: Hub, person: Person) -> None:
    from sessions_app.models import Pruning

    Pruning.objects.create(name="events", horizon_xid=now().xid, horizon_id=1)
    reader = Reader(hub, person.agent, Cursor(xid=5, id=5))
    until(lambda: reader.ids() is not None and reader.items)
    shown = streams._unstored(reader.items[0], "demo")
    assert (shown["scope"], shown["session_id"]) == ("agent", None)
    assert shown["content"] == {"turn": None, "events_missed": True}
