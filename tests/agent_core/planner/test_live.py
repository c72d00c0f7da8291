"""What a planned conversation has is always looked at, whatever words ask for it (rule 7.5)."""

from typing import Any

import pytest

from agent_core.planner import live
from automations.jobs.edit import NewJob, create_job
from automations.models import CronJob
from automations.routines.edit import NewRoutine, add_routine
from sessions_app.journal import Journal
from sessions_app.models import Agent, Engine, Session
from sessions_app.permits import Permit
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from sessions_app.turns.context import prepare_turn
from sessions_app.turns.engine import PlanPorts
from tests.automations.messages import a_worker, later
from tests.conftest import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("7.5")]


def automation(session: Session, **more: Any) -> CronJob:
    """An automation of the conversation."""
    schedule = {"kind": "every", "seconds": 3600}
    return create_job(NewJob(session_id=session.pk, message="wake", schedule=schedule, **more))


def ports(session: Session, text: str, permit: Permit | None = None) -> PlanPorts:
    """What a planned turn of this message looks through."""
    Agent.objects.update(engine=Engine.PLANNER)
    receive(session.pk, MessageInput(content=text))
    turn = claim_next(session.pk, a_worker(), auto_allowed=True)
    assert turn is not None
    journal = Journal(turn)
    prepared = prepare_turn(turn, journal)
    return PlanPorts(journal=journal, context=prepared.tool_context, permit=permit or prepared.permit)


def seen(session: Session, text: str) -> dict[str, str]:
    names = live.kinds_mentioned(text)
    return {each.kind: each.text for each in ports(session, text).live(names)}


def test_what_the_conversation_has_is_shown_whatever_is_asked(person: Person) -> None:
    session, text = person.session(), "What have you got lined up for me every morning?"
    job = automation(session)
    assert not live.kinds_mentioned(text)
    found = seen(session, text)
    assert found.keys() == {"live:automations"}
    assert job.pk in found["live:automations"]


def test_routines_and_scheduled_messages_are_shown_only_if_any_exist(person: Person) -> None:
    assert seen(person.session(), "Hello") == {}
    routine = add_routine(NewRoutine(agent_id=person.agent.pk, title="news", schedule="1d"))
    found = seen(person.session(), "Hello")
    assert found.keys() == {"live:routines"}
    assert routine.pk in found["live:routines"]
    session = person.session()
    message = later(session, "two\nlines")
    found = seen(session, "Hello")
    assert found.keys() == {"live:routines", "live:scheduled messages"}
    [line] = found["live:scheduled messages"].splitlines()
    assert message.pk in line
    assert "two lines" in line
    assert seen(person.session(), "Hello").keys() == {"live:routines"}, "messages are another conversation's"


def test_an_unrequested_snapshot_is_short_and_states_its_omissions(person: Person) -> None:
    session = person.session()
    for number in range(40):
        automation(session, name=f"job {number} ".ljust(60, "x"))
    unasked = seen(session, "Hello")["live:automations"]
    assert len(unasked) <= live.LONGEST_UNASKED + 60
    lines = unasked.splitlines()
    assert all(line.startswith("- ") for line in lines[:-1])
    assert lines[-1] == f"(cut: {40 - len(lines) + 1} more lines; a tool lists all)"


def test_a_stranger_is_shown_nothing_that_was_not_asked_for(person: Person) -> None:
    session = person.session()
    automation(session)
    assert ports(session, "Hello", Permit(stranger="hook")).live(()) == ()


def test_looking_for_anything_is_one_statement(person: Person, django_assert_num_queries: Any) -> None:
    tools = ports(person.session(), "Hello")
    with django_assert_num_queries(1):
        assert tools.live(()) == ()
