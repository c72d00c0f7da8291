"""Asking an agent and its appointments by the SDK's client, on a real web process and worker."""

import asyncio
import re
from typing import Any

import pytest
from django.db.models.functions import Now
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from mcp import Client

from agent_core.types import NOTES, Ended
from automations.models import Attention, CronJob, RunRecord, RunState
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import ConsentQuestion, Session, Turn
from sessions_app.reads.usage import BY
from tests.admin.conftest import make_turn
from tests.api.conftest import Site
from tests.automations.jobs.made import past_run
from tests.automations.mcp_server.conftest import McpCaller
from tests.fleet import until
from tests.tokens import token_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


def called(caller: McpCaller, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """What each of the calls came to, in one connection."""

    async def work(client: Client) -> list[Any]:
        return [await client.call_tool(name, given) for name, given in calls]

    found: list[Any] = caller.talk(work)
    return found


def test_tools_are_listed_and_described(ada: McpCaller) -> None:
    for mode in ("auto", "legacy"):
        listed = ada.talk(lambda client: client.list_tools(), mode=mode)
        found = {tool.name: tool for tool in listed.tools}
        assert {"ask", "schedule", "explain", "skip_next", "read_mailbox"} <= found.keys()
        assert found["explain"].annotations.read_only_hint is True
        assert found["cancel_appointment"].annotations.destructive_hint is True
        assert found["ask"].input_schema["additionalProperties"] is False
        for tool in found.values():
            for each in tool.input_schema["properties"].values():
                assert "default" not in each or Draft202012Validator(each).is_valid(each["default"]), each


@pytest.mark.rule("3.6")
def test_an_answer_that_is_not_whole_says_so(ada: McpCaller) -> None:
    given = {"message": "hello [[ends:length]][[reply:Half]]"}
    found = ada.talk(lambda client: client.call_tool("ask", given))
    assert (found.structured_content["answer"], found.structured_content["ended_by"]) == ("Half", "length")
    assert found.content[0].text == f"Half\n\n({NOTES[Ended.LENGTH]})"


def test_a_long_answer_is_read_later_by_its_turn(ada: McpCaller, site: Site) -> None:
    found = ada.call("ask", {"message": "[[hold:a]] [[reply:At last]]", "wait_seconds": 0})
    assert (found["state"], found["answer"]) == ("working", None)
    site.model.release("a")
    assert ada.call("get_answer", {"turn": found["turn"]})["answer"] == "At last"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_progress_is_told_and_an_aborted_request_leaves_the_turn_alone(
    ada: McpCaller, site: Site, mode: str
) -> None:
    told: list[str | None] = []
    heard = asyncio.Event()
    given = {"message": "[[hold:p]] [[reply:At last]]", "idempotency_key": "k", "wait_seconds": 50}

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)
        heard.set()

    async def abort(client: Client) -> None:
        asked = asyncio.create_task(client.call_tool("ask", given, progress_callback=note))
        await asyncio.wait_for(heard.wait(), 20)
        asked.cancel()

    ada.talk(abort, mode=mode)
    turn = Turn.objects.get()
    assert str(turn.pk) in str(told[0])
    site.model.release("p")
    found = ada.call("ask", given, mode=mode)
    assert (found["turn"], found["answer"]) == (turn.pk, "At last")


def test_a_message_that_is_sent_twice_with_one_key_is_one_turn(ada: McpCaller) -> None:
    given = {"message": "hello [[reply:Hi]]", "idempotency_key": "k1"}
    first, second = ada.call("ask", given), ada.call("ask", given)
    assert first == second
    assert "already used" in ada.refused("ask", given | {"message": "another"})
    meta: Any = {"rondo/idempotencyKey": "k2"}
    twice = [ada.talk(lambda client: client.call_tool("ask", {"message": "x"}, meta=meta)) for _ in range(2)]
    assert len({each.structured_content["turn"] for each in twice}) == 1
    assert Turn.objects.filter(session__owner=ada.user).count() == 2
    ada.call("ask", {"message": "without a key"})
    ada.call("ask", {"message": "without a key"})
    assert Turn.objects.filter(session__owner=ada.user).count() == 4


def test_a_provider_that_refuses_is_an_error_of_the_tool_and_of_the_turn(ada: McpCaller) -> None:
    assert "rejected the request" in ada.refused("ask", {"message": "[[fail:400]]"})
    assert Turn.objects.get().state == "failed"


def test_a_turn_is_stopped(ada: McpCaller, site: Site) -> None:
    found = ada.call("ask", {"message": "[[pause:b]] [[reply:One two three]]", "wait_seconds": 0})
    ada.call("stop", {"turn": found["turn"]})
    until(lambda: Turn.objects.get().state == "cancelled")
    site.model.release("b")
    assert ada.call("get_answer", {"turn": found["turn"]})["state"] == "cancelled"
    assert ada.call("stop", {"turn": found["turn"]})["state"] == "cancelled"  # again: no error, no change


def test_conversations_are_opened_listed_and_read(ada: McpCaller) -> None:
    [agent] = ada.call("list_agents")["agents"]
    given = {"title": "Trip", "idempotency_key": "open"}
    opened = ada.call("open_session", given)["id"]
    assert ada.call("open_session", given)["id"] == opened
    ada.call("ask", {"session": opened, "message": "hello [[reply:Hi]]"})
    assert [each["content"] for each in ada.call("read_session", {"session": opened})["messages"]][1] == "Hi"
    assert ada.call("read_session", {"agent": "demo"})["messages"] == []
    ids = {each["id"]: each["title"] for each in ada.call("list_sessions", {"agent": "demo"})["sessions"]}
    assert ids[opened] == "Trip"
    assert agent["primary_session"] in ids


def test_what_belongs_to_somebody_else_does_not_exist(ada: McpCaller, bob: McpCaller) -> None:
    opened = ada.call("open_session", {})["id"]
    turn = ada.call("ask", {"session": opened, "message": "hello"})["turn"]
    job = ada.call("schedule", {"session": opened, "message": "tea", "every_seconds": 3600})["id"]
    before = Turn.objects.count(), CronJob.objects.count()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("ask", {"session": opened, "message": "hello"}),
        ("get_answer", {"turn": turn}),
        ("stop", {"turn": turn}),
        ("answer_question", {"turn": turn, "question": "q", "answer": "a"}),
        ("read_session", {"session": opened}),
        ("read_mailbox", {"session": opened}),
        ("list_appointments", {"session": opened}),
        ("schedule", {"session": opened, "message": "tea", "every_seconds": 60}),
        ("explain", {"job_id": job}),
        ("skip_next", {"job_id": job}),
        ("retry", {"job_id": job}),
        ("change", {"job_id": job, "gate": None}),
        ("list_runs", {"session": opened}),
        ("pause", {"job_id": job}),
        ("resume", {"job_id": job}),
        ("cancel_appointment", {"job_id": job}),
    ]
    for (name, _), found in zip(calls, called(bob, calls), strict=True):
        assert (found.is_error, "not_found" in found.content[0].text) == (True, True), name
    assert ada.call("list_sessions")["sessions"] != bob.call("list_sessions")["sessions"]
    assert (Turn.objects.count(), CronJob.objects.count()) == before


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("ask", {}, "message: Field required"),
    ("ask", {"message": "   "}, "empty"),
    ("ask", {"message": "a\x00b"}, "NUL"),
    ("ask", {"message": ["hello"]}, "message"),
    ("ask", {"message": "hello", "wait_seconds": 51}, "wait_seconds"),
    ("ask", {"message": "hello", "session": "x" * 36}, "session"),
    ("ask", {"message": "hello", "agent": "nobody"}, "no such agent"),
    ("ask", {"message": "hello", "idempotency_key": "ä"}, "idempotency_key"),
    ("ask", {"message": "hello", "agent": "a\x00"}, "agent: Value error, must not hold a NUL"),
    ("ask", {"message": "hello", "to": "x"}, "to: Extra inputs"),
    ("get_answer", {"turn": 10**30}, "turn"),
    ("get_answer", {"turn": 2**63 - 1}, "no such turn"),
    ("list_sessions", {"limit": 0}, "limit"),
    ("open_session", {"title": "a\nb"}, "line break"),
    ("schedule", {"message": "tea"}, "exactly one of"),
    ("schedule", {"message": "tea", "at": "2999-01-01T10:00", "tz": "Europe/Berlin"}, "tz can only"),
    ("explain", {"job_id": "a\x00"}, "NUL"),
    ("skip_next", {"job_id": "nothing", "slots": 101}, "slots"),
    ("retry", {}, "exactly one of"),
    ("retry", {"run_id": "nothing"}, "no such run"),
    ("change", {"job_id": "nothing", "gate": None}, "no such"),
    ("list_runs", {"attention": "none"}, "attention"),
    ("usage", {"by": "user"}, "by"),
    ("usage", {"since": "2027-01-01"}, "with an offset"),
    ("usage", {"since": "2020-01-01T00:00:00Z"}, "366 days"),
]


def test_bad_arguments_are_refused_and_nothing_is_stored(ada: McpCaller) -> None:
    before = Turn.objects.count(), CronJob.objects.count(), Session.objects.count()

    answers = called(ada, [(name, given) for name, given, _ in BAD])
    for (name, given, words), found in zip(BAD, answers, strict=True):
        said = str(found.content[0].text)
        assert found.is_error, (name, given)
        assert words in said, (name, given)
        assert not re.search(r"constrained|function|\.none", said), "names of Python are shown"
    assert (Turn.objects.count(), CronJob.objects.count(), Session.objects.count()) == before


@pytest.mark.rule("11.1")
def test_an_automation_is_scheduled_with_caps_and_shows_what_it_used(ada: McpCaller) -> None:
    given = {"message": "tea", "every_seconds": 3600}
    made = ada.call("schedule", given | {"limits": {"run": {"tokens": 9}, "day": {"usd": "0.5"}}})
    assert made["limits"]["run"] == {"tokens": 9}
    assert made["limits"]["day"]["spent"] == {"tokens": 0, "usd": "0.000000"}
    assert "bad_limits" in ada.refused("schedule", given | {"limits": {"day": {"usd": "free"}}})
    job = CronJob.objects.get(pk=made["id"])
    used = {"requests": 1, "input_tokens": 70, "usd": "0.020000"}
    for days in range(3):
        past_run(job, days, RunState.SUCCEEDED, usage=used)
    explained = ada.call("explain", {"job_id": job.pk})
    assert (explained["usage"]["runs"], explained["usage"]["input_tokens"]) == (3, 210)
    assert (explained["usage"]["usd"], explained["usage"]["usd_per_run"]) == ("0.060000", "0.020000")
    assert explained["settings"]["limits"] == made["limits"]
    assert explained["settings"]["health"] == made["health"]


@pytest.mark.rule("11.6", "11.7")
def test_a_change_touches_the_given_fields_and_null_clears_them(ada: McpCaller) -> None:
    gate = {"kind": "http_changed", "url": "https://example.org/news"}
    limits = {"run": {"tokens": 9}, "day": {"usd": "0.50"}}
    chosen = {"gate": gate, "limits": limits, "max_output_tokens": 100, "allow_tools": ["current_time"]}
    made = ada.call("schedule", {"message": "tea", "every_seconds": 3600} | chosen)
    assert made["gate"] == gate
    here = {"job_id": made["id"]}
    assert "bad_limits" in ada.refused("change", here | {"limits": {"day": {"usd": "free"}}})
    assert ada.call("change", here) == made
    unset = {"gate": None, "limits": {"run": None}, "max_output_tokens": None, "allow_tools": None}
    changed = ada.call("change", here | unset | {"message": None, "cron_expr": "0 9 * * *"})
    assert [changed[name] for name in ("gate", "max_output_tokens", "allow_tools")] == [None] * 3
    assert (changed["limits"].keys(), changed["message"]) == ({"day"}, "tea")
    assert changed["schedule"].startswith("every day at 09:00")
    assert ada.call("explain", here)["settings"]["gate"] is None


@pytest.mark.rule("11.3")
def test_runs_are_listed_with_what_they_used_and_by_what_they_need(ada: McpCaller) -> None:
    here = {"job_id": ada.call("schedule", {"message": "tea", "every_seconds": 3600})["id"]}
    job = CronJob.objects.select_related("session").get(pk=here["job_id"])
    past_run(job, 3, RunState.FAILED, "model_auth")
    good = past_run(job, 2, RunState.SUCCEEDED)
    empty = past_run(job, 1, RunState.SUCCEEDED)
    RunRecord.objects.filter(pk=empty.pk).update(attention="empty", usage={"requests": 1, "usd": "0.010000"})
    runs = ada.call("list_runs")["runs"]
    assert [(each["state"], each["reason"]) for each in runs] == [
        ("succeeded", None),
        ("succeeded", None),
        ("failed", "model_auth"),
    ]
    assert [each["run_id"] for each in runs[:2]] == [empty.pk, good.pk]
    [shown] = ada.call("list_runs", {"attention": "empty", "agent": "demo", "state": "succeeded"})["runs"]
    assert (shown["run_id"], shown["automation"], shown["attention"]) == (empty.pk, job.pk, "empty")
    assert shown["usage"]["usd"] == "0.010000"
    assert ada.call("explain", here)["last"][0]["attention"] == "empty"
    takes = {tool.name: tool for tool in ada.talk(lambda client: client.list_tools()).tools}
    known = takes["list_runs"].input_schema["properties"]
    assert set(known["attention"]["enum"]) == {*Attention.values} - {""}
    assert set(known["state"]["enum"]) == {*RunState.values}
    assert set(takes["usage"].input_schema["properties"]["by"]["enum"]) == {*BY}


@pytest.mark.rule("11.1", "11.4")
def test_usage_is_summed_and_open_questions_are_listed(ada: McpCaller, bob: McpCaller) -> None:
    asked = ada.call("ask", {"message": "hello [[reply:Hi]]"})
    assert asked["usage"]["requests"] == 1
    for by in BY:
        found = ada.call("usage", {"by": by})
        assert (found["by"], found["complete"]) == (by, True)
    [row] = ada.call("usage")["results"]
    assert (row["key"], row["calls"]) == ("demo", 1)
    assert row["input_tokens"] == asked["usage"]["input_tokens"]
    assert ada.call("usage", {"until": "2026-01-01T00:00:00+01:00"})["results"] == []
    turn = Turn.objects.get(pk=asked["turn"])
    asked_for = {"calls": [{"name": "erase", "arguments": {}}], "asked_seq": 1, "asked_at": Now()}
    ConsentQuestion.objects.create(id="q", session=turn.session, turn=turn, text="May I?", **asked_for)
    [question] = ada.call("list_questions")["questions"]
    assert (question["question_id"], question["question"], question["run"]) == ("q", "May I?", None)
    assert ada.call("list_questions", {"state": "granted"})["questions"] == []
    assert [bob.call("usage")["results"], bob.call("list_questions")["questions"]] == [[], []]


@pytest.mark.rule("11.2")
def test_the_last_run_is_tried_again_if_it_failed(ada: McpCaller) -> None:
    here = {"job_id": ada.call("schedule", {"message": "tea", "every_seconds": 3600})["id"]}
    assert "run_not_failed" in ada.refused("retry", here)
    job = CronJob.objects.select_related("session").get(pk=here["job_id"])
    assert job.session is not None
    run = past_run(job, 2, RunState.FAILED, "model_auth", turn=make_turn(job.session))
    past_run(job, 1, RunState.SKIPPED, "backoff")
    tried = ada.call("retry", here)
    assert (tried["automation"], tried["run_id"], tried["attempt"]) == (job.pk, run.pk, 2)
    assert "run_not_failed" in ada.refused("retry", here)
    earlier = past_run(job, 3, RunState.FAILED, "model_auth", turn=make_turn(job.session))
    assert ada.call("retry", {"run_id": earlier.pk})["attempt"] == 2


def test_the_next_runs_are_skipped_once_with_a_key(ada: McpCaller) -> None:
    given = {"message": "tea", "cron_expr": "0 9 * * *", "tz": "Europe/Berlin", "idempotency_key": "tea"}
    made = ada.call("schedule", given)
    assert ada.call("schedule", given) == made
    assert CronJob.objects.filter(session__owner=ada.user).count() == 1
    skip = {"job_id": made["id"], "idempotency_key": "skip"}
    skipped = ada.call("skip_next", skip)
    assert skipped["next_run_at"] > made["next_run_at"]
    assert ada.call("skip_next", skip) == skipped
    assert RunRecord.objects.get().reason == "skipped_by_user"
    later = ada.call("skip_next", {"job_id": made["id"], "slots": 2})
    assert later["next_run_at"] > skipped["next_run_at"]
    appointments = ada.call("list_appointments")["appointments"]
    [listed] = [each for each in appointments if each["kind"] == "automation"]
    assert (listed["id"], listed["next"][0]) != (made["id"], made["next_run_at"])
    here = {"job_id": made["id"]}
    told = ada.call("explain", here)
    assert (told["schedule"], told["last"][0]["state"]) == ("every day at 09:00 (Europe/Berlin)", "skipped")
    assert [ada.call("pause", here)["enabled"] for _ in range(2)] == [False, False]
    assert "nothing_to_skip" in ada.refused("skip_next", here)
    assert ada.call("resume", here)["enabled"] is True
    assert ada.call("cancel_appointment", here) == {"deleted": made["id"]}
    assert "not_found" in ada.refused("cancel_appointment", here)


def test_the_mailbox_is_read_without_acknowledging_it(ada: McpCaller) -> None:
    session = Session.objects.get(agent__owner=ada.user, key="unified:default")
    ready = NewUpdate(event_type="job_completed", summary="The report is ready.", source_key="job:x")
    deposit(session.pk, ready)
    for _ in range(2):
        [update] = ada.call("read_mailbox")["updates"]
        assert (update["summary"], update["state"]) == ("The report is ready.", "pending")
    assert token_of(ada.user) == ada.token
