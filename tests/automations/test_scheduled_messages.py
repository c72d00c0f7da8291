"""Scheduled messages, rule by rule, on real rows (docs/automations.md).

The turns are run in this process; tests/chaos/test_scheduled_messages.py has workers and beats.
"""

import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from celery import Celery

from automations import scheduled_messages, selectors
from automations.beat import Scheduler, seconds_to_next_work
from automations.exceptions import BadMessage, TooManyMessages
from automations.firing.fire_messages import fire_due_messages
from automations.firing.one_by_one import NothingFires
from automations.models import JobClock, RunRecord, RunState, ScheduledMessage
from automations.scheduled_messages import MOST_WAITING, MessageToSchedule, cancel_message, schedule_message
from config.operations.checks import beat
from sessions_app.exceptions import NotFound, SessionClosed
from sessions_app.journal import Journal
from sessions_app.models import Message, Session, SessionState, SessionType, Turn, TurnState
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.delete import delete_agent, delete_session
from sessions_app.sessions.open import archive, change_chat
from sessions_app.turns.claim import claim_next
from sessions_app.turns.context import prepare_turn
from sessions_app.turns.lock import Handle
from sessions_app.turns.run import _finish
from tests.automations.jobs.made import code_of
from tests.automations.messages import LATER, a_worker, claimed, due, finish, later, run_turn, status, taken
from tests.automations.turn_kinds.test_bound import bound
from tests.conftest import Person
from tests.past import ago, prune_all
from tests.races import orphans, selected, with_trigger

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("8.2")]


def said(session: Session) -> list[str]:
    rows = Message.objects.filter(session=session, role="assistant").order_by("seq")
    return list(rows.values_list("content", flat=True))


def test_a_message_is_stored_as_it_was_asked_for(person: Person, session: Session) -> None:
    message = later(session, "  Take the cake out.\n", send_at="2099-01-01T09:00:00+01:00")
    assert (message.status, message.chat_type) == ("pending", "private")
    assert message.message_text == "  Take the cake out.\n"
    assert message.send_at == datetime(2099, 1, 1, 8, tzinfo=UTC)
    assert (message.taken_at, message.sent_at, message.sent_message_id) == (None, None, None)
    assert message.updated_at is not None
    person.agent.timezone = "Asia/Shanghai"
    person.agent.save()
    assert later(person.session(), send_at=LATER).send_at == datetime(2099, 1, 1, 1, tzinfo=UTC)
    now = r"It is now \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+08:00 \(Asia/Shanghai\)"
    with pytest.raises(BadMessage, match=now):
        later(person.session(), send_at="2020-01-01T09:00:00")


def test_text_without_visible_characters_is_empty_for_the_database_too(session: Session) -> None:
    characters = [chr(point) for point in range(1, 0x10000) if not 0xD800 <= point <= 0xDFFF]
    blank = selected("SELECT x FROM unnest(%s::text[]) x WHERE NOT x ~ '[^[:space:]]'", characters)
    for text in (*blank, "\u200b", "\u180e", "\ufeff", "\u2800", "\u3164", " \u200d\n\ufe0f", "\U000e0020"):
        assert code_of(partial(later, session, text)) == "empty_text", ascii(text)
    for text in ("\u200f\u05e9", "👩\u200d💻", "\u2764\ufe0f", "."):
        assert later(session, text).message_text == text, "what it holds beside what can be seen stays"


@pytest.mark.rule("8.1")
def test_only_private_chats_of_people_take_messages(person: Person, telegram: None) -> None:
    refusing = [person.session(chat_type="group"), person.session(key="telegram:1", chat_type="group")]
    for kind in (SessionType.HEARTBEAT, SessionType.JOB):
        refusing.append(person.session())
        Session.objects.filter(pk=refusing[-1].pk).update(type=kind)
    for session in refusing:
        assert code_of(partial(later, session)) == "not_private"
    closed = person.session()
    archive(closed.pk)
    with pytest.raises(SessionClosed):
        later(closed)
    with pytest.raises(NotFound):
        schedule_message(MessageToSchedule(session_id=uuid.uuid4(), send_at=LATER, message_text="x"))


def test_a_due_message_becomes_a_run_and_a_turn(person: Person, session: Session) -> None:
    message = later(session)
    assert seconds_to_next_work() > 0
    assert fire_due_messages().claimed == 0
    due(message)
    assert seconds_to_next_work() <= 0
    fired = fire_due_messages()
    assert (fired.claimed, fired.queued, [hint.session_id for hint in fired.hints]) == (1, 1, [session.pk])
    message.refresh_from_db()
    run = RunRecord.objects.get(scheduled_message=message)
    assert run.pk == f"{message.pk}:{int(message.send_at.timestamp() * 1000)}"
    assert (run.state, run.job, run.session_id) == (RunState.QUEUED, None, session.pk)
    turn = Turn.objects.get(origin_run=run.pk)
    assert run.turn_id == turn.pk
    assert (turn.kind, turn.lane, turn.content) == ("scheduled_message", "auto", message.message_text)
    assert (turn.due_at, turn.idempotency_key) == (message.send_at, f"run:{run.pk}:1")
    assert message.taken_at is not None
    assert fire_due_messages().claimed == 0, "it is taken once"
    assert selectors.run_record(person.user, run.pk).pk == run.pk


def test_the_text_is_sent_verbatim_without_asking_a_model(person: Person, session: Session) -> None:
    message = later(session, "Take the cake out.\n(It is *hot*.)")
    receive(session.pk, MessageInput(content="Forget the cake."))
    run_turn(session)  # what was said meanwhile makes no difference
    person.agent.model = "openai-chat:nobody-answers"
    person.agent.save()
    due(message)
    fire_due_messages()
    turn = run_turn(session)
    assert (turn.state, turn.usage["requests"]) == (TurnState.SUCCEEDED, 0)
    assert said(session)[1:] == ["Take the cake out.\n(It is *hot*.)"]
    sent = Message.objects.get(turn=turn, role="assistant")
    assert (status(message), message.sent_message_id) == ("sent", sent.pk)
    assert message.sent_at is not None
    run = RunRecord.objects.get(scheduled_message=message)
    assert (run.state, run.turn_id) == (RunState.SUCCEEDED, turn.pk)
    assert run.response_summary == "Take the cake out."
    assert sent.metadata["source"] == {"kind": "scheduled_message", "id": message.pk, "run_id": run.pk}
    receive(session.pk, MessageInput(content="What did you say?"))
    following = claimed(session)
    seen = prepare_turn(following, Journal(following)).request.history[-1]
    assert (seen.role, seen.content) == ("assistant", message.message_text), "the next model sees it"


def test_messages_of_a_session_are_sent_in_time_order(person: Person, session: Session) -> None:
    texts = ["one", "two", "three", "four"]
    due(*(later(session, text) for text in texts))
    due(later(person.session(), "elsewhere"))
    rounds = []
    while (fired := fire_due_messages()).claimed:
        rounds.append(fired.claimed)
    assert rounds == [2, 1, 1, 1], "of one session the first one only"
    for _ in texts:
        run_turn(session)
    assert said(session) == texts


def test_a_late_one_is_sent_and_says_so(session: Session) -> None:
    message = taken(session, ago=7200)
    taken(session, "And now?", ago=2)
    run_turn(session)
    run_turn(session)
    marks = {row.content: row.metadata for row in Message.objects.filter(session=session, role="assistant")}
    late = marks["Take the cake out."]
    assert (late["source_kind"], late["scheduled_message_id"]) == ("scheduled_send", message.pk)
    assert late["late"] is True
    assert 7200 <= late["late_seconds"] < 7300
    message.refresh_from_db()
    assert datetime.fromisoformat(late["scheduled_for"]) == message.send_at.replace(microsecond=0)
    assert "late" not in marks["And now?"]
    assert not Message.objects.filter(session=session, role="user").exists(), "nobody said anything"


@pytest.mark.rule("8.1")
def test_cancel_reaches_a_message_queued_behind_a_busy_session(session: Session) -> None:
    receive(session.pk, MessageInput(content="hello"))
    busy = claimed(session)
    message, other = taken(session), taken(session)
    listed = set(scheduled_messages.cancellable_messages(session.pk))
    assert listed == {message, other}, "both are listed like any other"
    for _ in range(2):
        assert cancel_message(message.pk).status == "cancelled"
    run = RunRecord.objects.get(scheduled_message=message)
    assert (run.state, run.turn and run.turn.state) == (RunState.CANCELLED, TurnState.CANCELLED)
    finish(busy)
    run_turn(session)
    assert claim_next(session.pk, a_worker(), auto_allowed=True) is None
    assert said(session).count("Take the cake out.") == 1
    assert (status(message), status(other)) == ("cancelled", "sent")


@pytest.mark.rule("8.3")
def test_replacing_cancels_all_that_waits_in_this_session_and_frees_the_limit(person: Person) -> None:
    session = person.session()
    sent, elsewhere = taken(session), later(person.session())
    turn = claimed(session)
    first, second = taken(session), later(session)
    for _ in range(MOST_WAITING - 2):
        later(session)
    with pytest.raises(TooManyMessages):
        later(session)
    assert (status(first), status(second)) == ("pending", "pending"), "without replacing all wait"
    waiting = {message.pk for message in scheduled_messages.cancellable_messages(session.pk)}
    instead: dict[str, Any] = {"message_text": "this instead", "replace_existing": True}
    made = schedule_message(MessageToSchedule(session_id=session.pk, send_at=LATER, **instead))
    assert set(made.cancelled_ids) == waiting
    assert len(waiting) == len(made.cancelled_ids) == MOST_WAITING
    assert {status(each) for each in (first, second)} == {"cancelled"}
    assert {status(each) for each in (sent, elsewhere, made.message)} == {"pending"}
    assert first.replaced_by_id == second.replaced_by_id == made.message.pk
    finish(turn)
    assert status(sent) == "sent", "what was claimed is sent"
    assert claim_next(session.pk, a_worker(), auto_allowed=True) is None, "the first one's turn is cancelled"


@pytest.mark.rule("8.3")
def test_a_closed_or_public_session_makes_it_fail_with_the_reason(person: Person) -> None:
    closed, group = person.session(), person.session()
    messages = [later(closed), later(group)]
    archive(closed.pk)
    change_chat(group.pk, chat_type="group")
    due(*messages)
    fired = fire_due_messages()
    assert (fired.claimed, fired.queued) == (2, 0)
    reasons = (("session_closed", "was closed"), ("not_private", "not a private chat"))
    for message, (reason, words) in zip(messages, reasons, strict=True):
        assert (status(message), message.taken_at) == ("failed", None)
        assert words in message.last_error
        run = RunRecord.objects.get(scheduled_message=message)
        assert (run.state, run.reason, run.turn_id) == (RunState.SKIPPED, reason, None)
    assert fire_due_messages().claimed == 0
    change_chat(group.pk, chat_type="private")
    assert later(group).status == "pending"


CHANGED: dict[str, tuple[Any, dict[str, Any], str]] = {  # what is changed, and what the message says then
    "not_private": (Session, {"chat_type": "group"}, "The conversation is not a private chat any more."),
    "message_not_pending": (ScheduledMessage, {"status": "cancelled"}, ""),
    "session_closed": (
        Session,
        {"state": "archived"},
        "The conversation was closed when the message was due.",
    ),
}


@pytest.mark.parametrize("code", CHANGED)
def test_it_is_looked_at_again_at_the_moment_of_sending(session: Session, code: str) -> None:
    model, change, words = CHANGED[code]
    message, turn = taken(session), claimed(session)
    model.objects.filter(pk=session.pk if model is Session else message.pk).update(**change)
    finish(turn)
    assert (turn.state, turn.error_code) == (TurnState.FAILED, code)
    assert (status(message), message.last_error) == ("failed" if words else "cancelled", words)
    assert "Take the cake out." not in said(session)
    assert RunRecord.objects.get(scheduled_message=message).state == RunState.FAILED


def test_cancelling_a_waiting_turn_or_archiving_cancels_the_message(session: Session) -> None:
    message = taken(session)
    cancel_turn(Turn.objects.get(kind="scheduled_message").pk)
    assert status(message) == "cancelled"
    run = RunRecord.objects.get(scheduled_message=message)
    assert (run.state, run.reason) == (RunState.CANCELLED, "cancelled")
    another = taken(session)
    archive(session.pk)
    assert status(another) == "cancelled"


def rescued(session: Session) -> Turn:
    """The turn was claimed, perhaps prepared, and its worker died; another one has it now."""
    Turn.objects.filter(session=session, state=TurnState.RUNNING).update(claim=None)
    turn = claimed(session)
    assert turn.attempt == 2
    return turn


@pytest.mark.parametrize("is_told", [True, False])
def test_a_turn_that_is_cancelled_while_it_runs_sends_nothing(session: Session, is_told: bool) -> None:
    message, turn = taken(session), claimed(session)
    handle = Handle(session_id=session.pk)
    if is_told:
        handle.control.cancel()
    else:
        cancel_turn(turn.pk)
        turn = rescued(session)
    _finish(handle, turn)
    assert (turn.state, status(message)) == (TurnState.CANCELLED, "cancelled")
    assert "Take the cake out." not in said(session)
    assert RunRecord.objects.get(scheduled_message=message).state == RunState.CANCELLED


def test_a_clear_that_was_cancelled_clears_nothing(session: Session) -> None:
    receive(session.pk, MessageInput(content="Hello"))
    run_turn(session)
    receive(session.pk, MessageInput(content="/clear"))
    cancel_turn(claimed(session).pk)
    again = rescued(session)
    finish(again)
    assert again.state == TurnState.CANCELLED
    before = session.window_from_seq
    session.refresh_from_db()
    assert session.window_from_seq == before, "the conversation goes on as it was"


def test_a_turn_rescued_late_is_marked_late(person: Person) -> None:
    for prepared_before in (False, True):
        session = person.session()
        taken(session)
        turn = claimed(session)
        if prepared_before:
            prepare_turn(turn, Journal(turn))
        ago = datetime.now(UTC) - timedelta(hours=3)
        Turn.objects.filter(pk=turn.pk).update(due_at=ago, started_at=ago, queued_at=ago)
        finish(rescued(session))
        marks = Message.objects.get(session=session).metadata
        assert marks["late"] is True
        assert marks["late_seconds"] >= 3 * 3600


def test_all_that_is_due_is_queued_before_any_slot(session: Session) -> None:
    first, second = later(session, "first"), later(session, "second")
    clock = JobClock.objects.get(job=bound(session))
    due(first, second, ago=600)
    JobClock.objects.filter(pk=clock.pk).update(next_run_at=datetime.now(UTC) - timedelta(seconds=300))
    Scheduler(Celery("test"), lazy=True)._fire_due()
    kinds = [run_turn(session).kind for _ in range(3)]
    assert kinds == ["scheduled_message", "scheduled_message", "automation"]
    assert said(session)[:2] == ["first", "second"]


def test_many_messages_do_not_starve_a_slot(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automations.beat.MOST_ROUNDS", 2)
    due(*(later(session) for _ in range(3)))
    bound(session)
    JobClock.objects.update(next_run_at=datetime.now(UTC))
    beat = Scheduler(Celery("test"), lazy=True)
    assert beat._fire_due() == 0.0, "there is more"
    assert Turn.objects.filter(kind="scheduled_message").count() == 2
    assert Turn.objects.filter(kind="automation").count() == 1
    beat._fire_due()
    assert Turn.objects.filter(kind="scheduled_message").count() == 3


def test_messages_do_not_block_deletion_and_go_with_their_session(person: Person, session: Session) -> None:
    taken(session)
    run_turn(session)
    later(session)
    later(session, replace_existing=True)
    taken(session, ago=3)
    assert delete_session(session.pk).deleted
    assert not ScheduledMessage.objects.exists()
    assert not RunRecord.objects.exists()
    later(Session.objects.get(agent=person.agent, type=SessionType.PRIMARY))
    later(person.session())
    assert delete_agent(person.agent.pk).deleted
    assert not ScheduledMessage.objects.exists()
    assert orphans() == {}


def test_a_session_that_is_being_deleted_keeps_no_beat_busy(session: Session) -> None:
    message = later(session)
    due(message)
    row = Session.objects.filter(pk=session.pk)
    row.update(state=SessionState.DELETING, deleting_since=datetime.now(UTC))
    assert fire_due_messages().queued == 1
    assert seconds_to_next_work() > 0
    assert claim_next(session.pk, a_worker(), auto_allowed=True) is None
    row.update(state=SessionState.OPEN, deleting_since=None)
    run_turn(session)
    assert status(message) == "sent", "the delete came to nothing"


def test_what_is_overdue_is_told_by_doctor(person: Person) -> None:
    due(later(person.session()), ago=120)
    finding = beat()
    assert not finding.ok
    assert "overdue" in finding.detail


@pytest.fixture
def trap(transactional_db: None) -> Any:
    """A trigger that refuses one message's run: the batch's own statement fails, at its COMMIT."""
    statement = "IF NEW.snapshot->>'message' = 'trap' THEN RAISE EXCEPTION 'trapped' USING ERRCODE = 'data_exception';"
    statement += " ELSIF NEW.snapshot->>'message' = 'fault' THEN RAISE EXCEPTION 'a fault'; END IF"
    when = "AFTER INSERT ON automations_runrecord DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
    with with_trigger(when, statement, kind="CONSTRAINT TRIGGER"):
        yield


@pytest.mark.rule("8.3")
def test_a_poisoned_row_is_set_aside_and_the_others_go(person: Person, trap: None) -> None:
    alone = person.session()
    bad, behind = later(alone, "trap"), later(alone)
    due(bad, behind)
    assert (fire_due_messages().claimed, fire_due_messages().queued) == (1, 1)
    assert (status(bad), status(behind)) == ("failed", "pending")
    good, bad = [later(person.session()) for _ in range(5)], later(person.session(), "trap")
    due(good[0], bad, *good[1:], later(Session.objects.get(pk=bad.session_id), "after the trap"))
    while fire_due_messages().claimed:
        pass
    assert (status(bad), bad.last_error) == ("failed", "The message could not be queued.")
    run = RunRecord.objects.get(scheduled_message=bad)
    assert (run.state, run.reason) == (RunState.SKIPPED, "schedule_error")
    assert "trapped" in run.error_detail, "for operators"
    assert Turn.objects.filter(kind="scheduled_message").count() == 7
    assert fire_due_messages().claimed == 0


def test_a_fault_that_may_be_everybodys_sets_none_aside(person: Person, trap: None) -> None:
    closed = person.session()
    not_sent = later(closed)
    archive(closed.pk)
    messages = [later(person.session(), "fault") for _ in range(3)]
    due(not_sent, *messages)
    with pytest.raises(NothingFires):
        fire_due_messages()
    assert status(not_sent) == "failed", "a row that is skipped proves nothing of the others"
    assert {status(message) for message in messages} == {"pending"}
    assert seconds_to_next_work() <= 0
    ScheduledMessage.objects.filter(message_text="fault").update(message_text="sound")
    assert fire_due_messages().queued == 3


NAME = "scheduled messages"


def old(*messages: ScheduledMessage, days: float = 91) -> None:
    ids = [message.pk for message in messages]
    ScheduledMessage.objects.filter(pk__in=ids).update(created_at=ago(days), updated_at=ago(days))


def test_old_ended_messages_are_pruned_with_runs_but_history_stays(session: Session, settings: Any) -> None:
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
    settings.RONDO_KEEP_SCHEDULED_DAYS = 0  # for ever
    assert prune_all(2, NAME) == {}
    settings.RONDO_KEEP_SCHEDULED_DAYS = 90
    assert prune_all(2, NAME) == {NAME: 3}
    assert set(ScheduledMessage.objects.values_list("pk", flat=True)) == {young.pk, waiting.pk, taken.pk}
    assert RunRecord.objects.get().scheduled_message_id == taken.pk
    assert Message.objects.get(session=session, role="assistant").content == "text 0"
    assert orphans() == {}


def test_a_replaced_message_survives_pruning_of_its_replacement(session: Session) -> None:
    first, second = later(session), later(session, replace_existing=True)
    third = later(session, replace_existing=True)
    old(second)
    assert prune_all(1, NAME) == {NAME: 1}
    first.refresh_from_db()
    assert (first.status, first.replaced_by) == ("cancelled", None)
    assert set(ScheduledMessage.objects.values_list("pk", flat=True)) == {first.pk, third.pk}
