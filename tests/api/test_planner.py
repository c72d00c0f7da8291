"""Executions, task states and preferences at the API."""

from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.execution import Status, new_id
from interfaces.api.sessions.turns import AwaitedTurn
from sessions_app.models import Agent, ConsentQuestion, Engine, ExecutionState, Session, Turn
from sessions_app.queue.receive import MessageInput, receive
from tests.api.conftest import Caller, problem
from tests.api.test_lists import found

pytestmark = [pytest.mark.django_db, pytest.mark.rule("7.1")]


def session_of(caller: Caller) -> Session:
    Agent.objects.filter(owner=caller.user).update(engine=Engine.PLANNER)
    made = caller.post("/api/sessions/", {"agent": "demo"}).json()
    return Session.objects.get(pk=made["id"])


def execution_of(session: Session, **more: Any) -> ExecutionState:
    given = {"status": Status.WAITING_USER, "request": "Bake.", "question": "Which cake?", "asked_at": Now()}
    return ExecutionState.objects.create(id=new_id(), session=session, source="message", **(given | more))


def test_a_question_that_waits_is_visible_with_its_session(ada: Caller) -> None:
    session = session_of(ada)
    assert ada.get(f"/api/sessions/{session.pk}/").json()["waiting"] == []
    later = execution_of(session, question="Which tea?")
    newest = execution_of(session, status=Status.WAITING_CONFIRMATION, question_id="quest222")
    consent_of(session, id="quest222", execution=newest.pk)
    ExecutionState.objects.filter(pk=later.pk).update(asked_at=Now())
    execution_of(session, status=Status.COMPLETED)
    chats = consent_of(session, id="chats222")
    found = ada.get(f"/api/sessions/{session.pk}/").json()["waiting"]
    times = [each["asked_at"] for each in found]
    assert times == sorted(times, reverse=True)
    call = {"name": "erase", "arguments": {"name": "disk"}, "words": ""}
    names = ("execution", "question_id", "question", "status", "calls")
    assert [tuple(each[name] for name in names) for each in found] == [  # asked last, not begun last
        (None, chats.pk, "May I?", "waiting_confirmation", [call]),
        (later.pk, None, "Which tea?", "waiting_user", []),
        (newest.pk, "quest222", "Which cake?", "waiting_confirmation", [call]),
    ]


def test_consent_questions_are_shown_in_full_and_answered_by_id(ada: Caller, bob: Caller) -> None:
    session = session_of(ada)
    Agent.objects.update(engine=Engine.CHAT)
    asked = consent_of(session, id="quest222")
    address = f"/api/questions/{asked.pk}/"
    shown = ada.get(address).json()
    assert (shown["question"], shown["state"], shown["session"]) == ("May I?", "open", str(session.pk))
    assert shown["calls"] == [{"name": "erase", "arguments": {"name": "disk"}, "words": ""}]
    refused = bob.get(address), bob.post(f"{address}answer/", {"content": "yes"})
    assert [each.status_code for each in refused] == [404, 404]
    answered = ada.post(f"{address}answer/", {"content": "yes"})
    assert answered.status_code == 202
    assert Turn.objects.get(pk=answered.json()["id"]).input.question == asked.pk
    problem(ada.post(f"{address}answer/", {"content": "no"}), 409, "question_taken")
    Turn.objects.update(state="cancelled", finished_at=Now())
    assert ada.post(f"{address}answer/", {"content": "no"}).status_code == 202  # nothing came of the first
    ConsentQuestion.objects.update(state="closed", answered_at=Now())
    Turn.objects.update(state="cancelled", finished_at=Now())
    problem(ada.post(f"{address}answer/", {"content": "yes"}), 409, "question_closed")


def test_who_prefers_to_wait_for_an_answer_is_told_so(ada: Caller) -> None:
    execution = execution_of(session_of(ada))
    address = f"/api/executions/{execution.pk}/answer/"
    answered = ada.post(address, {"content": "lemon"}, Prefer="wait=1")
    assert isinstance(answered, AwaitedTurn) or answered.headers.get("Preference-Applied") == "wait=1"


def consent_of(session: Session, **more: Any) -> ConsentQuestion:
    calls = [{"id": "1", "name": "erase", "arguments": {"name": "disk"}, "version": "v"}]
    return ConsentQuestion.objects.create(
        session=session, turn_id=1, text="May I?", calls=calls, asked_seq=1, **more
    )


def test_executions_are_listed_newest_first_and_by_status(ada: Caller) -> None:
    session = session_of(ada)
    first, failed = execution_of(session), {"status": Status.FAILED, "last_error": "It failed."}
    second = execution_of(session, **failed)
    address = f"/api/sessions/{session.pk}/executions/"
    assert found(ada, address) == [second.pk, first.pk]
    [shown] = ada.get(f"{address}?status=failed").json()["results"]
    assert (shown["id"], shown["last_error"], shown["question"]) == (second.pk, "It failed.", "Which cake?")
    problem(ada.get(f"{address}?status=asleep"), 400, "bad_parameter")


def test_one_execution_shows_plan_and_observations(ada: Caller, bob: Caller) -> None:
    step = {"id": "1.1", "type": "tool", "title": "look", "tool": "read", "arguments": {"n": 1}}
    step["status"] = "done"
    seen = {"kind": "tool", "text": "found it", "step": "1.1"}
    execution = execution_of(session_of(ada), steps=[step], observations=[seen])
    shown = ada.get(f"/api/executions/{execution.pk}/")
    body = shown.json()
    more = {"question": None, "plan": 1, "instruction": None, "confirm": False, "consent": None}
    assert body["steps"] == [step | more | {"started_at": None, "ended_at": None}]
    assert (body["plan"], body["question_id"], body["consents"]) == (0, None, [])
    assert body["asked_at"] is not None
    assert body["observations"] == [seen]
    assert shown.headers["ETag"] == '"1"'
    assert bob.get(f"/api/executions/{execution.pk}/").status_code == 404


def test_a_question_is_given_up_once(ada: Caller) -> None:
    execution = execution_of(session_of(ada))
    done = ada.post(f"/api/executions/{execution.pk}/cancel/", {})
    assert (done.status_code, done.json()["status"], done.json()["closed_by"]) == (200, "cancelled", "person")
    again = ada.post(f"/api/executions/{execution.pk}/cancel/", {})
    problem(again, 409, "execution_ended")


def test_one_at_work_is_asked_to_end_with_its_turn(ada: Caller) -> None:
    session = session_of(ada)
    turn = receive(session.pk, MessageInput(content="Bake."))
    execution = execution_of(session, status=Status.RUNNING, turn=turn)
    assert ada.post(f"/api/executions/{execution.pk}/cancel/", {}).status_code == 200
    turn.refresh_from_db()
    assert turn.state == "cancelled"  # it had not begun


def test_a_reply_names_its_question(ada: Caller) -> None:
    session = session_of(ada)
    old = execution_of(session)
    execution_of(session, question="Which tea?")
    address = f"/api/executions/{old.pk}/answer/"
    problem(ada.post(address, {"content": "lemon", "question": "another2"}), 409, "question_closed")
    answered, again = (ada.post(address, {"content": "lemon"}, Idempotency_Key="once") for _ in range(2))
    assert (answered.status_code, again.status_code) == (202, 202)
    turn = Turn.objects.get()
    assert (turn.input.execution, turn.content, turn.on_busy) == (old.pk, "lemon", "enqueue")
    assert answered.headers["Location"] == f"/api/turns/{turn.pk}/"


def test_memory_is_read_and_corrected_by_revision(ada: Caller) -> None:
    session = session_of(ada)
    address = f"/api/sessions/{session.pk}/memory/"
    empty = ada.get(address)
    assert (empty.json()["current_goal"], empty.json()["revision"]) == ("", 0)
    first = ada.patch(address, {"important_facts": ["likes red"]}, If_Match='"0"')
    assert (first.status_code, first.json()["revision"]) == (200, 1)
    stale = ada.patch(address, {"current_goal": "a shed"}, If_Match='"0"')
    problem(stale, 412, "revision_conflict")
    second = ada.patch(address, {"current_goal": "a shed"}, If_Match='"1"').json()
    assert (second["current_goal"], second["important_facts"]) == ("a shed", ["likes red"])


def test_preferences_are_a_persons_own(ada: Caller, bob: Caller) -> None:
    address = "/api/agents/demo/preferences/"
    assert ada.get(address).json() == {"content": "", "revision": 0, "updated_at": None}
    written = ada.patch(address, {"content": "Answer in German."}, If_Match='"0"')
    assert (written.status_code, written.json()["revision"]) == (200, 1)
    problem(ada.patch(address, {"content": "x"}, If_Match='"0"'), 412, "revision_conflict")
    assert ada.get(address).json()["content"] == "Answer in German."
    assert "German" not in bob.get(address).text
    problem(ada.patch(address, {"content": "x" * 4001}), 400, "document_too_long")
