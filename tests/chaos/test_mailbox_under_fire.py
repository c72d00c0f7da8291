"""Many deposit, turns fail, the worker is killed: each update is shown once, or dropped with a reason."""

from __future__ import annotations

import random
import threading
import uuid
from functools import partial

import pytest
from django.db import connection

from sessions_app.mailbox.deposit import TOO_MANY, NewUpdate, deposit
from sessions_app.mailbox.updates import SUPERSEDED, unread
from sessions_app.models import MailboxEvent, Message, OnBusy, Priority, Session, Turn, TurnState, TurnStep
from sessions_app.models.turn import OPEN_STATES
from sessions_app.queue.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.races import in_thread

pytestmark = [pytest.mark.full, pytest.mark.rule("6.1", "6.2")]

DEPOSITORS, SESSIONS = 12, 3
ROUNDS, KILL_EVERY = 24, 8
MOST_OPEN = 6  # turns at a time
ASKED = (
    "[[delay:0.1]] hello",
    "[[delay:0.3]] hello",
    "[[fail:402]] hello",
    "[[delay:0.2]] [[fail:402]] hello",
)


def depositor(number: int, targets: list[uuid.UUID], told: list[uuid.UUID], enough: threading.Event) -> None:
    """Deposit by chance, on a connection of its own, until it is enough."""
    chance, count = random.Random(number), 0
    while not enough.wait(chance.random() * 0.6):
        count += 1
        mail = NewUpdate(
            event_type="job_completed",
            summary=f"update {number}-{count}.",
            detail=f"all of {number}-{count}",
            source_key=f"job:{number}",
            priority=Priority(chance.randrange(3)),
            dedupe_key=chance.choice(["", "", "", "weather", f"of {number}"]),
        )
        deposit(chance.choice(targets), mail)
        told.append(mail.event_id)
        connection.close()  # back to the pool, for the others


def open_turns() -> int:
    return Turn.objects.filter(state__in=OPEN_STATES).count()


def drain(sessions: list[Session]) -> None:
    """People go on talking until nothing waits."""
    for _ in range(20):
        waiting = set(unread().values_list("target_id", flat=True))
        for session in sessions:
            if session.pk in waiting:
                receive(session.pk, MessageInput(content="anything new?", on_busy=OnBusy.ENQUEUE))
        until(lambda: open_turns() == 0, 20, "the turns end")


def assert_each_is_shown_once_or_dropped_with_a_reason() -> None:
    told: dict[int, list[int]] = {}  # for each update the turns that succeeded and whose step 0 names it
    for step in TurnStep.objects.filter(n=0, turn__state=TurnState.SUCCEEDED):
        for pk in step.data["event_ids"]:
            told.setdefault(pk, []).append(step.turn_id)
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
            assert row.reason in {SUPERSEDED, TOO_MANY}


def test_each_update_is_shown_once_or_dropped_with_a_reason(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    sessions = [person_with_server.session() for _ in range(SESSIONS)]
    targets, told, enough = [session.pk for session in sessions], list[uuid.UUID](), threading.Event()
    depositors = [in_thread(partial(depositor, n, targets, told, enough)) for n in range(DEPOSITORS)]
    chance, worker = random.Random(4), fleet.worker()
    try:
        for round_ in range(1, ROUNDS + 1):
            until(lambda: open_turns() < MOST_OPEN, 20, "some turns end")
            busy = chance.choice([OnBusy.ENQUEUE, OnBusy.ENQUEUE, OnBusy.INJECT])
            receive(chance.choice(targets), MessageInput(content=chance.choice(ASKED), on_busy=busy))
            if round_ % KILL_EVERY == 0:
                asked = MessageInput(content="[[delay:0.5]] hello", on_busy=OnBusy.ENQUEUE)
                turn = receive(chance.choice(targets), asked)
                until(lambda turn=turn: turn.steps.exists(), 20, "it runs")  # type: ignore[misc]
                worker.kill()
                worker = fleet.worker(ready=False)
    finally:
        enough.set()
        for thread, _ in depositors:
            thread.join(20)
    assert [came for _, came in depositors] == [[None]] * DEPOSITORS
    until(lambda: open_turns() == 0, 30, "every turn ends")
    drain(sessions)
    assert set(MailboxEvent.objects.values_list("event_id", flat=True)) == set(told)
    assert_each_is_shown_once_or_dropped_with_a_reason()
    assert Turn.objects.filter(state=TurnState.FAILED).count() > 3
    assert Turn.objects.filter(attempt__gt=1).exists(), "no turn was resumed"
    assert MailboxEvent.objects.filter(acknowledged_at__isnull=False).count() > DEPOSITORS
