"""The read loop by itself: order, hidden events, slow readers."""

import asyncio
import json
import threading
from contextlib import aclosing, closing
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError

from interfaces.api.sessions import streams
from sessions_app.events import Cursor, event
from sessions_app.models import Agent, Event, EventType, Lane, Pruning, Scope, Session, Turn, TurnKind
from sessions_app.postgres.notify import EVENTS
from sessions_app.sessions.open import primary_session
from sessions_app.streams import hub as stream
from sessions_app.streams import items
from sessions_app.streams import reader as stream_reader
from sessions_app.streams.event_log import PAGE, Position, now, read_events
from sessions_app.streams.hub import LARGEST_QUEUE, QUEUE, READ_AT_ONCE, Hub, Subscription
from sessions_app.streams.items import Item
from sessions_app.streams.rights import Right
from tests.conftest import Person, new_person
from tests.fleet import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.2")]

BEGINNING = Cursor(xid=0, id=0)


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a hub that begins afterwards."""
    monkeypatch.setattr(stream, "POLL", 0.2)


def write(session: Any, count: int = 1, **fields: Any) -> list[int]:
    of = {"agent_id": session.agent_id, "session": session, "turn_id": 1, "type": EventType.STATUS} | fields
    made = Event.objects.bulk_create(Event(**({"content": {"n": n}} | of)) for n in range(count))
    return [event.pk for event in made]


def turn_in(session: Any, **fields: Any) -> Turn:
    given = {"kind": TurnKind.MESSAGE, "lane": Lane.PEOPLE, "content": "x"} | fields
    return Turn.objects.create(session=session, **given)


def subscription_to(shown: Any, after: Cursor, shows: Any = None) -> Subscription:
    """A window of a session, which may show another one, or of an agent."""
    agent = shown if isinstance(shown, Agent) else shown.agent
    session_id = None if shown is agent else (shows or shown).pk
    return Subscription(
        opened=shown.pk,
        position=Position(session_id=session_id, agent_id=agent.pk, cursor=after),
        right=Right(user_id=agent.owner_id),
        wake=lambda: None,
    )


def wake(hub: Hub, session: Any) -> None:
    hub._hear("", {"s": str(session.pk)})


class Reader:
    """Keeps what a subscription gives."""

    def __init__(self, hub: Hub, session: Any, after: Cursor, shows: Any = None) -> None:
        self.items: list[Item] = []
        self.subscription = subscription_to(session, after, shows)
        hub.subscribe(self.subscription)

    def ids(self) -> list[int]:
        self.items += self.subscription.take()
        return [item.event.pk for item in self.items if item.event is not None]


def live(hub: Hub, session: Any) -> Reader:
    """One that hears from now on."""
    reader = Reader(hub, session, now())
    until(lambda: reader.subscription.live)
    return reader


def test_a_long_absent_reader_catches_up_at_its_own_pace(hub: Hub, person: Person) -> None:
    session = person.session()
    ids = write(session, 3 * QUEUE)
    reader = Reader(hub, session, BEGINNING)
    until(lambda: reader.ids() == ids, 20)
    assert not reader.subscription.closed


def test_a_reader_who_does_not_read_is_dropped_alone(hub: Hub, person: Person) -> None:
    session = person.session()
    slow, quick = Reader(hub, session, now()), Reader(hub, session, now())
    until(lambda: slow.subscription.live and quick.subscription.live)
    ids: list[int] = []
    while len(ids) <= QUEUE:
        ids += write(session, PAGE)
        wake(hub, session)
        until(lambda: len(quick.ids()) == len(ids))  # noqa: B023 - called at once
    assert quick.ids() == ids
    until(lambda: slow.subscription.closed)
    assert not quick.subscription.closed
    assert slow.ids() == ids[:QUEUE]
    assert hub.subscribers() == 1


def big(session: Any, count: int) -> list[int]:
    text = "\N{SNOWMAN}" * 100_000  # 300 kB each
    return write(session, count, type=EventType.TURN_QUEUED, content={"text": text})


def test_a_page_is_cut_by_size_without_missing_events(hub: Hub, person: Person) -> None:
    session = person.session()
    ids = [*big(session, 10), *write(session, 3), *big(session, 4)]
    place = Position(session_id=session.pk, cursor=BEGINNING)
    until(lambda: len(read_events([place])[0].events) == 4, 100, "nobody else's transaction hides them")
    assert read_events([place])[0].more
    reader = Reader(hub, session, BEGINNING)
    until(lambda: reader.ids() == ids, 20)
    assert not reader.subscription.closed


def test_a_reader_with_much_unread_is_dropped_unless_catching_up(hub: Hub, person: Person) -> None:
    session = person.session()
    big(session, 20)
    slow, behind = Reader(hub, session, now()), subscription_to(session, BEGINNING)
    hub.subscribe(behind)
    until(lambda: slow.subscription.live)
    for _ in range(8):
        big(session, 4)
        wake(hub, session)
    until(lambda: slow.subscription.closed)
    assert not behind.closed
    assert sum(item.size for item in behind.take()) <= LARGEST_QUEUE


def test_many_newcomers_with_long_pasts_catch_up(hub: Hub, person: Person) -> None:
    sessions = [person.session() for _ in range(READ_AT_ONCE + 5)]
    ids = {session.pk: write(session, PAGE + 1) for session in sessions}
    readers = [Reader(hub, session, BEGINNING) for session in sessions]
    until(lambda: all(reader.ids() == ids[reader.subscription.opened] for reader in readers), 30)


def test_pieces_come_from_where_their_turn_came_from(hub: Hub, person: Person) -> None:
    session = person.session()
    origin = {"source_type": "automation", "run_id": "job:1"}
    reader = live(hub, session)
    for text in ("one", "two"):
        hub._hear("", {"s": str(session.pk), "turn": 1, "attempt": 1, "text": text, **origin})
    until(lambda: reader.ids() == [] and len(reader.items) == 2)
    assert [item.type for item in reader.items] == ["delta"] * 2
    shown = streams._unstored(reader.items[-1], "demo")
    assert (shown["source_type"], shown["run_id"]) == ("automation", "job:1")


@pytest.mark.rule("3.1")
def test_a_snapshot_holds_each_steps_latest_attempt_without_late_text(hub: Hub, person: Person) -> None:
    session = person.session()
    turn = turn_in(session, state="running")
    reader = live(hub, session)

    def hear(step: int, number: int, **said: object) -> None:
        about = {"s": str(session.pk), "turn": turn.pk, "attempt": 1, "step": step, "number": number}
        hub._hear("", about | said)

    hear(1, 1, text="Let me look. ")
    hear(2, 1, text="The ans")
    hear(2, 2, retrying={"status": "retrying", "text": "The model did not answer; trying again."})
    hear(2, 2, text="The answer ")
    hear(2, 1, text="late")
    hear(2, 2, text="is 4")
    hear(2, 2, text="is 4", at=11)  # it is known
    hear(2, 2, text="lost", at=99)  # what is before it is not
    until(lambda: reader.ids() is not None and len(reader.items) == 5)
    assert hub._answers._answers[turn.pk].asked_for == (1, 2, 2)
    assert [item.type for item in reader.items] == ["delta", "delta", "status", "delta", "delta"]
    assert "late" not in [item.content.get("text") for item in reader.items]
    told = reader.items[2].content
    assert (told["status"], told["turn"], told["step"], told["try"]) == ("retrying", turn.pk, 2, 2)
    late = Reader(hub, session, now())
    until(lambda: late.ids() is not None and late.items)
    said = {"step": 2, "try": 2, "text": "Let me look. The answer is 4", "earlier": "Let me look. "}
    assert late.items[0].content == {"turn": turn.pk, "attempt": 1} | said
    hear(1, 1, text="Let me look. ", at=0)  # its worker sends all of it again
    hear(2, 2, text="The answer is 42.", at=0)
    until(lambda: late.ids() is not None and len(late.items) == 2)
    assert late.items[1].content["text"] == "2."


def test_a_reader_hears_of_events_that_nobody_announced(quick_polls: None, hub: Hub, person: Person) -> None:
    session = person.session()
    reader = Reader(hub, session, now())
    ids = write(session)
    until(lambda: reader.ids() == ids, 5)


@pytest.mark.rule("4.10")
def test_threads_miss_no_primary_event_since_the_toggle(quick_polls: None, hub: Hub, person: Person) -> None:
    """Nobody told the hub of the toggle, and what it reads next is the thread's own, written last."""
    thread, home = person.session(), primary_session(person.agent)
    reader = live(hub, thread)
    Agent.objects.filter(pk=person.agent.pk).update(unified_session=True)
    told = write(home)
    write(thread)
    wake(hub, thread)
    until(lambda: reader.subscription.closed)
    assert reader.ids() == []
    assert [item.content.get("shows") for item in reader.items] == [str(home.pk)]
    again = Reader(hub, thread, reader.subscription.position.cursor, shows=home)
    until(lambda: again.ids() == told)
    told += write(home)
    wake(hub, home)
    until(lambda: again.ids() == told)
    Agent.objects.filter(pk=person.agent.pk).update(unified_session=False)
    hub._hear("", {"look": "all"})
    until(lambda: again.subscription.closed)
    assert again.ids() == told
    assert [item.content.get("shows") for item in again.items if item.event is None] == [str(thread.pk)]


def test_threads_of_one_agent_share_reads_and_get_every_delta(hub: Hub, person: Person) -> None:
    home, threads = primary_session(person.agent), [person.session() for _ in range(3)]
    Agent.objects.filter(pk=person.agent.pk).update(unified_session=True)
    readers = [Reader(hub, each, now(), shows=home) for each in (home, *threads)]
    until(lambda: all(each.subscription.live for each in readers))
    turn = turn_in(home)
    event(turn, home.agent_id, EventType.TURN_START, {"attempt": 1}).save(force_insert=True)
    hub._hear("", {"s": str(home.pk), "turn": turn.pk, "attempt": 1, "text": "piece"})
    until(lambda: all(each.ids() and len(each.items) == 2 for each in readers))
    late = Reader(hub, threads[0], now(), shows=home)
    until(lambda: late.ids() is not None and late.items)
    assert (late.items[0].type, late.items[0].content["text"]) == ("snapshot", "piece")
    event(turn, home.agent_id, EventType.TURN_END, {}).save(force_insert=True)
    hub._hear("", {"s": str(home.pk), "ended": [turn.pk]})
    until(lambda: all(len(each.ids()) == 2 for each in readers))
    for each in readers:
        expected = ["turn_start", "delta", "turn_end"]
        assert [item.type for item in each.items if item.type != "status"] == expected


@pytest.mark.rule("9.1")
@pytest.mark.parametrize("newcomer", [False, True])
def test_an_end_that_was_read_before_its_announcement_waits_for_the_last_pieces(
    hub: Hub, person: Person, newcomer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notification about something else makes the hub read, while the last pieces are still on their way."""
    monkeypatch.setattr(items, "UNANNOUNCED", 60.0)  # the announcement is not lost, whatever the load
    session = person.session()
    turn = turn_in(session)
    about = {"s": str(session.pk), "turn": turn.pk, "attempt": 1}
    start = now()
    reader = Reader(hub, session, start)
    until(lambda: reader.subscription.live)
    event(turn, session.agent_id, EventType.TURN_START, {"attempt": 1}).save(force_insert=True)
    hub._hear("", about | {"text": "one "})
    until(lambda: reader.ids() is not None and len(reader.items) == 2)
    for kind in (EventType.MESSAGE, EventType.TURN_END):
        event(turn, session.agent_id, kind, {}).save(force_insert=True)
    if newcomer:
        Reader(hub, session, start)
    hub._hear("", {"s": str(session.pk)})
    ids = write(other := person.session())  # before its reader comes: nothing announces them
    sentinel = Reader(hub, other, BEGINNING)
    until(lambda: sentinel.ids() == ids, 5, "the hub has read again")
    hub._hear("", about | {"text": "two"})
    hub._hear("", {"s": str(session.pk), "ended": [turn.pk]})
    until(lambda: len(reader.ids()) == 3)
    said = [item.content["text"] if item.type == "delta" else item.type for item in reader.items]
    assert said == ["turn_start", "one ", "two", "message", "turn_end"]


def test_an_end_whose_announcement_is_lost_comes_all_the_same(
    hub: Hub, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "UNANNOUNCED", 0.1)
    session = person.session()
    turn = turn_in(session)
    reader = live(hub, session)
    event(turn, session.agent_id, EventType.TURN_END, {}).save(force_insert=True)
    until(lambda: len(reader.ids()) == 1, 10)


def test_a_piece_that_is_sent_before_its_reader_comes_is_not_missed(hub: Hub, person: Person) -> None:
    """The process listens before the message is accepted, and the reader comes after it."""
    session = person.session()
    hub.listen()
    piece = {"s": str(session.pk), "turn": 1, "attempt": 1, "text": "Good "}
    with psycopg.connect(settings.DATABASE_LOCK_URL, autocommit=True) as worker:
        worker.execute("SELECT pg_notify(%s, %s)", [EVENTS, json.dumps(piece)])
        until(lambda: hub._answers.knows(1))
        reader = Reader(hub, session, now())
        until(lambda: reader.subscription.live)
        worker.execute("SELECT pg_notify(%s, %s)", [EVENTS, json.dumps(piece | {"text": "morning."})])
    until(lambda: reader.ids() == [] and len(reader.items) == 2)
    expected = [("snapshot", "Good "), ("delta", "morning.")]
    assert [(item.type, item.content["text"]) for item in reader.items] == expected


def test_pieces_that_came_during_an_outage_come_with_the_text_so_far(
    quick_polls: None, hub: Hub, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = person.session()
    reader = live(hub, session)

    def down(*_: Any) -> Any:
        raise OperationalError("down")

    about = {"s": str(session.pk), "turn": 1, "attempt": 1}
    with monkeypatch.context() as outage:
        outage.setattr(stream, "read_events", down)
        hub._hear("", about | {"text": "Good "})
        until(lambda: not reader.subscription.live)
    until(lambda: reader.subscription.live)
    hub._hear("", about | {"text": "morning."})
    until(lambda: reader.ids() == [] and len(reader.items) == 2)
    expected = [("snapshot", "Good "), ("delta", "morning.")]
    assert [(item.type, item.content["text"]) for item in reader.items] == expected


def test_a_quiet_stream_says_that_it_is_alive_despite_looks_without_news(
    hub: Hub, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.3)
    monkeypatch.setattr(stream_reader, "hub", lambda: hub)
    monkeypatch.setattr(stream, "POLL", 0.02)
    session, cursor = person.session(), now()
    position = Position(session_id=session.pk, agent_id=session.agent_id, cursor=cursor)
    body = streams.Stream(session.pk, position, "demo", Right(user_id=person.user.pk))

    async def listen() -> list[bytes]:
        async with asyncio.timeout(10), aclosing(aiter(body)) as blocks:
            return [await anext(blocks) for _ in range(3)]

    with closing(body):
        first, *others = asyncio.run(listen())
    assert first == f"retry: 1000\nid: {cursor}\n\n".encode()
    assert others == [b": keep-alive\n\n"] * 2
    assert hub.subscribers() == 0


def tell_all(session: Session, count: int = 1) -> list[int]:
    """Status for every window of the agent, of this session."""
    return write(session, count, scope=Scope.AGENT)


@pytest.mark.rule("9.1")
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


@pytest.mark.rule("9.1")
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


@pytest.mark.rule("9.1")
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


@pytest.mark.rule("9.1")
def test_an_agent_window_is_told_when_its_events_were_pruned(hub: Hub, person: Person) -> None:
    Pruning.objects.create(name="events", horizon_xid=now().xid, horizon_id=1)
    reader = Reader(hub, person.agent, Cursor(xid=5, id=5))
    until(lambda: reader.ids() is not None and reader.items)
    shown = streams._unstored(reader.items[0], "demo")
    assert (shown["scope"], shown["session_id"]) == ("agent", None)
    assert shown["content"] == {"turn": None, "events_missed": True}
