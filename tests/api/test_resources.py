"""Agents, documents, sessions, automations: the shapes of the contract, changes, deletion in two steps."""

from typing import Any

import pytest
from django.db.models.functions import Now

from automations.models import CronJob, JobClock
from sessions_app.models import Agent, Document, Event, MailboxEvent, Message, Session
from tests.api.conftest import Caller, for_each, made, problem
from tests.api.test_lists import NOON, found, run

pytestmark = pytest.mark.django_db


def test_an_agent_is_made_with_its_primary_session(ada: Caller) -> None:
    asked = {"name": "second", "timezone": "Asia/Shanghai", "policy": {"max_attempts": 1}}
    response = ada.post("/api/agents/", asked)
    agent = made(response)
    primary = Session.objects.get(agent__name="second")
    defaults = {"model": "offline", "engine": "chat", "unified_session": False, "routine_limit": 20}
    assert (asked | defaults | {"revision": 0, "primary_session": str(primary.pk)}).items() <= agent.items()
    assert primary.type == "primary"
    assert response.headers["Location"] == "/api/agents/second/"
    again = ada.get("/api/agents/second/")
    assert again.json() == agent
    assert again.headers["ETag"] == '"0"'
    assert found(ada, "/api/agents/", "name") == ["demo", "second"]


def test_a_patch_merges_heartbeat_and_policy(ada: Caller) -> None:
    ada.patch("/api/agents/demo/", {"policy": {"max_attempts": 2, "timeout_seconds": 30}})
    changes = {"heartbeat": {"active_hours": [22, 6]}, "policy": {"max_attempts": None, "max_tool_calls": 3}}
    changed = ada.patch("/api/agents/demo/", changes).json()
    beat = {"enabled": False, "interval_seconds": 1800, "active_hours": [22, 6], "ack_max_chars": 300}
    assert changed["heartbeat"] == beat
    assert changed["policy"] == {"timeout_seconds": 30, "max_tool_calls": 3}
    assert changed["revision"] == 2


SECRET = "secret-of-the-server-4711"
DOCS: dict[str, Any] = {"url": "https://docs.example.org/mcp", "headers": {"Authorization": SECRET}}


@pytest.mark.rule("3.5")
def test_mcp_servers_are_merged_by_name_and_their_headers_never_shown(ada: Caller) -> None:
    shown = DOCS | {"headers": {"Authorization": "***"}, "trusted": False, "own": False}
    asked = {"name": "other", "mcp_servers": {"docs": DOCS, "maps": {"url": "https://maps.example.org/"}}}
    first, again = (ada.post("/api/agents/", asked, Idempotency_Key="k") for _ in range(2))
    assert again.content == first.content
    assert made(first)["mcp_servers"]["docs"] == shown
    address, mail = "/api/agents/other/", {"url": "https://mail.example.org/", "trusted": True, "own": True}
    merged = ada.patch(address, {"mcp_servers": {"maps": None, "mail": mail}}).json()["mcp_servers"]
    assert merged == {"docs": shown, "mail": mail | {"headers": {}}}
    ada.patch(address, {"mcp_servers": merged})  # what was shown can be sent back
    stored = Agent.objects.get(name="other").mcp_servers
    assert stored["docs"]["headers"] == {"Authorization": SECRET}
    for path in ("/api/agents/", address):
        assert SECRET not in ada.get(path).content.decode()


def test_a_document_is_written_whole_and_counts_its_revisions(ada: Caller) -> None:
    address = "/api/agents/demo/documents/USER.md/"
    empty = ada.get(address)
    assert empty.json() == {"name": "USER.md", "content": "", "revision": 0}
    assert ada.put(address, {"content": "likes tea"}, If_Match='"0"').json()["revision"] == 1
    assert ada.put(address, {"content": ""}).json() == {"name": "USER.md", "content": "", "revision": 2}
    names = ["AGENTS.md", "USER.md", "MEMORY.md", "SKILLS.md", "HEARTBEAT.md"]
    assert found(ada, "/api/agents/demo/documents/", "name") == names
    problem(ada.put("/api/agents/demo/documents/OTHER.md/", {"content": "x"}), 404, "not_found")
    assert Document.objects.count() == 1


@pytest.mark.usefixtures("telegram")
def test_the_chat_of_a_session_is_given_and_changed(ada: Caller) -> None:
    asked = {"key": "telegram:42", "channel_meta": {"topic": "tea", "thread": 7, "quiet": True}}
    session = made(ada.post("/api/sessions/", {"agent": "demo"} | asked))
    expected = asked | {"channel": "telegram", "address": "42", "chat_type": "private", "type": "sub"}
    assert expected.items() <= session.items()
    assert ada.get("/api/sessions/?key=telegram:42").json()["results"] == [session]
    address = f"/api/sessions/{session['id']}/"
    changed = ada.patch(address, {"channel_meta": {"thread": 8}, "chat_type": "group"}).json()
    assert (changed["chat_type"], changed["channel_meta"]) == ("group", {"thread": 8})
    for meta in ({"a": [1]}, {"a": None}, {"a": 1.5}, {"": 1}, {"a": "x" * 501}, {"a": "b\n"}, {"a": 2**63}):
        problem(ada.patch(address, {"channel_meta": meta}), 400, "bad_channel_meta")
    many = dict.fromkeys(map(str, range(21)), 1)
    problem(ada.patch(address, {"channel_meta": many}), 400, "bad_channel_meta")
    problem(ada.patch(address, {"channel_meta": "x"}), 400, "bad_input")
    problem(ada.patch(address, {"chat_type": "crowd"}), 400, "bad_input")
    web = f"/api/sessions/{ada.session()}/"
    problem(ada.patch(web, {"channel_meta": {"thread": 8}}), 400, "bad_channel_meta")
    assert ada.get(address).json()["channel_meta"] == {"thread": 8}
    assert made(ada.post("/api/sessions/", {"agent": "demo", "key": "telegram:-100"}))["chat_type"] == "group"


def test_a_conversation_is_archived_and_opened_again(ada: Caller) -> None:
    session = ada.session()
    ada.automation(session)
    address, messages = f"/api/sessions/{session}/", f"/api/sessions/{session}/messages/"
    waiting = ada.post(messages, {"content": "hello"}).json()["id"]
    for _ in range(2):  # the second time nothing changes
        assert ada.patch(address, {"archived": True, "title": "Old"}).json()["state"] == "archived"
    assert ada.get(f"/api/turns/{waiting}/").json()["state"] == "cancelled"
    problem(ada.post(messages, {"content": "hello"}), 409, "session_closed")
    for _ in range(2):
        assert ada.patch(address, {"archived": False}).json()["state"] == "idle"
    assert ada.post(messages, {"content": "hello"}).status_code == 202
    told = Event.objects.filter(session_id=session, type="status").order_by("id")
    assert [event.content for event in told] == [{"status": "archived"}, {"status": "unarchived"}]
    problem(ada.patch(address, {"archived": "yes"}), 400, "bad_input")
    primary = ada.get("/api/agents/demo/").json()["primary_session"]
    problem(ada.patch(f"/api/sessions/{primary}/", {"archived": True}), 409, "primary_session")
    Session.objects.filter(pk=session).update(type="job", state="archived")
    problem(ada.patch(address, {"archived": False, "title": "Mine"}), 400, "internal_session")
    assert ada.get(address).json()["title"] == "Old", "all of a change or nothing"
    Session.objects.filter(pk=session).update(type="sub", state="deleting", deleting_since=Now())
    problem(ada.patch(address, {"archived": False}), 409, "session_closed")


def test_an_automation_is_made_with_its_defaults_and_changed(ada: Caller) -> None:
    session = ada.session(key="web:1")
    schedule = {"kind": "cron", "expr": "0 9 * * *", "timezone": "Asia/Shanghai"}
    asked = {"message": "check the repo", "schedule": schedule}
    response = ada.post(f"/api/sessions/{session}/automations/", asked)
    job = made(response)
    assert response.headers["ETag"] == '"1"'
    assert job["next_run_at"].endswith("T01:00:00Z")
    given = asked | {"name": "check the repo", "session": session, "session_key": "web:1"}
    defaults = {"enabled": True, "execution_mode": "session", "overlap": "skip", "catch_up": "one"}
    defaults |= {"max_retry": 0, "source": "manual", "state": "scheduled", "revision": 1}
    assert (given | defaults).items() <= job.items()
    changes = {"schedule": {"kind": "every", "seconds": 60}, "enabled": False}
    changed = ada.patch(response.headers["Location"], changes, If_Match='"1"').json()
    assert (changes | {"state": "scheduled", "next_run_at": None, "revision": 2}).items() <= changed.items()


ENDED = {"next_run_at": None}
ONCE = {"schedule_kind": "at", "every_seconds": None, "anchor": None, "at": "2026-11-21T00:00:00Z"}
STATES: list[Any] = [  # changes of an automation's clock and of itself, the state of its run, its own state
    ({}, {}, None, "scheduled"),
    ({}, {}, "running", "running"),
    ({}, {"fault": "odd"}, None, "failed"),
    ({}, {"enabled": False}, None, "scheduled"),
    (ENDED, {}, "succeeded", "done"),
    (ENDED, {}, "failed", "done"),
    (ENDED, {"max_runs": 1}, "failed", "failed"),
    (ENDED, ONCE, "failed", "failed"),
    (ENDED, ONCE, "succeeded", "done"),
    (ENDED, ONCE, "queued", "scheduled"),
    (ENDED, {}, "queued", "scheduled"),
    (ENDED, {"fault": "odd"}, None, "failed"),
]


@pytest.mark.rule("4.4")
def test_an_automations_state_follows_its_clock_and_runs(ada: Caller) -> None:
    session = ada.session()

    def check(clock: dict[str, None], changes: dict[str, Any], state_of_run: str | None, state: str) -> None:
        job = CronJob.objects.get(pk=ada.automation(session)["id"])
        JobClock.objects.filter(job=job).update(**clock)
        CronJob.objects.filter(pk=job.pk).update(**changes)
        if state_of_run:
            is_open = state_of_run in {"queued", "running"}
            run(job.pk, 1, state=state_of_run, finished_at=None if is_open else NOON)
        shown = ada.get(f"/api/automations/{job.pk}/").json()
        assert (shown["state"], shown["last_status"]) == (state, state_of_run)
        assert shown["pending"] == (state_of_run == "queued")
        for each in ("scheduled", "running", "done", "failed"):
            assert found(ada, f"/api/automations/?state={each}") == ([job.pk] if each == state else [])
        job.delete()

    for_each(STATES, check)


def test_a_preview_says_when_and_in_words(ada: Caller) -> None:
    schedule = {"kind": "cron", "expr": "0 9 * * *", "timezone": "Asia/Shanghai"}
    asked = {"schedule": schedule, "after": "2026-12-01T00:00:00Z", "count": 2}
    assert ada.post("/api/schedules/preview/", asked).json() == {
        "next": ["2026-12-01T09:00:00+08:00", "2026-12-02T09:00:00+08:00"],
        "words": "every day at 09:00 (Asia/Shanghai)",
        "warnings": [],
    }
    problem(ada.post("/api/schedules/preview/", asked | {"count": 51}), 400, "bad_input")
    problem(ada.post("/api/schedules/preview/", asked | {"after": "2026-12-01T00:00:00"}), 400, "bad_input")


def test_a_preview_reads_what_names_no_zone_in_the_agents(ada: Caller, bob: Caller) -> None:
    assert ada.post("/api/agents/", {"name": "tokyo", "timezone": "Asia/Tokyo"}).status_code == 201
    asked = {"schedule": {"kind": "at", "at": "2099-01-01T09:00"}, "agent": "tokyo"}
    shown = ada.post("/api/schedules/preview/", asked).json()
    assert shown["next"] == ["2099-01-01T09:00:00+09:00"]
    assert shown["words"] == "once at 2099-01-01 09:00 (Asia/Tokyo)"
    at_nine = {"schedule": {"kind": "cron", "expr": "0 9 * * *"}}
    assert ada.post("/api/schedules/preview/", at_nine).json()["words"].endswith("(UTC)")
    problem(bob.post("/api/schedules/preview/", asked), 404, "not_found")


def test_the_mailbox_shows_what_waits_and_what_was_dropped(ada: Caller) -> None:
    session = ada.session()
    turn = ada.post(f"/api/sessions/{session}/messages/", {"content": "hello"}).json()["id"]
    at: dict[str, Any] = {"target_id": session, "event_type": "job_completed"}
    then, files = "2026-11-21T00:00:00Z", ["report.md", "plot.png"]
    for more in (
        {"detail": "all of it", "source_key": "unified:default"},
        {"source_key": "job:gone:1", "dropped_at": then, "reason": "stale"},
        {"artifacts": files, "acknowledged_at": then, "acknowledged_by_id": turn},
    ):
        MailboxEvent.objects.create(summary="x", **at | more)
    shown, dropped, pending = ada.get(f"/api/sessions/{session}/mailbox/").json()["results"]
    assert (shown["state"], shown["reason"], shown["turn"]) == ("acknowledged", None, turn)
    assert (shown["artifacts"], pending["artifacts"]) == (["report.md", "plot.png"], [])
    assert (dropped["state"], dropped["reason"], dropped["turn"]) == ("dropped", "stale", None)
    assert (pending["state"], pending["reason"], pending["detail"]) == ("pending", None, "all of it")
    primary = Session.objects.get(key="unified:default", owner__username="ada")
    assert (pending["source_key"], pending["source_session"]) == ("unified:default", str(primary.pk))
    assert (dropped["source_key"], dropped["source_session"]) == ("job:gone:1", None)


def test_the_history_shows_tool_calls_and_their_results(ada: Caller) -> None:
    session = ada.session()
    call = {"id": "c1", "name": "remember", "arguments": {"key": "tea"}}
    result = {"id": "c1", "name": "remember", "outcome": "failed", "output": "No room."}
    entries: list[tuple[str, str, dict[str, Any]]] = [
        ("user", "remember tea", {}),
        ("assistant", "", {"calls": [call | {"unparsed": "{"}]}),
        ("tool", "", {"results": [result | {"error_class": "Full"}]}),
        ("assistant", "I could not.", {}),
    ]
    for seq, (role, content, parts) in enumerate(entries, 1):
        Message.objects.create(session_id=session, seq=seq, role=role, content=content, parts=parts)
    shown = ada.get(f"/api/sessions/{session}/messages/").json()["results"]
    assert [(each["role"], each["content"]) for each in shown] == [entry[:2] for entry in entries]
    nothing: dict[str, Any] = {"calls": [], "results": []}
    expected = [nothing, nothing | {"calls": [call]}, nothing | {"results": [result]}, nothing]
    assert [each["parts"] for each in shown] == expected


@pytest.mark.rule("4.5")
def test_skipping_answers_with_the_next_run_once_for_each_key(ada: Caller) -> None:
    job = ada.automation(ada.session())
    address, key = f"/api/automations/{job['id']}/skip/", {"Idempotency_Key": "k", "If_Match": '"1"'}
    first = ada.post(address, {"slots": 1}, **key)
    assert first.status_code == 200
    assert first.headers["ETag"] == '"2"'
    assert first.json()["next_run_at"] > job["next_run_at"]
    assert ada.post(address, {"slots": 1}, **key).json() == first.json()
    problem(ada.post(address, {"slots": 1}, If_Match='"1"'), 412, "revision_conflict")
    problem(ada.post(address, {}), 400, "bad_skip")
    [run] = ada.get(f"/api/automations/{job['id']}/runs/").json()["results"]
    assert (run["state"], run["reason"], run["count"]) == ("skipped", "skipped_by_user", 1)
    paused = ada.patch(f"/api/automations/{job['id']}/", {"paused_until": "2098-12-31T23:00:00Z"}).json()
    assert paused["paused_until"] == "2098-12-31T23:00:00Z"
    assert paused["next_run_at"] >= paused["paused_until"]
    problem(ada.post(address, {"slots": 1}), 409, "nothing_to_skip")
