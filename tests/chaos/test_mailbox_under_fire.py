"""Twenty deposit, turns fail or are cancelled, workers are killed: an update is shown once or dropped with a reason."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from django.db import connection

from agent_core.testing import ModelServer
from sessions_app.exceptions import NotFound, TurnEnded
from sessions_app.mailbox.bounds import TOO_MANY
from sessions_app.mailbox.updates import SUPERSEDED, Mail, deposit, unread
from sessions_app.models import (
    MailboxEvent,
    Message,
    OnBusy,
    Priority,
    Session,
    Turn,
    TurnState,
    TurnStep,
    Worker,
)
from sessions_app.models.mailbox import TARGET_GONE
from sessions_app.models.turn import ENDED_STATES, OPEN_STATES
from sessions_app.sessions.delete import delete_session
from sessions_app.turns.cancel import cancel_turn
from sessions_app.turns.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, Process, until
from tests.races import in_thread

pytestmark = [pytest.mark.full, pytest.mark.rule("6.2")]

DEPOSITORS, SESSIONS = 20, 3
ROUNDS, KILL_EVERY, DELETE_AT = 34, 11, 15
MOST_OPEN = 6  # turns at a time
WORKERS = 2
ASKED = (
    "[[delay:0.1]] hello",
    "[[delay:0.3]] hello",
    "[[fail:402]] hello",
    "[[delay:0.2]] [[fail:402]] hello",
)


@dataclass(kw_only=True)
class Post:
    """Those who deposit, each on a connection of its own, until they are told that it is enough."""

    targets: list[uuid.UUID]
    deposited: list[list[Mail]] = field(default_factory=list)
    aimed: dict[uuid.UUID, uuid.UUID] = field(default_factory=dict)  # event: target
    enough: threading.Event = field(default_factory=threading.Event)

    def depositor(self, number: int) -> None:
        chance, mine = random.Random(number), list[Mail]()
        self.deposited.append(mine)
        while not self.enough.wait(chance.random() * 0.6):
            mail = Mail(
                event_type="job_completed",
                summary=f"update {number}-{len(mine)}.",
                detail=f"all of {number}-{len(mine)}",
                source_key=f"job:{number}",
                priority=Priority(chance.randrange(3)),
                dedupe_key=chance.choice(["", "", "", "weather", f"of {number}"]),
            )
            target = chance.choice(self.targets)
            self.aimed[mail.event_id] = target
            mine.append(mail)  # before it is deposited: whatever comes of it, it must not be lost
            deposit(target, mail)
            if chance.random() < 0.3:
                deposit(target, replace(mail, summary="twice"))
            connection.close()  # back to the pool, for the others


@dataclass(kw_only=True)
class Fire:
    """What goes wrong, by chance."""

    fleet: Fleet
    chance: random.Random
    workers: list[Process]
    cancelled: int = 0

    def ask(self, session: Session) -> None:
        busy = self.chance.choice([OnBusy.ENQUEUE, OnBusy.ENQUEUE, OnBusy.INJECT])
        receive(session.pk, MessageInput(content=self.chance.choice(ASKED), on_busy=busy))

    def cancel_some_turn(self) -> None:
        for turn in Turn.objects.filter(state=TurnState.RUNNING).order_by("?")[:1]:
            try:
                cancel_turn(turn.pk)
            except (TurnEnded, NotFound):
                return
            self.cancelled += 1

    def kill_a_worker(self, sessions: list[Session]) -> None:
        """One that is in the middle of a turn; another takes its place and need not be waited for."""

        def victim_at_work() -> Process | None:
            if not open_turns():  # they were quicker than this look
                self.ask(self.chance.choice(sessions))
            return self._busy_worker()

        victim = until(victim_at_work, 15, "a turn runs")
        victim.kill()
        self.workers.remove(victim)
        self.workers.append(self.fleet.worker(ready=False))

    def _busy_worker(self) -> Process | None:
        running = Turn.objects.filter(state=TurnState.RUNNING, steps__n=0).values("worker")
        pids = set(Worker.objects.filter(pk__in=running).values_list("pid", flat=True))
        return next((each for each in self.workers if each.child.pid in pids), None)


def open_turns() -> int:
    return Turn.objects.filter(state__in=OPEN_STATES).count()


def drain(sessions: list[Session]) -> None:
    """People go on talking until nothing waits."""
    for _ in range(20):
        waiting = set(unread().values_list("target_id", flat=True))
        if not waiting:
            return
        for session in sessions:
            if session.pk in waiting:
                receive(session.pk, MessageInput(content="anything new?", on_busy=OnBusy.ENQUEUE))
        until(lambda: open_turns() == 0, 20, "the turns end")


def shown_in_committed_turns() -> dict[int, list[int]]:
    """For each update the turns that succeeded and whose step 0 names it."""
    told: dict[int, list[int]] = {}
    for step in TurnStep.objects.filter(n=0, turn__state=TurnState.SUCCEEDED):
        for pk in step.data["event_ids"]:
            told.setdefault(pk, []).append(step.turn_id)
    return told


def assert_each_is_shown_once_or_dropped_with_a_reason() -> None:
    told = shown_in_committed_turns()
    said = Message.objects.filter(role="user", model_content__isnull=False)  # guests have none of their own
    texts = dict(said.values_list("turn_id", "model_content"))
    for row in MailboxEvent.objects.all():
        turns = told.get(row.pk, [])
        assert len(turns) <= 1, "shown again"
        if row.acknowledged_at:
            assert turns == [row.acknowledged_by_id], "acknowledged by who did not show it"
            assert (row.reason, row.dropped_at) == ("", None)
            assert row.detail in (texts[turns[0]] or "")
        else:
            assert row.dropped_at is not None, "lost"
            assert row.reason in {SUPERSEDED, TARGET_GONE, TOO_MANY}


@pytest.mark.rule("6.1")
def test_each_update_is_shown_once_or_dropped_with_a_reason(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    sessions = [person_with_server.session() for _ in range(SESSIONS)]
    doomed = person_with_server.session()
    doomed_id = doomed.pk
    post = Post(targets=[*(session.pk for session in sessions), doomed_id])
    fire = Fire(
        fleet=fleet, chance=random.Random(4), workers=[fleet.worker(ready=False) for _ in range(WORKERS)]
    )
    depositors = [in_thread(lambda number=number: post.depositor(number)) for number in range(DEPOSITORS)]  # type: ignore[misc]
    try:
        for round_ in range(ROUNDS):
            until(lambda: open_turns() < MOST_OPEN, 20, "some turns end")
            fire.ask(fire.chance.choice(sessions))
            if round_ % 3 == 0:
                fire.cancel_some_turn()
            if round_ % KILL_EVERY == KILL_EVERY - 1:
                fire.kill_a_worker(sessions)
            if round_ == DELETE_AT:
                assert delete_session(doomed.pk).deleted
    finally:
        post.enough.set()
        for thread, _ in depositors:
            thread.join(20)
    assert [came for _, came in depositors] == [[None]] * DEPOSITORS
    until(lambda: open_turns() == 0, 30, "every turn ends")
    drain(sessions)
    ids = [mail.event_id for mine in post.deposited for mail in mine]
    found = {row.event_id: row for row in MailboxEvent.objects.all()}
    # what gave way in the doomed session before it was deleted went along with it
    missing = [each for each in ids if each not in found]
    assert {post.aimed[each] for each in missing} <= {doomed_id}
    assert_each_is_shown_once_or_dropped_with_a_reason()
    ended = Counter(Turn.objects.values_list("state", flat=True))
    assert set(ended) <= {str(state) for state in ENDED_STATES}
    assert ended["failed"] > 3, ended
    assert ended["cancelled"], ended
    assert Turn.objects.filter(attempt__gt=1).exists(), "no turn was resumed"
    assert MailboxEvent.objects.filter(acknowledged_at__isnull=False).count() > DEPOSITORS
    assert MailboxEvent.objects.filter(summary="twice").count() == 0
