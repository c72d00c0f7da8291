"""SIGKILL at every step of a turn: nothing lost, nothing doubled, no completed call repeated (rules 1.8, 1.9)."""

import os
import signal
import uuid
from typing import Any

import pytest
import redis

from automations.firing.fire_jobs import fire_due_jobs
from automations.models import RunRecord, RunState
from sessions_app.hints import Hint, flush_hints, send
from sessions_app.models import (
    Document,
    Event,
    EventType,
    Lane,
    Message,
    Session,
    Turn,
    TurnState,
    TurnStep,
    Worker,
)
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from tests import plugins
from tests.automations.firing.test_fire_jobs import due_job
from tests.chaos.test_locks import cut_lock_connections
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.inside import Inside
from tests.model_server import ModelServer
from tests.races import UPDATE, gate, waiting
from tests.talk import ended

pytestmark = pytest.mark.rule("1.9")


def assert_done_once(session: Session, *turns: Turn) -> None:
    """The session's invariants after whatever happened to it."""
    session.refresh_from_db()
    seqs = list(Message.objects.filter(session=session).order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, session.last_seq + 1))
    assert session.revision == Turn.objects.filter(session=session, state__in=["succeeded", "failed"]).count()
    for turn in turns:
        assert Message.objects.filter(turn=turn, role="user").count() == 1
        assert Event.objects.filter(turn_id=turn.pk, type=EventType.TURN_END).count() == 1


def test_killed_in_the_claim(fleet: Fleet, person: Person) -> None:
    """PostgreSQL may still make the claim of a worker that does not exist any more: then its turn is rescued."""
    session = person.session()
    turn = receive(session.pk, MessageInput(content="hello"))
    flush_hints(5)
    with gate(turn, UPDATE):
        worker = fleet.worker(ready=False)
        until(waiting, what="the worker is about to claim")
        worker.kill()
    fleet.worker()
    until(lambda: ended(turn))
    assert (turn.state, turn.attempt) in {(TurnState.SUCCEEDED, 1), (TurnState.SUCCEEDED, 2)}
    assert_done_once(session, turn)


def test_killed_while_the_model_thinks_of_a_message_and_an_automation(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """And what was hinted before it died, and once more, is run once."""
    chat, other = person_with_server.session(), person_with_server.session()
    worker = fleet.worker()
    said = receive(chat.pk, MessageInput(content="[[pause:p]] hello"))
    due_job(other, message="[[pause:p]] x")
    send(fire_due_jobs().hints)
    until(lambda: model_server.held.get("p") == 2)
    assert RunRecord.objects.get().state == RunState.RUNNING
    worker.kill()
    send(Hint(session_id=each.pk, lane=lane) for each in (chat, other) for lane in Lane.values)
    fleet.worker()
    until(lambda: len(model_server.requests) == 4, what="the turns are rescued")
    model_server.release("p")
    until(lambda: ended(said) and RunRecord.objects.get().state == RunState.SUCCEEDED)
    for session, turn in ((chat, said), (other, Turn.objects.get(session=other))):
        assert (turn.state, turn.attempt, turn.rescues) == (TurnState.SUCCEEDED, 2, 0)
        assert_done_once(session, turn)


def test_killed_within_tools_no_completed_call_is_repeated(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    """One that is done and one that is not, one that may be repeated, and one whose effect is in its transaction."""
    sessions = [person_with_server.session() for _ in range(3)]
    tools = (("wait", "done"), ("wait_again", "again"), ("write_row", "row"))
    worker = fleet.worker()
    turns = [
        receive(session.pk, MessageInput(content=f'use tool {tool} with {{"name": "{name}"}}'))
        for session, (tool, name) in zip(sessions, tools, strict=True)
    ]
    until(lambda: all(plugins.calls(fleet.folder, name) for _, name in tools))
    guest = receive(sessions[0].pk, MessageInput(content='use tool wait with {"name": "open"}'))
    (fleet.folder / "done.go").touch()
    until(lambda: plugins.calls(fleet.folder, "open"))
    worker.kill()
    for name in ("again", "row"):
        (fleet.folder / f"{name}.go").touch()
    fleet.worker()
    until(lambda: all(ended(turn) for turn in turns))
    assert {turn.state for turn in turns} == {TurnState.SUCCEEDED}
    calls = {name: plugins.calls(fleet.folder, name) for name in ("done", "open", "again", "row")}
    # effect and result of `row` are one transaction: without the result there was no effect, so it runs again
    assert calls == {"done": 1, "open": 1, "again": 2, "row": 2}
    assert [result["outcome"] for result in results_of(turns[0])] == ["ok", "unknown"]
    assert TurnStep.objects.filter(turn=turns[1], kind="intent").count() == 1
    assert Document.objects.filter(name="row.md").count() == 1
    assert [result["outcome"] for result in results_of(turns[2])] == ["ok"]
    guest.refresh_from_db()
    assert guest.state == TurnState.MERGED, "what was injected before the kill is not lost"
    said = Message.objects.filter(turn=turns[0], role="user").order_by("seq")
    assert list(said.values_list("content", flat=True)) == [turns[0].content, guest.content]
    for session, turn in zip(sessions[1:], turns[1:], strict=True):
        assert_done_once(session, turn)


def test_a_turn_that_was_begun_or_rescued_too_often_fails_visibly(inside: Inside) -> None:
    """Begun: whoever gave it back, and whether or not it had got on. Rescues alone would never end it."""
    session = inside.person.session()
    for before, fails in (({"attempt": 100}, 1), ({"rescues": 4}, 1), ({"attempt": 99, "rescues": 3}, 0)):
        turn = receive(session.pk, MessageInput(content="hello"))
        Turn.objects.filter(pk=turn.pk).update(**before)
        inside.run(session)
        assert ended(turn)
        assert (turn.state, turn.error_code) == (("failed", "max_rescues") if fails else ("succeeded", ""))
        said = Message.objects.get(turn=turn, role="assistant").content
        assert (said == "The turn failed: It was interrupted too often.") == bool(fails), before


@pytest.mark.rule("1.7")
def test_a_lost_hint_is_swept_up(fleet: Fleet, person: Person) -> None:
    session = person.session()
    turn = receive(session.pk, MessageInput(content="hello"))
    flush_hints(5)
    with redis.Redis.from_url(os.environ["CELERY_BROKER_URL"]) as client:
        client.flushdb()
    fleet.worker()
    until(lambda: ended(turn))
    assert turn.hinted_at is not None
    assert_done_once(session, turn)


def test_a_suspended_worker_loses_its_turns_and_late_writes_fail(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    session = person_with_server.session()
    sleeper = fleet.worker()
    turn = receive(session.pk, MessageInput(content='use tool wait with {"name": "open"}'))
    until(lambda: plugins.calls(fleet.folder, "open"))
    sleeper.signal(signal.SIGSTOP)
    # the server's own lease is a minute; its end is brought forward
    owner = Worker.objects.get(pid=sleeper.child.pid)
    cut_lock_connections()
    fleet.worker()
    until(lambda: ended(turn))
    steps = list(TurnStep.objects.filter(turn=turn).order_by("n").values_list("n", "kind"))
    (fleet.folder / "open.go").touch()
    sleeper.signal(signal.SIGCONT)
    sleeper.wait_for("turn_stale")
    assert owner.pk != turn.worker
    assert list(TurnStep.objects.filter(turn=turn).order_by("n").values_list("n", "kind")) == steps
    assert_done_once(session, turn)
    following = receive(session.pk, MessageInput(content="hello"))
    until(lambda: ended(following))
    assert_done_once(session, turn, following)


def results_of(turn: Turn) -> list[dict[str, str]]:
    tools = Message.objects.filter(turn=turn, role="tool").order_by("seq")
    return [result for message in tools for result in message.parts["results"]]


def test_only_consecutive_fruitless_rescues_by_other_workers_count(person: Person, settings: Any) -> None:
    settings.RONDO_WORKER_LOST_SECONDS = 0.001  # nobody signs in here: each owner is gone
    session = person.session()
    turn = receive(session.pk, MessageInput(content="hello"))

    def claimed_by(worker: uuid.UUID) -> int:
        claimed = claim_next(session.pk, worker, auto_allowed=True)
        assert claimed is not None
        return claimed.rescues

    first, second = uuid.uuid4(), uuid.uuid4()
    assert claimed_by(first) == 0
    assert [claimed_by(first) for _ in range(5)] == [0] * 5, "its own turn, after an outage"
    assert [claimed_by(second), claimed_by(first), claimed_by(first)] == [1, 2, 2]
    TurnStep.objects.create(turn=turn, n=0, kind="prompt", data={})
    assert claimed_by(second) == 0, "the one before got on"
    assert [claimed_by(first), claimed_by(second), claimed_by(first)] == [1, 2, 3]
    turn.refresh_from_db()
    Turn.objects.hand_back(turn)
    assert claimed_by(second) == 3, "handed back, which is no rescue either"
