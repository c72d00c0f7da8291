"""The invariants as the database itself holds them: each is attacked with plain SQL (DESIGN's rule: a constraint)."""

import pytest
from django.db import IntegrityError, connection, transaction

from automations.models import ScheduledMessage
from sessions_app.hooks.edit import NewHook, add_hook
from sessions_app.models import ConsentQuestion, Counter, Delivery, MailboxEvent, Session, Turn
from sessions_app.queue.receive import MessageInput, receive
from tests.automations.jobs.made import EVERY, new
from tests.automations.messages import later
from tests.conftest import Person
from tests.past import ago, past_run
from tests.queries import queries
from tests.tokens import token_of


@pytest.fixture
def rows(person: Person) -> Session:
    """Two of each, so that a blanket UPDATE makes a double."""
    session: Session = person.session()
    person.session()
    turn = receive(session.pk, MessageInput(content="one"))
    receive(session.pk, MessageInput(content="two"))
    said, _ = (session.messages.create(seq=seq, role="user", content="x", turn=turn) for seq in (1, 2))
    Delivery.objects.create(session=session, message=said, idempotency_key="k", channel="c", address="a")
    turn.steps.create(n=0, kind="prompt", data={})
    turn.steps.create(n=1, kind="response", data={})
    MailboxEvent.objects.create(target=session, event_type="t", summary="s")
    token_of(person.user)
    call = {"id": "1", "name": "erase", "arguments": {}, "version": "v"}
    ConsentQuestion.objects.create(
        id="question", session=session, execution="planned2", turn=turn, text="?", calls=[call], asked_seq=1
    )
    for name in ("one", "two"):
        Counter.objects.create(name=name)
        add_hook(NewHook(agent_id=session.agent_id, name=name, session_id=session.pk))
    job = new(session, schedule=EVERY)
    for number in (1, 2):
        past_run(job, ago(number), "queued")
    for _ in range(2):
        later(session)
    assert ScheduledMessage.objects.count() == 2
    return session


def refused(attack: str) -> bool:
    """Whether the database refuses it; nothing of it stays either way."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(attack)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            transaction.set_rollback(True)
    except IntegrityError:
        return True
    return False


@pytest.mark.rule("4.3")
def test_the_database_refuses_every_attack(rows: Session) -> None:
    assert Turn.objects.filter(session=rows, state="queued").count() == 2
    assert [what for what, attack in queries("attacks").items() if not refused(attack)] == []
