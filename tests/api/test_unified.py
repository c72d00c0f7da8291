"""Unified mode (rule 4.10): what a web thread shows and feeds, and what stays its own."""

from typing import Any

import pytest

from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.fire_messages import fire_due_messages
from automations.models import CronJob, JobClock
from sessions_app.models import PRIMARY_KEY, Event, MailboxEvent, Message, Session, SessionState, Turn
from tests.api.conftest import Caller, problem
from tests.api.test_lists import walked
from tests.automations.messages import a_worker, due, later, run_turn

pytestmark = [pytest.mark.django_db, pytest.mark.rule("4.10")]
REAL = pytest.mark.django_db(transaction=True)  # a delete gives its connection back while it waits


def toggle(caller: Caller, on: bool) -> None:
    answer = caller.patch("/api/agents/demo/", {"unified_session": on})
    assert answer.json()["unified_session"] is on


def primary(caller: Caller) -> str:
    return str(caller.get("/api/agents/demo/").json()["primary_session"])


def send(caller: Caller, session: str, content: str, key: str = "", **fields: Any) -> Any:
    headers = {"Idempotency_Key": key} if key else {}
    answer = caller.post(f"/api/sessions/{session}/messages/", {"content": content} | fields, **headers)
    assert answer.status_code == 202, answer.content
    return answer.json()


def listed(caller: Caller, session: str, part: str, name: str = "id") -> list[Any]:
    return [each[name] for each in caller.get(f"/api/sessions/{session}/{part}/").json()["results"]]


def say(session: str, *texts: str) -> None:
    for seq, text in enumerate(texts, 1):
        Message.objects.create(session_id=session, seq=seq, role="user", content=text)


def test_thread_messages_run_in_the_primary_and_answer_the_thread(ada: Caller) -> None:
    thread = ada.session(key="web:kitchen")
    toggle(ada, on=True)
    turn = send(ada, thread, "hello")
    assert turn["session"] == primary(ada)
    row = Turn.objects.get(pk=turn["id"])
    assert row.input.route == {"channel": "web", "chat_id": "kitchen", "meta": {}}
    toggle(ada, on=False)
    assert send(ada, thread, "hello again")["session"] == thread


def test_threads_show_the_primarys_content_only_in_unified_mode(ada: Caller) -> None:
    one, other, home = ada.session(), ada.session(), primary(ada)
    say(one, "of one")
    say(other, "of other")
    say(home, "of the primary", "and more")
    turns = {each: send(ada, each, "hi")["id"] for each in (one, other, home)}
    jobs = {each: ada.automation(each)["id"] for each in (one, other, home)}
    toggle(ada, on=True)
    for thread in (one, other):
        assert listed(ada, thread, "messages", "content") == ["of the primary", "and more"]
        assert listed(ada, thread, "turns") == [turns[home], turns[thread]], "and its own that waits"
        assert listed(ada, thread, "automations") == [jobs[thread], jobs[home]]
    assert listed(ada, home, "automations") == [jobs[home]]
    toggle(ada, on=False)
    for each, text in ((one, "of one"), (other, "of other")):
        assert listed(ada, each, "messages", "content") == [text]
        assert listed(ada, each, "turns") == [turns[each]]
        assert listed(ada, each, "automations") == [jobs[each]]


def test_new_thread_automations_bind_to_the_primary_older_ones_stay(ada: Caller) -> None:
    thread = ada.session(key="web:kitchen")
    old = ada.automation(thread, name="old")
    toggle(ada, on=True)
    new = ada.automation(thread, name="new")
    assert (old["session_key"], new["session_key"]) == ("web:kitchen", PRIMARY_KEY)
    assert listed(ada, thread, "automations", "session_key") == ["web:kitchen", PRIMARY_KEY]
    renamed = ada.patch(f"/api/automations/{old['id']}/", {"name": "older"}).json()
    assert (renamed["name"], renamed["session_key"]) == ("older", "web:kitchen")
    toggle(ada, on=False)
    assert ada.automation(thread, name="third")["session_key"] == "web:kitchen"
    assert listed(ada, thread, "automations", "name") == ["older", "third"]
    assert listed(ada, primary(ada), "automations", "name") == ["new"]


@pytest.mark.rule("6.3")
def test_a_threads_unread_mail_moves_to_the_primary_and_its_old_mail_stays(ada: Caller) -> None:
    thread, home = ada.session(), primary(ada)
    for target in (thread, home):
        MailboxEvent.objects.create(target_id=target, event_type="job_completed", summary=f"for {target}")
    read = {"acknowledged_at": "2026-01-01T00:00:00Z"}
    MailboxEvent.objects.create(target_id=thread, event_type="job_completed", summary="old", **read)
    toggle(ada, on=True)
    assert sorted(listed(ada, home, "mailbox", "summary")) == sorted([f"for {home}", f"for {thread}"])
    seen = sorted(listed(ada, thread, "mailbox", "summary"))
    assert seen == sorted([f"for {home}", f"for {thread}", "old"])
    toggle(ada, on=False)
    assert listed(ada, thread, "mailbox", "summary") == ["old"]


@pytest.mark.parametrize("key", ["telegram:42", "webhook:https://example.org/rondo"])
@pytest.mark.usefixtures("telegram")
def test_sessions_of_other_channels_stay_their_own(ada: Caller, key: str) -> None:
    session = ada.session(key=key)
    say(session, "of the channel")
    toggle(ada, on=True)
    assert send(ada, session, "hello")["session"] == session
    assert ada.automation(session)["session_key"] == key
    assert listed(ada, session, "messages", "content") == ["of the channel"]


def test_the_thread_itself_stays_what_it_is(ada: Caller) -> None:
    thread = ada.session(title="Kitchen")
    address = f"/api/sessions/{thread}/"
    before = ada.get(address)
    toggle(ada, on=True)
    send(ada, thread, "hello")
    assert ada.get(address).json() == before.json()
    assert ada.get(address).headers["ETag"] == before.headers["ETag"]
    assert ada.get(f"/api/sessions/{primary(ada)}/").json()["state"] == "active"
    renamed = ada.patch(address, {"title": "Cellar"}, If_Match=before.headers["ETag"])
    assert renamed.json()["title"] == "Cellar"
    assert ada.get(f"/api/sessions/{primary(ada)}/").json()["title"] == "Primary"


def test_a_repeated_message_is_one_turn_despite_mode_toggles(ada: Caller) -> None:
    thread = ada.session()
    for on in (False, True):
        toggle(ada, on=on)
        first = send(ada, thread, "once", f"key {on}")
        for mode in (on, not on, on):
            toggle(ada, on=mode)
            assert send(ada, thread, "once", f"key {on}")["id"] == first["id"]
            path = f"/api/sessions/{thread}/messages/"
            again = ada.post(path, {"content": "other"}, Idempotency_Key=f"key {on}")
            problem(again, 422, "idempotency_mismatch")
    assert Turn.objects.count() == 2


def test_two_threads_of_one_session_may_use_the_same_keys(ada: Caller) -> None:
    threads = ada.session(), ada.session()
    toggle(ada, on=True)
    longest = "k" * 200
    ids = {send(ada, each, "yes", longest)["id"] for each in (*threads, primary(ada))}
    assert len(ids) == 3
    assert {send(ada, each, "yes", longest)["id"] for each in (*threads, primary(ada))} == ids


def test_on_busy_looks_at_the_primary_session(ada: Caller) -> None:
    one, other = ada.session(), ada.session()
    send(ada, one, "waits in the thread's own session")
    toggle(ada, on=True)
    first = send(ada, one, "the primary is idle", on_busy="reject")
    refused = ada.post(f"/api/sessions/{other}/messages/", {"content": "x", "on_busy": "reject"})
    problem(refused, 409, "session_busy")
    cancel = f"/api/turns/{first['id']}/cancel/"
    assert ada.post(cancel).json()["state"] == "cancelled"
    problem(ada.post(cancel), 409, "turn_ended")
    assert send(ada, other, "now", on_busy="reject")["session"] == primary(ada)


@pytest.mark.parametrize("state", [SessionState.ARCHIVED, SessionState.DELETING])
def test_a_closed_thread_and_one_whose_primary_is_being_deleted_feed_nothing(ada: Caller, state: str) -> None:
    thread = ada.session()
    toggle(ada, on=True)
    since = "2026-11-21T00:00:00Z" if state == SessionState.DELETING else None
    Session.objects.filter(pk=thread).update(state=state, deleting_since=since)
    problem(ada.post(f"/api/sessions/{thread}/messages/", {"content": "x"}), 409, "session_closed")
    asked = {"message": "x", "schedule": {"kind": "every", "seconds": 60}}
    problem(ada.post(f"/api/sessions/{thread}/automations/", asked), 409, "session_closed")
    other = ada.session()
    Session.objects.filter(pk=primary(ada)).update(state="deleting", deleting_since="2026-11-21T00:00:00Z")
    problem(ada.post(f"/api/sessions/{other}/messages/", {"content": "x"}), 409, "session_closed")
    assert not Turn.objects.exists()
    assert not CronJob.objects.filter(system_event="").exists()


def test_anothers_thread_does_not_exist_and_anothers_mode_changes_nothing(ada: Caller, bob: Caller) -> None:
    ada.agent("second")
    thread, elsewhere, theirs = ada.session(), ada.session("second"), bob.session()
    toggle(bob, on=True)
    assert send(ada, thread, "mine")["session"] == thread
    assert send(bob, theirs, "theirs")["session"] == primary(bob)
    for part in ("messages", "turns", "events", "mailbox", "automations"):
        problem(ada.get(f"/api/sessions/{theirs}/{part}/"), 404, "not_found")
    problem(ada.post(f"/api/sessions/{theirs}/messages/", {"content": "x"}), 404, "not_found")
    toggle(ada, on=True)
    assert send(ada, elsewhere, "another agent of mine")["session"] == elsewhere


@REAL
def test_deleting_a_thread_checks_and_removes_only_its_own_automations(ada: Caller) -> None:
    thread, home = ada.session(), primary(ada)
    say(home, "of the primary")
    old = ada.automation(thread, name="old")
    toggle(ada, on=True)
    new = ada.automation(thread, name="new")
    turn = send(ada, thread, "hello")
    address = f"/api/sessions/{thread}/"
    blocked = ada.delete(address)
    in_the_way = {"automations": [{"id": old["id"], "name": "old", "enabled": True}]}
    told = {"deleted": False, "blocked_by_automations": True} | in_the_way
    assert (blocked.status_code, blocked.json()) == (409, told)
    gone = ada.delete(f"{address}?delete_automations=true").json()
    assert gone == {"deleted": True, "deleted_automations": [old["id"]]}
    problem(ada.get(f"{address}messages/"), 404, "not_found")
    assert listed(ada, home, "automations") == [new["id"]]
    assert listed(ada, home, "turns") == [turn["id"]]
    assert listed(ada, home, "messages", "content") == ["of the primary"]
    problem(ada.delete(f"/api/sessions/{home}/"), 409, "primary_session")


def run(session: str) -> None:
    run_turn(Session.objects.get(pk=session), a_worker())


def shown(caller: Caller, session: str, query: str = "") -> list[tuple[str, str | None]]:
    """Each message that the session shows, page by page: its first line, and the thread that it is marked with."""
    rows = walked(caller, f"/api/sessions/{session}/messages/{query}")
    return [(row["content"].splitlines()[0], row["thread"]) for row in rows]


@REAL
def test_a_threads_own_messages_appear_marked_in_order_while_unified(ada: Caller) -> None:
    thread, other, home = ada.session(), ada.session(), primary(ada)
    say(home, "before")
    Session.objects.filter(pk=home).update(last_seq=1)
    say(thread, "the thread's own before")
    Session.objects.filter(pk=thread).update(last_seq=1)
    old = ada.automation(thread, name="old")
    message = later(Session.objects.get(pk=thread), "Take the cake out.")
    toggle(ada, on=True)
    send(ada, thread, "one")
    run(home)
    due(message)
    fire_due_messages()
    JobClock.objects.filter(job=old["id"]).update(next_run_at="2026-01-01T00:00:00Z")
    fire_due_jobs()
    waiting = Turn.objects.get(session_id=thread, kind="automation")
    assert waiting.pk in listed(ada, thread, "turns"), "what waits is seen, too"
    run(thread)
    run(thread)
    send(ada, thread, "two")
    run(home)
    texts = shown(ada, thread)
    assert [each for each in texts if each[1]] == [
        ("Take the cake out.", thread),
        ("Scheduled automation triggered: old", thread),
        (texts[5][0], thread),
    ]
    assert [text for text, _ in texts[:2]] == ["before", "one"]
    assert texts[6] == ("two", None)
    for elsewhere in (other, home):
        assert shown(ada, elsewhere) == [each for each in texts if each[1] is None]
    for size in (1, 2, 3):
        assert shown(ada, thread, f"?page_size={size}") == texts
    page = ada.get(f"/api/sessions/{thread}/messages/?page_size=5").json()
    next_page = ada.get(page["next"]).json()
    assert ada.get(next_page["previous"]).json()["results"] == page["results"]
    kinds = [turn.kind for turn in Turn.objects.filter(pk__in=listed(ada, thread, "turns")).order_by("pk")]
    assert kinds == ["message", "scheduled_message", "automation", "message"]
    assert len(listed(ada, other, "turns")) == 2
    told = Event.objects.filter(session_id=home, type="status").values_list("content", "turn_id")
    assert list(told) == [({"thread": thread}, None)] * 2, "its windows are told, without text"
    toggle(ada, on=False)
    own = [text for text, mark in texts if mark]
    assert shown(ada, thread) == [(text, None) for text in ["the thread's own before", *own]]
    toggle(ada, on=True)
    assert shown(ada, thread) == texts
    problem(ada.get(f"/api/sessions/{thread}/messages/?cursor=cD0xLng%3D"), 400, "bad_cursor")
