"""What is kept of scheduled messages: what waits always, what has ended for RONDO_KEEP_SCHEDULED_DAYS, with its run."""

from __future__ import annotations

from typing import Any

import pytest

from automations.firing.fire_messages import fire_due_messages
from automations.models import RunRecord, ScheduledMessage
from automations.scheduled_messages import cancel_message
from sessions_app.models import Message, Turn
from tests.automations.messages import a_worker, due, later, run_turn
from tests.conftest import Person
from tests.past import ago, prune_all
from tests.races import orphans

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "scheduled messages"


def old(*messages: ScheduledMessage, days: float = 91) -> None:
    ids = [message.pk for message in messages]
    ScheduledMessage.objects.filter(pk__in=ids).update(created_at=ago(days), updated_at=ago(days))


def test_old_ended_messages_are_pruned_with_runs_but_history_stays(person: Person) -> None:
    session = person.session()
    sent, cancelled, failed, young, waiting, taken = (later(session, f"text {n}") for n in range(6))
    due(sent)
    fire_due_messages()
    run_turn(session, a_worker())
    cancel_message(cancelled.pk)
    ScheduledMessage.objects.mark_failed([failed.pk], "x")
    cancel_message(young.pk)
    due(taken)
    fire_due_messages()
    old(sent, cancelled, failed, waiting, taken)
    old(young, days=89)
    assert prune_all(2, NAME) == {NAME: 3}
    assert set(ScheduledMessage.objects.values_list("pk", flat=True)) == {young.pk, waiting.pk, taken.pk}
    assert RunRecord.objects.get().scheduled_message_id == taken.pk
    assert Message.objects.get(session=session, role="assistant").content == "text 0"
    assert orphans() == {}


def test_a_replaced_message_survives_pruning_of_its_replacement(person: Person) -> None:
    session = person.session()
    first = later(session)
    second = later(session, replace_existing=True)
    third = later(session, replace_existing=True)
    old(second)
    assert prune_all(1, NAME) == {NAME: 1}
    first.refresh_from_db()
    assert (first.status, first.replaced_by) == ("cancelled", None)
    assert set(ScheduledMessage.objects.values_list("pk", flat=True)) == {first.pk, third.pk}


def test_zero_days_keep_them_for_ever(person: Person, settings: Any) -> None:
    settings.RONDO_KEEP_SCHEDULED_DAYS = 0
    message = later(person.session())
    cancel_message(message.pk)
    old(message, days=1000)
    assert prune_all(500, NAME) == {}


def test_the_turn_of_one_that_is_being_sent_stays(person: Person) -> None:
    session = person.session()
    message = later(session)
    due(message)
    fire_due_messages()
    Turn.objects.update(queued_at=ago(100))
    prune_all()
    assert Turn.objects.count() == 1
