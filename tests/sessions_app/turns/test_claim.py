"""The claim, the fence and the run of a hint, with real connections against each other (rules 1.2, 1.4, 1.5)."""

import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
import redis
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from agent_core.exceptions import Stale
from agent_core.types import Ending, Entry, Role, StepKind, ToolCall, TurnResult, Usage
from sessions_app import hints
from sessions_app.journal import Journal
from sessions_app.models import Document, Lane, Message, OnBusy, Session, Turn, TurnState, TurnStep, Worker
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import CLAIM, claim_next, claim_parameters
from sessions_app.turns.commit import commit
from sessions_app.turns.context import Prepared, prepare_turn
from sessions_app.turns.lock import Handle, SessionLocks
from sessions_app.turns.next_lane import next_lane
from sessions_app.turns.run import run_next_turn
from sessions_app.turns.tool_calls import JournalPorts
from sessions_app.worker import sweep as recover
from sessions_app.worker.process import WorkerProcess
from tests import plugins  # noqa: F401 - registers the tools
from tests.automations.jobs.made import at_once
from tests.automations.messages import claimed
from tests.conftest import Person
from tests.fleet import until
from tests.races import SHARE, behind, in_line, selected
from tests.sessions_app.turns.test_receive import automation
from tests.talk import fresh

pytestmark = pytest.mark.rule("1.2")

ME, OTHER = uuid.uuid4(), uuid.uuid4()
CALL = ToolCall(id="c1", name="write_row", arguments={"name": "late"})
ANSWER = TurnResult(ending=Ending.SUCCEEDED, entries=(Entry(role=Role.ASSISTANT, content="done"),))


@pytest.fixture
def session(person: Person) -> Session:
    Worker.objects.create(id=ME, host="here", pid=1)
    Worker.objects.create(id=OTHER, host="there", pid=2)
    return person.session()  # type: ignore[no-any-return]


def begun(session: Session, worker: uuid.UUID = ME) -> Prepared:
    """A message whose turn has begun."""
    receive(session.pk, MessageInput(content="hello"))
    turn = claimed(session, worker)
    return prepare_turn(turn, Journal(turn))


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


def refuses(write: Callable[[Prepared], Any], prepared: Prepared) -> bool:
    """Whether it is stale for this write."""
    try:
        write(prepared)
    except Stale:
        return True
    return False


@pytest.mark.rule("1.4")
def test_a_stale_worker_writes_nothing(session: Session) -> None:
    prepared = begun(session)
    receive(session.pk, MessageInput(content="a message to inject"))
    stolen(prepared.turn)
    before = everything()
    for what, write in WRITES.items():
        assert refuses(write, prepared), what
        assert everything() == before, what
    assert not Turn.objects.hand_back(prepared.turn)
    assert everything() == before


@pytest.mark.rule("1.4")
def test_a_turn_ends_once_though_its_claim_stays(session: Session) -> None:
    prepared = begun(session)
    WRITES["success"](prepared)
    before = everything()
    for what in ("success", "failure", "cancellation"):
        assert refuses(WRITES[what], prepared), what
    assert everything() == before


def test_a_write_waits_for_an_uncommitted_takeover_and_is_refused(session: Session) -> None:
    prepared = begun(session)
    with transaction.atomic():
        stolen(prepared.turn)
        comes_to = behind(lambda: prepared.journal.record(StepKind.RESPONSE, {}))
    assert isinstance(comes_to(), Stale)
    assert TurnStep.objects.filter(turn=prepared.turn, kind="response").count() == 0


def test_a_takeover_waits_for_a_pending_write_and_sees_it(session: Session) -> None:
    """What its lost worker journaled, and what it wrote elsewhere."""
    journal = begun(session).journal
    Worker.objects.filter(pk=ME).delete()
    with transaction.atomic():
        journal.record(StepKind.RESPONSE, {})
        Document.objects.create(agent=session.agent, name="MEMORY.md", content="The user is a pirate.")
        comes_to = behind(lambda: claimed(session, ME))
    turn = comes_to()
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
        comes_to = behind(lambda: claim_next(session.pk, ME, auto_allowed=True))
        transaction.set_rollback(not kept)
    taken = comes_to() or claimed(session, ME)
    assert taken.pk == (second.pk if kept else first.pk)
    assert fresh(first).state == (TurnState.CANCELLED if kept else TurnState.RUNNING)


@pytest.mark.rule("1.1")
def test_two_claims_of_one_session_never_both_succeed(session: Session) -> None:
    receive(session.pk, MessageInput(content="first", on_busy=OnBusy.ENQUEUE))
    receive(session.pk, MessageInput(content="second", on_busy=OnBusy.ENQUEUE))
    at_once(*(partial(claim_next, session.pk, me, auto_allowed=True) for me in (ME, OTHER) * 4))
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
    turn = begun(session).turn
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
    [is_up] = selected("SELECT now() - pg_postmaster_start_time() > make_interval(secs => %s)", seconds)
    return bool(is_up)


@pytest.mark.rule("1.5")
def test_a_connection_lost_during_commit_does_not_commit_twice(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = begun(session)
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
    assert (fresh(session).revision, session.last_seq) == (1, 2)
    assert Message.objects.filter(session=session).count() == 2


@pytest.mark.rule("1.4")
def test_what_was_rolled_back_leaves_no_gap_in_the_journal(session: Session) -> None:
    prepared = begun(session)
    with transaction.atomic():
        commit(prepared, ANSWER)
        transaction.set_rollback(True)
    commit(prepared, ANSWER)
    assert list(TurnStep.objects.filter(turn=prepared.turn).values_list("n", flat=True)) == [0, 1]


def test_a_connection_killed_before_commit_is_committed_again(session: Session) -> None:
    prepared = begun(session)
    [own] = selected("SELECT pg_backend_pid()")
    at_once(partial(selected, "SELECT pg_terminate_backend(%s)", own))
    commit(prepared, ANSWER)
    turn = Turn.objects.get(session=fresh(session))
    assert (session.revision, session.last_seq, turn.state) == (1, 2, TurnState.SUCCEEDED)


@pytest.mark.rule("1.12", "2.2")
def test_a_message_that_joins_as_its_host_is_ended_goes_next(session: Session) -> None:
    """The host's own thread takes the guest while the watchdog ends the host, whose commit waits and releases it."""
    prepared = begun(session)
    host = prepared.turn
    guest = receive(session.pk, MessageInput(content="and this?"))
    with transaction.atomic():
        assert ports(prepared)._take_guests() == ("and this?",)
        failed = TurnResult(ending=Ending.FAILED, error_code="tool_hung", error_text="x")
        commits = behind(lambda: commit(prepared, failed))
    commits()
    assert (fresh(host).state, fresh(guest).state, guest.host_id) == ("failed", "queued", None)
    Turn.objects.filter(pk=guest.pk).update(host=host)  # as if nobody had released it
    recover.sweep_turns(OTHER, list)
    following = claimed(session, OTHER)
    assert (following.pk, following.host_id) == (guest.pk, None)


@pytest.mark.rule("2.2")
def test_the_sweep_leaves_guests_of_a_running_host(session: Session) -> None:
    host = begun(session)
    guest = receive(session.pk, MessageInput(content="and this?"))
    assert ports(host).injected() == ("and this?",)
    recover.sweep_turns(OTHER, list)
    assert fresh(guest).host_id == host.turn.pk


@dataclass
class Observed:
    """A worker process that tells while a turn runs."""

    process: WorkerProcess
    during: Callable[[], Any] = lambda: None
    followed: list[Handle] = field(default_factory=list)

    @property
    def id(self) -> uuid.UUID:
        return self.process.id

    @property
    def locks(self) -> SessionLocks:
        return self.process.locks

    def follow(self, handle: Handle) -> None:
        self.followed.append(handle)
        self.during()
        self.process.follow(handle)


def hinted(broker: str) -> list[str]:
    """The queues that hold hints, which are taken out."""
    hints.flush_hints(5.0)
    with redis.Redis.from_url(broker) as client:
        queues = [name.decode() for name in client.keys("*.*") if client.type(name) == b"list"]
        client.flushdb()
    return queues


def ended(session: Session) -> list[int]:
    rows = Turn.objects.filter(session=session, state=TurnState.SUCCEEDED).order_by("finished_at")
    return list(rows.values_list("pk", flat=True))


def test_a_hint_runs_one_turn_and_hints_at_the_next_after_the_release(
    worker: WorkerProcess, person: Person, broker: str
) -> None:
    session = person.session()
    turns = [receive(session.pk, MessageInput(content=f"message {n}")) for n in range(3)]
    runner = Observed(worker)
    for number in range(1, 4):
        hinted(broker)
        run_next_turn(runner, session.pk, Lane.PEOPLE)
        assert ended(session) == [turn.pk for turn in turns[:number]]
        assert hinted(broker) == ([f"turns.{hints.shard_of(session.pk)}"] if number < 3 else [])
        assert worker.locks.held() == []
    assert len({handle.claim for handle in runner.followed}) == 3
    assert len({id(handle.control) for handle in runner.followed}) == 3


@pytest.mark.rule("1.6")
def test_a_persons_hint_runs_no_automation_and_hints_at_it(
    worker: WorkerProcess, person: Person, broker: str
) -> None:
    session = person.session()
    first = receive(session.pk, MessageInput(content="one"))
    slot = automation(session, "water", datetime.now(UTC))
    hinted(broker)
    run_next_turn(worker, session.pk, Lane.PEOPLE)
    assert hinted(broker) == [f"auto.{hints.shard_of(session.pk)}"]
    run_next_turn(worker, session.pk, Lane.PEOPLE)
    assert ended(session) == [first.pk]
    run_next_turn(worker, session.pk, Lane.AUTO)
    assert ended(session) == [first.pk, slot.pk]


def test_a_late_hint_neither_locks_nor_claims(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    assert worker.locks.try_hold(session.pk, for_work=True) is None
    assert worker.locks.held() == []
    with CaptureQueriesContext(connection) as asked:
        run_next_turn(worker, session.pk, Lane.PEOPLE)
    assert len(asked) == 0


def test_a_commit_waits_for_a_session_change_and_keeps_it(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    prepared = begun(session, worker.id)
    changes = partial(Session.objects.filter(pk=session.pk).update, title="mine", last_seq=5)
    in_line(session, SHARE, changes, partial(commit, prepared, ANSWER))
    session.refresh_from_db()
    assert (session.title, session.last_seq, session.revision) == ("mine", 7, 1)
    assert list(Message.objects.filter(session=session).values_list("seq", flat=True)) == [6, 7]
    assert ended(session) == [prepared.turn.pk]


def test_a_plain_turn_is_four_statements(worker: WorkerProcess, person: Person) -> None:
    session = person.session()
    receive(session.pk, MessageInput(content="hello"))
    with CaptureQueriesContext(connection) as asked:
        turn = claimed(session, worker.id)
        prepared = prepare_turn(turn, Journal(turn))
    said = [each["sql"] for each in asked if each["sql"] not in {"BEGIN", "COMMIT"}]
    assert len(said) == 3, "the claim, the context, and step 0"
    with CaptureQueriesContext(connection) as written:
        commit(prepared, ANSWER)
    first, *within, last = (each["sql"] for each in written)
    assert (first, last) == ("BEGIN", "COMMIT")
    assert len(within) == 1, "the session's lock, and the turn with its messages and events"


def test_a_commit_locks_its_session_before_its_turn(worker: WorkerProcess, person: Person) -> None:
    """As everybody does: who holds the session may still take the turn."""
    session = person.session()
    prepared = begun(session, worker.id)
    with psycopg.connect(settings.DATABASE_LOCK_URL) as holder:
        holder.execute("SELECT 1 FROM sessions_app_session WHERE id = %s FOR UPDATE", [session.pk])
        comes_to = behind(lambda: commit(prepared, ANSWER))
        holder.execute("SELECT 1 FROM sessions_app_turn WHERE id = %s FOR UPDATE NOWAIT", [prepared.turn.pk])
    assert comes_to() is None
