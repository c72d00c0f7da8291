"""The invariants as the database itself holds them: each is attacked with plain SQL (DESIGN's rule: a constraint)."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from automations.edit import NewJob, create_job
from automations.models import RunRecord
from sessions_app.hooks import NewHook, add_hook
from sessions_app.models import MailboxEvent, Message, Session, Turn
from sessions_app.receive import Input, receive
from tests.conftest import Person

ATTACKS = {
    "a second running turn": "UPDATE sessions_app_turn SET state = 'running'",
    "an unknown turn state": "UPDATE sessions_app_turn SET state = 'paused'",
    "an unknown kind": "UPDATE sessions_app_turn SET kind = 'whim'",
    "an unknown lane": "UPDATE sessions_app_turn SET lane = 'slow'",
    "an end without its instant": "UPDATE sessions_app_turn SET state = 'failed'",
    "an instant without an end": "UPDATE sessions_app_turn SET finished_at = now()",
    "a claim on a waiting turn": "UPDATE sessions_app_turn SET claim = gen_random_uuid()",
    "a running guest": "UPDATE sessions_app_turn SET state = 'running', host_id = id",
    "one idempotency key twice": "UPDATE sessions_app_turn SET idempotency_key = 'k'",
    "a seq twice": "UPDATE sessions_app_message SET seq = 1",
    "a seq of zero": "UPDATE sessions_app_message SET seq = 0 WHERE seq = 1",
    "an unknown role": "UPDATE sessions_app_message SET role = 'ghost'",
    "a journal row twice": "UPDATE sessions_app_turnstep SET n = 0",
    "a key twice within an agent": "UPDATE sessions_app_session SET key = 'k'",
    "an unknown session state": "UPDATE sessions_app_session SET state = 'asleep'",
    "acknowledged and dropped": "UPDATE sessions_app_mailboxevent SET acknowledged_at = now(), dropped_at = now(),"
    " reason = 'x'",
    "dropped without a reason": "UPDATE sessions_app_mailboxevent SET dropped_at = now()",
    "mail for nobody that waits": "UPDATE sessions_app_mailboxevent SET target_id = NULL",
    "a turn that acknowledged nothing": "UPDATE sessions_app_mailboxevent SET acknowledged_by_id = (SELECT min(id)"
    " FROM sessions_app_turn)",
    "text for every window": "UPDATE sessions_app_event SET scope = 'agent'",
    "two runs of one slot": "UPDATE automations_runrecord SET scheduled_for = '2027-01-01'",
    "a skip without a reason": "UPDATE automations_runrecord SET state = 'skipped', finished_at = now()",
    "an unknown run state": "UPDATE automations_runrecord SET state = 'lost'",
    "an ended run without its instant": "UPDATE automations_runrecord SET state = 'succeeded'",
    "a hook without a name": "UPDATE sessions_app_hook SET name = ''",
    "a hook's token as it is": "UPDATE sessions_app_hook SET token_sha256 = 'rin_' || repeat('a', 43)",
    "one token for two hooks": "UPDATE sessions_app_hook SET token_sha256 = repeat('0', 64)",
    "a route without an address": "UPDATE sessions_app_hook SET channel = 'webhook'",
    "an address without a channel": "UPDATE sessions_app_hook SET address = '42'",
    "a hook of nobody": "UPDATE sessions_app_hook SET agent_id = NULL",
    "a hook into nowhere": "UPDATE sessions_app_hook SET session_id = gen_random_uuid()",
    "a session gone from under its hook": "DELETE FROM sessions_app_session WHERE id IN (SELECT session_id FROM"
    " sessions_app_hook)",
    "two schedules": "UPDATE automations_cronjob SET expr = '* * * * *'",
    "no schedule": "UPDATE automations_cronjob SET every_seconds = NULL",
    "a bound job with a legacy field": "UPDATE automations_cronjob SET channel = 'telegram'",
    "a bound job that runs elsewhere": "UPDATE automations_cronjob SET execution_mode = 'isolated'",
    "a job without its session": "DELETE FROM sessions_app_session WHERE id IN (SELECT session_id FROM"
    " automations_cronjob)",
}


@pytest.fixture
def rows(person: Person) -> Session:
    """Two of each, so that a blanket UPDATE makes a double."""
    session: Session = person.session()
    person.session()
    turn = receive(session.pk, Input(content="one"))
    receive(session.pk, Input(content="two"))
    for seq in (1, 2):
        Message.objects.create(session=session, seq=seq, role="user", content="x", turn=turn)
    turn.steps.create(n=0, kind="prompt", data={})
    turn.steps.create(n=1, kind="response", data={})
    MailboxEvent.objects.create(target=session, event_type="t", summary="s")
    for name in ("one", "two"):
        add_hook(NewHook(agent_id=session.agent_id, name=name, session_id=session.pk))
    job = create_job(NewJob(session_id=session.pk, message="m", schedule={"kind": "every", "seconds": 60}))
    for number in (1, 2):
        RunRecord.objects.create(
            run_id=f"{job.pk}:{number}",
            job=job,
            scheduled_for=f"2026-01-0{number}T00:00:00Z",
            session=session,
        )
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


def test_the_database_refuses_every_attack(rows: Session) -> None:
    assert Turn.objects.filter(session=rows, state="queued").count() == 2
    assert [what for what, attack in ATTACKS.items() if not refused(attack)] == []
