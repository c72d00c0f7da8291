"""The claim and the fence, with real connections against each other (rules 1.2, 1.4, 1.5; attacks A1, B5, B10)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now

from agent_core.exceptions import Stale
from agent_core.types import Ending, Entry, Role, StepKind, ToolCall, TurnResult, Usage
from sessions_app.journal import Journal
from sessions_app.models import Document, Lane, Message, OnBusy, Session, Turn, TurnState, TurnStep, Worker
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import CLAIM, claim_next, claim_parameters
from sessions_app.turns.commit import commit
from sessions_app.turns.context import Prepared, prepare_turn
from sessions_app.turns.next_lane import next_lane
from sessions_app.turns.tool_calls import JournalPorts
from sessions_app.worker import sweep as recover
from tests import plugins  # noqa: F401 - registers the tools
from tests.conftest import Person
from tests.fleet import until
from tests.races import in_thread, waiting
from tests.sessions_app.turns.test_receive import automation

pytestmark = pytest.mark.rule("1.2")

ME, OTHER = uuid.uuid4(), uuid.uuid4()
CALL = ToolCall(id="c1", name="write_row", arguments={"name": "late"})
ANSWER = TurnResult(ending=Ending.SUCCEEDED, entries=(Entry(role=Role.ASSISTANT, content="done"),))


@pytest.fixture
def session(person: Person) -> Session:
    Worker.objects.create(id=ME, host="here", pid=1)
    Worker.objects.create(id=OTHER, host="there", pid=2)
    return person.session()  # type: ignore[no-any-return]


def claimed(session: Session) -> Turn:
    receive(session.pk, MessageInput(content="hello"))
    turn = claim_next(session.pk, ME, auto_allowed=True)
    assert turn is not None
    return turn


def ports(prepared: Prepared) -> JournalPorts:
    return JournalPorts(journal=prepared.journal, context=prepared.tool_context)


def stolen(turn: Turn) -> None:
    assert Turn.objects.filter(pk=turn.pk).update(claim=uuid.uuid4(), worker=OTHER) == 1


def everything() -> dict[str, Any]:
    """All that a turn may write."""
    return {
        model.__name__: list(model.objects.order_by("pk").values())
        for model in (Turn, TurnStep, Message, Document, Session)
    }


WRITES: dict[str, Callable[[Prepared], Any]] = {
    "response": lambda p: ports(p).responded(Entry(role=Role.ASSISTANT, content="", calls=(CALL,)), Usage()),
    "intent": lambda p: ports(p).intend(CALL),
    "tool and its result": lambda p: ports(p).call(CALL),
    "unknown outcome": lambda p: ports(p).outcome_unknown(CALL),
    "injection": lambda p: ports(p).injected(),
    "step 0": lambda p: p.journal.record(StepKind.PROMPT, {}),
    "success": lambda p: commit(p, ANSWER),
    "failure": lambda p: commit(p, TurnResult(ending=Ending.FAILED, error_code="x", error_text="x")),
    "cancellation": lambda p: commit(p, TurnResult(ending=Ending.CANCELLED)),
}


@pytest.mark.rule("1.4")
@pytest.mark.parametrize("write", WRITES)
def test_a_stale_worker_writes_nothing(session: Session, write: str) -> None:
    turn = claimed(session)
    prepared = prepare_turn(turn, Journal(turn))
    receive(session.pk, MessageInput(content="a message to inject"))
    stolen(turn)
    before = everything()
    with pytest.raises(Stale):
        WRITES[write](prepared)
    assert everything() == before


@pytest.mark.rule("1.4")
def test_a_turn_ends_once_though_its_claim_stays(session: Session) -> None:
    turn = claimed(session)
    prepared = prepare_turn(turn, Journal(turn))
    WRITES["success"](prepared)
    before = everything()
    for write in ("success", "failure", "cancellation"):
        with pytest.raises(Stale):
            WRITES[write](prepared)
    assert everything() == before


def test_a_stale_hand_back_changes_nothing(session: Session) -> None:
    turn = claimed(session)
    stolen(turn)
    before = everything()
    assert not Turn.objects.hand_back(turn)
    assert everything() == before


def test_a_write_waits_for_an_uncommitted_takeover_and_is_refused(session: Session) -> None:
    turn = claimed(session)
    journal = Journal(turn)
    prepare_turn(turn, journal)
    with transaction.atomic():
        stolen(turn)
        thread, came = in_thread(lambda: journal.record(StepKind.RESPONSE, {}))
        until(waiting)
    thread.join(10)
    assert isinstance(came[0], Stale)
    assert TurnStep.objects.filter(turn=turn, kind="response").count() == 0


def test_a_takeover_waits_for_a_pending_write_and_sees_it(session: Session) -> None:
    """What its lost worker journaled, and what it wrote elsewhere."""
    turn = claimed(session)
    journal = Journal(turn)
    prepare_turn(turn, journal)
    Worker.objects.filter(pk=ME).delete()
    with transaction.atomic():
        journal.record(StepKind.RESPONSE, {})
        Document.objects.create(agent=session.agent, name="MEMORY.md", content="The user is a pirate.")
        thread, came = in_thread(lambda: claim_next(session.pk, ME, auto_allowed=True))
        until(waiting)
    thread.join(10)
    turn = came[0]
    assert turn.attempt == 2
    resumed = Journal(turn)
    assert [step.kind for step in resumed.steps()] == [StepKind.PROMPT, StepKind.RESPONSE]
    assert "pirate" in prepare_turn(turn, resumed).request.system_prompt
    resumed.record(StepKind.RESPONSE, {})


def test_a_claim_is_committed_though_its_worker_reads_no_answer(session: Session) -> None:
    """It keeps the owner's other claims waiting otherwise, and windows without events."""
    Document.objects.create(agent=session.agent, name="MEMORY.md", content="word " * 2_000_000)
    turn = receive(session.pk, MessageInput(content="hello"))
    given = claim_parameters(session.pk, ME, auto_allowed=False)
    with closing(psycopg.connect(settings.DATABASE_LOCK_URL, autocommit=True)) as stopped:
        text = psycopg.ClientCursor(stopped).mogrify(CLAIM.text, CLAIM._constants | given)
        stopped.pgconn.send_query(text.encode())
        until(lambda: Turn.objects.filter(pk=turn.pk, state=TurnState.RUNNING).exists())


@pytest.mark.parametrize("kept", [True, False])
def test_a_claim_moves_past_a_concurrent_cancel_unless_it_rolls_back(session: Session, kept: bool) -> None:
    first = receive(session.pk, MessageInput(content="first", on_busy=OnBusy.ENQUEUE))
    second = receive(session.pk, MessageInput(content="second", on_busy=OnBusy.ENQUEUE))
    with transaction.atomic():
        assert Turn.objects.cancel_queued(first.pk, "cancelled")
        thread, came = in_thread(lambda: claim_next(session.pk, ME, auto_allowed=True))
        until(waiting)
        transaction.set_rollback(not kept)
    thread.join(10)
    taken = came[0] or claim_next(session.pk, ME, auto_allowed=True)
    assert taken is not None
    assert taken.pk == (second.pk if kept else first.pk)
    first.refresh_from_db()
    assert first.state == (TurnState.CANCELLED if kept else TurnState.RUNNING)


@pytest.mark.rule("1.1")
def test_two_claims_of_one_session_never_both_succeed(session: Session) -> None:
    receive(session.pk, MessageInput(content="first", on_busy=OnBusy.ENQUEUE))
    receive(session.pk, MessageInput(content="second", on_busy=OnBusy.ENQUEUE))
    attempts = [
        in_thread(lambda me=me: claim_next(session.pk, me, auto_allowed=True))  # type: ignore[misc]
        for me in (ME, OTHER) * 4
    ]
    for thread, _ in attempts:
        thread.join(10)
    # without the session's lock in front, the index is what refuses the second
    assert Turn.objects.filter(session=session, state=TurnState.RUNNING).count() == 1


@pytest.mark.rule("10.0")
def test_a_turn_that_ends_wakes_a_persons_message_first(session: Session, settings: Any) -> None:
    settings.RONDO_TURNS_PER_USER = 1
    automation(session, "water", datetime.now(UTC))
    other = Session.objects.create(agent=session.agent, owner=session.owner, key="thread:2")
    receive(other.pk, MessageInput(content="hello"))
    third = Session.objects.create(agent=session.agent, owner=session.owner, key="thread:3")
    assert [(each.session_id, each.lane) for each in next_lane(third.pk)] == [(other.pk, Lane.PEOPLE)]


@pytest.mark.rule("1.8")
@pytest.mark.parametrize(
    ("silent", "steady", "takes"),
    [(0, None, True), (0, 60, True), (0, 1, False), (11, None, False), (11, 60, False)],
    ids=["well", "well for long", "just back", "silent itself", "silent again"],
)
def test_who_was_away_itself_counts_no_other_as_lost(
    session: Session, silent: int, steady: int | None, takes: bool
) -> None:
    turn = claimed(session)
    assert claim_next(session.pk, OTHER, auto_allowed=True) is None
    assert next_lane(session.pk) == [], "its worker is alive"
    Worker.objects.filter(pk=ME).update(heartbeat_at="2020-01-01T00:00:00Z")
    until(lambda: server_is_up_for(16))
    since = None if steady is None else Now() - timedelta(seconds=steady)
    Worker.objects.filter(pk=OTHER).update(heartbeat_at=Now() - timedelta(seconds=silent), steady_since=since)
    Turn.objects.filter(pk=turn.pk).update(claimed_at=Now() - timedelta(minutes=1))
    assert recover.sweep_turns(OTHER, list) == takes
    taken = claim_next(session.pk, OTHER, auto_allowed=True)
    assert (taken and (taken.pk, taken.attempt)) == ((turn.pk, 2) if takes else None)


def server_is_up_for(seconds: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT now() - pg_postmaster_start_time() > make_interval(secs => %s)", [seconds])
        return bool(cursor.fetchone()[0])


@pytest.mark.rule("1.7")
def test_a_people_hint_does_not_take_an_automation(session: Session) -> None:
    automation(session, "job", datetime.now(UTC))
    assert claim_next(session.pk, ME, auto_allowed=False) is None
    assert [(each.session_id, each.lane) for each in next_lane(session.pk)] == [(session.pk, "auto")]
    assert claim_next(session.pk, ME, auto_allowed=True) is not None


@pytest.mark.rule("1.5")
def test_a_connection_lost_during_commit_does_not_commit_twice(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = claimed(session)
    prepared = prepare_turn(turn, Journal(turn))
    wrapper: Any = connection
    own, calls = wrapper._commit, []

    def lost() -> None:
        """The commit takes place, and its answer never comes."""
        own()
        calls.append(1)
        if len(calls) == 1:
            raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(wrapper, "_commit", lost)
    commit(prepared, ANSWER)
    assert len(calls) == 1
    session.refresh_from_db()
    assert (session.revision, session.last_seq) == (1, 2)
    assert Message.objects.filter(session=session).count() == 2


@pytest.mark.rule("1.4")
def test_what_was_rolled_back_leaves_no_gap_in_the_journal(session: Session) -> None:
    turn = claimed(session)
    prepared = prepare_turn(turn, Journal(turn))
    with transaction.atomic():
        commit(prepared, ANSWER)
        transaction.set_rollback(True)
    commit(prepared, ANSWER)
    assert list(TurnStep.objects.filter(turn=turn).values_list("n", flat=True)) == [0, 1]


def test_a_connection_killed_before_commit_is_committed_again(session: Session) -> None:
    turn = claimed(session)
    prepared = prepare_turn(turn, Journal(turn))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    thread, _ = in_thread(lambda: connection.cursor().execute("SELECT pg_terminate_backend(%s)", [pid]))
    thread.join(10)
    commit(prepared, ANSWER)
    session.refresh_from_db()
    turn.refresh_from_db()
    assert (session.revision, session.last_seq, turn.state) == (1, 2, TurnState.SUCCEEDED)


@pytest.mark.rule("1.12", "2.2")
def test_a_message_that_joins_as_its_host_is_ended_goes_next(session: Session) -> None:
    """The host's own thread takes the guest while the watchdog ends the host, whose commit waits and releases it."""
    host = claimed(session)
    prepared = prepare_turn(host, Journal(host))
    guest = receive(session.pk, MessageInput(content="and this?"))
    with transaction.atomic():
        assert ports(prepared)._take_guests() == ("and this?",)
        failed = TurnResult(ending=Ending.FAILED, error_code="tool_hung", error_text="x")
        thread, _ = in_thread(lambda: commit(prepared, failed))
        until(waiting)
    thread.join(10)
    host.refresh_from_db()
    guest.refresh_from_db()
    assert (host.state, guest.state, guest.host_id) == ("failed", "queued", None)
    Turn.objects.filter(pk=guest.pk).update(host=host)  # as if nobody had released it
    recover.sweep_turns(OTHER, list)
    following = claim_next(session.pk, OTHER, auto_allowed=True)
    assert following is not None
    assert (following.pk, following.host_id) == (guest.pk, None)


@pytest.mark.rule("2.2")
def test_the_sweep_leaves_guests_of_a_running_host(session: Session) -> None:
    host = claimed(session)
    guest = receive(session.pk, MessageInput(content="and this?"))
    assert ports(prepare_turn(host, Journal(host))).injected() == ("and this?",)
    recover.sweep_turns(OTHER, list)
    guest.refresh_from_db()
    assert guest.host_id == host.pk
