"""The tools of scheduled messages: what they answer, what they refuse, and that a call made twice is one (rule 8.1)."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.planner import live
from agent_core.turn.control import TurnControl
from agent_core.types import ToolCall
from automations.beat import seconds_to_next_work
from automations.firing.fire_messages import fire_due_messages
from automations.models import ScheduledMessage
from automations.scheduled_messages import MOST_WAITING
from automations.tools.live_state import existing_kinds
from sessions_app.journal import Journal
from sessions_app.models import Session, SessionType, Turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.context import prepare_turn
from sessions_app.turns.tool_calls import JournalPorts, ToolContext
from tests.automations.messages import LATER, claimed, due, later, status, taken
from tests.conftest import Person
from tests.inside import call
from tests.races import with_trigger

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("8.1")]
ASK = {"send_at": LATER, "message_text": "Take the cake out."}


def context(session: Session, *, interactive: bool = True, call_id: str = "") -> ToolContext:
    turn: Turn = receive(session.pk, MessageInput(content="hello"))
    session = Session.objects.select_related("agent").get(pk=session.pk)
    about: dict[str, Any] = {"turn": turn, "interactive": interactive, "call_id": call_id}
    return ToolContext(session=session, agent=session.agent, **about)


def asked(where: ToolContext, name: str, **arguments: Any) -> Any:
    return json.loads(tools.get(name).run(where, arguments))


def schedule(where: ToolContext, /, **arguments: Any) -> Any:
    return asked(where, "schedule_private_message", **arguments)


def listed(where: ToolContext) -> Any:
    return asked(where, "list_scheduled_private_messages")["scheduled_messages"]


def cancel(where: ToolContext, /, **arguments: Any) -> Any:
    return asked(where, "cancel_scheduled_private_message", **arguments)


def called(session: Session, *calls: ToolCall) -> tuple[Turn, list[str]]:
    """A running turn, and what these calls in it answered."""
    receive(session.pk, MessageInput(content="Tell me later."))
    turn = claimed(session)
    journal = Journal(turn)
    prepared = prepare_turn(turn, journal)
    ports = JournalPorts(journal=journal, context=replace(prepared.tool_context, control=TurnControl()))
    outputs = []
    for each in calls:
        ports.intend(each)
        outputs.append(ports.call(each).output)
    return turn, outputs


def test_scheduling_returns_text_and_time_in_the_agents_zone(person: Person, session: Session) -> None:
    person.agent.timezone = "Asia/Shanghai"
    person.agent.save()
    where = context(session, call_id="call-1")
    answer = schedule(where, **ASK)
    message = ScheduledMessage.objects.get()
    assert (answer["task_id"], answer["session_id"]) == (message.pk, str(session.pk))
    assert (answer["send_at"], answer["message_text"]) == ("2099-01-01T09:00:00+08:00", "Take the cake out.")
    assert (answer["replace_existing"], answer["cancelled_task_ids"], len(answer)) == (False, [], 6)
    assert (message.created_by_turn_id, message.created_by_tool_call_id) == (where.turn.pk, "call-1")
    instead = schedule(replace(where, call_id="call-2"), **ASK, replace_existing=True)
    assert instead["cancelled_task_ids"] == [message.pk]
    message.refresh_from_db()
    assert (message.status, message.cancelled_by_tool_call_id) == ("cancelled", "call-2")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a time in words": ({"send_at": "tomorrow at nine"}, "bad_time: `send_at` must be a time such as"),
    "a past time": ({"send_at": "2020-01-01T09:00:00"}, "past_time: The time '2020-01-01T09:00:00' has passed. It"),
    "no text": ({"message_text": None}, "empty_text: the text is empty. message_text must be"),
    "a long text": ({"message_text": "x" * 10_001}, "text_too_long: the text is longer than 10000 characters. S"),
    "a NUL": ({"message_text": "a\x00b"}, "bad_message: "),
    "half a surrogate pair": ({"message_text": "a\ud800b"}, "bad_message: "),
    "a flag that is none": ({"replace_existing": "yes"}, "bad_input: replace_existing must be true or false"),
    "what nobody knows": ({"session_id": "x"}, "bad_input: unknown parameter 'session_id'; the parameters are: "),
}  # fmt: skip


def test_a_refusal_starts_with_its_code_and_suggests_a_fix(person: Person) -> None:
    where, wrong = context(person.session()), []
    for what, (given, text) in REFUSED.items():
        with pytest.raises(ToolFailed) as refusal:
            schedule(where, **(ASK | given))
        if not str(refusal.value).startswith(text):
            wrong.append((what, str(refusal.value)))
    assert wrong == []
    assert not ScheduledMessage.objects.exists()
    for _ in range(MOST_WAITING):
        later(where.session)
    with pytest.raises(ToolFailed, match=r"^too_many: a session may have at most 20 .* Cancel one first"):
        schedule(where, **ASK)


def test_groups_and_internal_sessions_have_no_private_messages(person: Person) -> None:
    group, heartbeat, job = person.session(chat_type="group"), person.session(), person.session()
    where = {session.pk: context(session) for session in (group, heartbeat, job)}
    for session, kind in ((heartbeat, SessionType.HEARTBEAT), (job, SessionType.JOB)):
        Session.objects.filter(pk=session.pk).update(type=kind)
    for pk, place in where.items():
        here = replace(place, session=Session.objects.get(pk=pk))
        for verb, given in ((schedule, ASK), (listed, {}), (cancel, {"task_id": "x"})):
            with pytest.raises(ToolFailed, match=r"^not_private: "):
                verb(here, **given)


def test_what_waits_is_listed_in_the_order_of_its_times(person: Person, session: Session) -> None:
    where = context(session)
    assert listed(where) == []
    second = schedule(where, **ASK)
    first = schedule(where, send_at="2098-01-01T09:00:00", message_text="Earlier.")
    later(person.session(), "Elsewhere.")
    ScheduledMessage.objects.mark_taken([later(session).pk])
    assert [row["task_id"] for row in listed(where)] == [first["task_id"], second["task_id"]]
    about = {"send_at": "2098-01-01T09:00:00+00:00", "message_text": "Earlier."}
    assert listed(where)[0] == about | {"task_id": first["task_id"]}


def test_cancel_covers_only_unsent_messages_of_this_chat(person: Person, session: Session) -> None:
    mine, sending, elsewhere = later(session), later(session), later(person.session())
    where = context(session, call_id="call-9")
    assert cancel(where, task_id=mine.pk)["status"] == "cancelled"
    assert cancel(where, task_id=mine.pk)["status"] == "cancelled", "again is fine"
    mine.refresh_from_db()
    assert mine.cancelled_by_tool_call_id == "call-9"
    due(mine)
    assert (seconds_to_next_work() > 0, fire_due_messages().claimed) == (True, 0)
    ScheduledMessage.objects.mark_taken([sending.pk])
    missing: list[Any] = [elsewhere.pk, "x\x00", 5]
    for task_id, code in (*((each, "not_found") for each in missing), (sending.pk, "message_being_sent")):
        with pytest.raises(ToolFailed, match=rf"^{code}: "):
            cancel(where, task_id=task_id)
    assert status(elsewhere) == "pending"


@pytest.mark.rule("8.2")
def test_a_repeated_call_answers_the_same_and_conflicts_only_if_it_differs(session: Session) -> None:
    later(session)
    where = context(session, call_id="call-1")
    first = schedule(where, **ASK, replace_existing=True)
    assert schedule(where, **ASK, replace_existing=True) == first
    assert len(first["cancelled_task_ids"]) == 1
    assert ScheduledMessage.objects.waiting().count() == 1
    assert schedule(replace(where, call_id="call-2"), **ASK)["task_id"] != first["task_id"]
    for other in ({"send_at": "2099-01-01T10:00:00"}, {"send_at": "tomorrow"}, {"message_text": "Else."}):
        with pytest.raises(ToolFailed, match=r"^storage_error: this tool call has already scheduled another"):
            schedule(where, **(ASK | other))
    past, before = datetime(2020, 1, 1, 9, tzinfo=UTC), datetime(2019, 12, 31, tzinfo=UTC)
    ScheduledMessage.objects.filter(pk=first["task_id"]).update(send_at=past, created_at=before)
    again = schedule(where, **(ASK | {"send_at": "2020-01-01T09:00:00"}), replace_existing=True)
    assert again["task_id"] == first["task_id"], "a turn that is resumed after its time"


def test_long_ids_of_calls_that_begin_alike_are_two_calls(person: Person) -> None:
    where = context(person.session(), call_id="x" * 250 + "1")
    other = replace(where, call_id="x" * 250 + "2")
    first, second = schedule(where, **ASK), schedule(other, **ASK)
    assert first["task_id"] != second["task_id"]
    assert schedule(where, **ASK) == first
    cancel(other, task_id=first["task_id"])
    keys = ScheduledMessage.objects.values_list("created_by_tool_call_id", flat=True)
    assert {len(key) for key in keys} == {200}


@pytest.fixture
def full(transactional_db: None) -> Iterator[None]:
    """A database that takes no message: for its data, or for a constraint, as the text says."""
    statement = (
        "IF NEW.message_text = 'data' THEN RAISE EXCEPTION 'no' USING ERRCODE = 'data_exception'; END IF;"
    )
    statement += " RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'"
    with with_trigger("BEFORE INSERT ON automations_scheduledmessage FOR EACH ROW", statement):
        yield


@pytest.mark.parametrize("text", ["data", "constraint"])
def test_a_storage_error_is_reported_and_the_turn_continues(person: Person, full: None, text: str) -> None:
    wish = call("schedule_private_message", "call-1", send_at=LATER, message_text=text)
    turn, [said] = called(person.session(), wish)
    assert said == "storage_error: the message could not be stored; nothing was scheduled"
    assert not ScheduledMessage.objects.exists()
    assert [step.kind for step in turn.steps.order_by("n")] == ["prompt", "intent", "result"]


def test_models_get_the_tools_and_planners_see_waiting_messages(session: Session) -> None:
    message, where = taken(session), context(session)
    assert existing_kinds(where) == ("scheduled messages",)
    assert message.pk in live.read_snapshot("scheduled messages", where).text, "until its turn begins"
    turn = claimed(session)
    offered = {tool.name for tool in prepare_turn(turn, Journal(turn)).request.tools}
    verbs = ("schedule_{}message", "list_scheduled_{}messages", "cancel_scheduled_{}message")
    assert offered >= {verb.format("private_") for verb in verbs}


def test_whoever_speaks_of_reminders_is_told_of_what_waits() -> None:
    texts = [
        *("Which scheduled messages are there?", "有哪些定时消息?", "Cancel my reminder"),
        *("What reminders do I have?", "List the messages you will send me later"),
        *("delete the scheduled text", "What is on my schedule?", "取消提醒", "把明天早上的提醒取消"),
    ]
    assert [text for text in texts if "scheduled messages" not in live.kinds_mentioned(text)] == []
    assert {"automations", "scheduled messages"} <= set(live.kinds_mentioned("Cancel my reminder"))
