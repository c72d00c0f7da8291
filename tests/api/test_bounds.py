"""Every input has a bound: on size, depth, count, and on the errors that are told of it (rule 10.0)."""

import json
import tracemalloc
import uuid
from functools import partial
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from automations.models import CronJob
from automations.routines.heartbeat_document import MOST_CHANGED
from automations.routines.reflection import find_intents
from interfaces.http.fields import MOST_ERRORS
from interfaces.http.server.bodies import LONGEST_BODY
from interfaces.http.strict_json import DEEPEST, MOST_VALUES, read_json
from interfaces.web import transcript
from interfaces.web.pages import conversations
from sessions_app.models import ConsentQuestion, ExecutionState, Message, Session, Turn
from sessions_app.queue.receive import LONGEST_MESSAGE
from tests.api.conftest import Caller, for_each, problem
from tests.api.dear import DEAREST, cost, faults, many_keys
from tests.api.test_lists import NOON, pages, turn

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]

BODIES: dict[str, bytes] = {  # whatever the address
    "numbers without end": b"[" + b"1," * (LONGEST_BODY // 2 - 2) + b"1]",
    "brackets without end": b"[" * LONGEST_BODY,
    "quotes without end": b'"' * LONGEST_BODY,
    "escapes without end": b'"' + b"\\\\" * (LONGEST_BODY // 2 - 1) + b'"',
    "a number without end": b"1" * LONGEST_BODY,
    "numbers of full length": b"[" + b",".join([b"1" * 100] * (MOST_VALUES - 2)) + b"]",
    "a key that stands twice at the end": json.dumps(many_keys(LONGEST_BODY, MOST_VALUES - 2)).encode()[:-1]
    + b',"0":0}',
    "a key without end twice": b'{"' + b"k" * 500_000 + b'":1,"' + b"k" * 500_000 + b'":1}',
    "spaces without end": b" " * LONGEST_BODY,
}


def test_a_body_of_no_shape_costs_little(ada: Caller) -> None:
    address = f"/api/sessions/{ada.session()}/memory/"
    wrong = [faults(name, partial(ada.patch, address, body)) for name, body in BODIES.items()]
    assert not any(wrong), wrong


@pytest.mark.full
def test_an_expensive_heartbeat_document_is_cheap_to_write_and_read(ada: Caller) -> None:
    def check(_name: str, content: str) -> None:
        ada.patch("/api/agents/demo/", {"routine_limit": 1_000})
        address = "/api/agents/demo/documents/HEARTBEAT.md/"
        wrong = faults("PUT", partial(ada.put, address, {"content": content}))
        wrong += faults("GET", partial(ada.get, address))
        assert not wrong

    def block(tasks: list[Any]) -> str:
        return f"```json\n{json.dumps({'tasks': tasks})}\n```"

    for_each(
        {
            "breaks": "\n" * 199_999,
            "fences": "```json\n```\n" * 80_000,
            "fences that stay open": "````json\n```\n" * 15_000,
            "objects": block([{}] * 200_000),
            "unknown fields": block([{f"titl{n}": 0 for n in range(20_000)}]),
            "tasks": block([{"title": f"t{n}"} for n in range(1_000)]),
            "the same task": block([{"title": "t", "id": "a"}] * 1_000),
            "a deep block": "```json\n" + "[" * 100_000 + "\n```",
        }.items(),
        check,
    )


def test_one_heartbeat_document_changes_a_bounded_number_of_routines(ada: Caller) -> None:
    address = "/api/agents/demo/documents/HEARTBEAT.md/"
    ada.patch("/api/agents/demo/", {"routine_limit": 1_000})

    def put(*titles: str) -> Any:
        tasks = [{"title": each, "schedule": "1d"} for each in titles]
        return ada.put(address, {"content": f"```json\n{json.dumps({'version': 2, 'tasks': tasks})}\n```"})

    names = [f"t{number}" for number in range(MOST_CHANGED + 1)]
    refused = problem(put(*names), 413, "too_large")
    assert refused["detail"] == "the text changes 51 routines; one text may change 50"
    assert not CronJob.objects.filter(kind="agent_turn").exists()
    assert put(*names[:-1]).status_code == 200
    assert put(*names).status_code == 200  # what stays as it is is not counted
    assert CronJob.objects.filter(kind="agent_turn", enabled=True).count() == len(names)
    problem(put(), 413, "too_large")


def test_a_list_tells_of_its_first_errors_alone(ada: Caller) -> None:
    address = f"/api/sessions/{ada.session()}/memory/"
    told = problem(ada.patch(address, {"open_loops": [1] * 900}), 400, "bad_input")
    assert list(told["errors"]) == [f"open_loops.{number}" for number in range(MOST_ERRORS)]
    given = {"open_loops": [1] * 900, "important_facts": [1] * 900}
    both = problem(ada.patch(address, given), 400, "bad_input")
    assert len(both["errors"]) == MOST_ERRORS
    assert both["detail"].endswith("(20 more fields are not shown.)")
    long = problem(ada.patch(address, {"open_loops": [1] * 1_001}), 400, "bad_input")
    assert long["errors"] == {"open_loops": ["A list has at most 1,000 items, this one 1,001."]}


def test_unknown_fields_are_told_of_in_part_and_counted(ada: Caller) -> None:
    unknown = {f"k{n:04}": 0 for n in range(5_000)}
    told = problem(ada.patch("/api/agents/demo/", unknown), 400, "bad_input")
    assert list(told["errors"]) == [*(f"k{n:04}" for n in range(MOST_ERRORS))]
    told = problem(ada.patch("/api/agents/demo/", {"heartbeat": {"k" * 100_000: 0}}), 400, "bad_input")
    assert told["errors"] == {f"heartbeat.{'k' * 60}": ["This field is not known."]}


def test_an_error_shows_a_part_of_what_was_sent(ada: Caller) -> None:
    def check(fields: dict[str, Any], words: str) -> None:
        answer = ada.patch("/api/agents/demo/", fields)
        assert answer.status_code == 400
        assert words in answer.json()["detail"] or "xxxx" in answer.json()["detail"]
        assert len(answer.content) < 2_000

    rows: list[Any] = [
        ({"engine": "x" * 900_000}, "is not a valid choice"),
        ({"engine": "x" * 200}, "is not a valid choice"),
        ({"policy": {"x" * 900_000: 1}}, "Unknown policy key"),
        ({"policy": {str(n): 1 for n in range(101)}}, "at most 100 keys, this one 101"),
        ({"mcp_servers": {"x" * 900_000: {}}}, "is not a server name"),
        ({"mcp_servers": {"one": {"x" * 900_000: 1}}}, "has no setting"),
        ({"timezone": "x" * 900_000}, "unknown time zone"),
    ]
    for_each(rows, check)


def test_json_that_is_not_read() -> None:
    def check(text: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            read_json(text)

    rows: list[Any] = [
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "more than 32 levels"),
        ('{"a":' * (DEEPEST + 1) + "1" + "}" * (DEEPEST + 1), "more than 32 levels"),
        ("1" * 101, "more than 100 characters"),
        ("1e999", "too large"),
        ("NaN", "not a number"),
        ('{"a": 1, "b": 2, "a": 3}', "'a' occurs twice"),
        ('"\\ud800"', "surrogate"),
        ("[" + "0," * 9_999 + "NaN]", "10,000 values"),  # counted before they are built
        ("[" + "{}," * 5_000 + "0]", "10,000 values"),
    ]
    for_each(rows, check)


def test_json_that_is_read() -> None:
    def check(value: Any) -> None:
        assert read_json(json.dumps(value)) == value

    rows: list[Any] = [
        json.loads("[" * DEEPEST + "]" * DEEPEST),
        [0] * (MOST_VALUES - 1),
        "," * 100_000,
        '[{"' * 50_000,
        "\\" * 3 + '"' * 20_000 + "\\",
        {'a"': ["\\", '"', ",[{"]},
        1e300,
        10**99,
    ]
    for_each(rows, check)


def test_an_endless_line_of_memory_md_is_read_quickly() -> None:
    def check(line: str) -> None:
        times, found = cost(lambda: find_intents(f"{line} [to be registered] soon"), DEAREST)
        assert (len(found), times < DEAREST) == (1, True)

    for_each([f"- a{' ' * 20_000}x", "- " + "[ " * 90_000, "- " + "\u2192 " * 90_000], check)


def test_pages_of_long_messages_are_short_and_link_both_ways(ada: Caller) -> None:
    session = ada.session()
    long: dict[str, Any] = {"session_id": session, "role": "user", "content": "x" * (LONGEST_MESSAGE - 1_000)}
    Message.objects.bulk_create(Message(seq=seq, **long) for seq in range(1, 36))
    Session.objects.filter(pk=session).update(last_seq=35)
    address: str | None = f"/api/sessions/{session}/messages/?page_size=200"
    before: str | None = None
    forth, back = [], []
    while address:
        assert not faults("GET", partial(ada.get, address))
        page = ada.get(address).json()
        forth.append([each["seq"] for each in page["results"]])
        address, before = page["next"], page["previous"]
    assert forth == [[*range(1, 11)], [*range(11, 21)], [*range(21, 31)], [*range(31, 36)]]
    while before:
        page = ada.get(before).json()
        back.append([each["seq"] for each in page["results"]])
        before = page["previous"]
    assert back == [[*range(21, 31)], [*range(11, 21)], [*range(1, 11)]]


def test_what_tools_were_given_and_said_counts_in_a_page(ada: Caller) -> None:
    arguments = {str(number): [1, 2] for number in range(4_000)}
    result = {"id": "1", "name": "x", "outcome": "ok", "output": "x" * 100_000}
    parts = {"calls": [{"id": "1", "name": "x", "arguments": arguments}], "results": [result]}
    session = ada.session()
    Message.objects.bulk_create(
        Message(session_id=session, seq=seq, role="tool", content="", parts=parts) for seq in range(1, 41)
    )
    address = f"/api/sessions/{session}/messages/?page_size=100"
    answer = ada.get(address)
    assert len(answer.content) < 1_200_000
    assert 1 <= len(answer.json()["results"]) <= 10
    assert answer.json()["next"]


LONG = "x" * 400_000


def consent(session: str, number: int, execution: str = "") -> None:
    calls = [{"id": "1", "name": "post", "arguments": {"text": LONG}, "version": "", "used": ""}]
    ConsentQuestion.objects.create(
        id=f"c{number}", session_id=session, execution=execution, turn_id=number, text="May I?", calls=calls,
        asked_seq=number,
    )  # fmt: skip


def test_what_a_list_adds_to_its_rows_counts_in_a_page(ada: Caller) -> None:
    """Three long ones in each list: the reply of a turn or of its host, an execution's consents, open questions."""
    sessions = [ada.session(title=f"long {n}") for n in range(3)]
    host = turn(sessions[0], 1, state="succeeded", finished_at=NOON)
    guest = turn(sessions[0], 2, state="merged", finished_at=NOON, host_id=host)
    last = turn(sessions[0], 3, state="succeeded", finished_at=NOON)
    for seq, each in enumerate((host, last), 1):
        Message.objects.create(session_id=sessions[0], turn_id=each, seq=seq, role="assistant", content=LONG)
    ids = [f"e{number}" for number in range(3)]
    for number, name in enumerate(ids):
        ExecutionState.objects.create(
            id=name, session_id=sessions[0], turn=Turn.objects.get(pk=host), status="completed", request="go"
        )
        consent(sessions[0], 10 + number, name)
        ConsentQuestion.objects.update(state="closed", answered_at=NOON)
    for number, session in enumerate(sessions):
        consent(session, 20 + number)

    def check(address: str, name: str, expected: list[Any]) -> None:
        walked = list(pages(ada, address))
        assert len(walked) == 2, address
        assert [each[name] for page in walked for each in page["results"]] == expected

    rows: list[Any] = [
        (f"/api/sessions/{sessions[0]}/turns/", "id", [last, guest, host]),
        ("/api/turns/", "id", [last, guest, host]),
        (f"/api/sessions/{sessions[0]}/executions/?order=asc", "id", ids),
        ("/api/sessions/?search=long&order=asc", "id", sessions),
    ]
    for_each(rows, check)


@pytest.mark.rule("3.5")
def test_a_session_shows_as_many_whole_questions_as_fit_and_that_more_wait(ada: Caller) -> None:
    session = ada.session()
    for number in range(1, 6):
        consent(session, number)
    plan = ExecutionState.objects.create(
        id="e1", session_id=session, status="waiting_user", request="go", question="Which?", asked_at=Now()
    )
    browser = Client()
    browser.force_login(ada.user)

    def shown() -> list[str]:
        """Answer what is shown, so that the next questions are."""
        answer = ada.get(f"/api/sessions/{session}/")
        waiting = answer.json()["waiting"]
        page = browser.get(f"/sessions/{session}/").content.decode()
        assert len(answer.content) < 1_200_000
        assert len(page) < 1_200_000
        assert all(each["calls"] == [] or each["calls"][0]["arguments"]["text"] == LONG for each in waiting)
        ids = [each["question_id"] or each["execution"] for each in waiting]
        assert [each for each in ("e1", *(f"c{n}" for n in range(5, 0, -1))) if f"ask-{each}" in page] == ids
        is_more = answer.json()["more_waiting"]
        assert is_more == ("More questions wait" in page)
        ConsentQuestion.objects.filter(pk__in=ids).update(state="closed", answered_at=Now())
        ExecutionState.objects.filter(pk__in=ids).update(status="cancelled")
        return [*ids, *(["more"] if is_more else [])]

    found = [shown() for _ in range(4)]
    assert found == [[plan.pk, "c5", "c4", "more"], ["c3", "c2", "more"], ["c1"], []]


def test_an_execution_shows_its_newest_consents_that_fit(ada: Caller) -> None:
    session = ada.session()
    ExecutionState.objects.create(id="e1", session_id=session, status="failed", request="go")
    for number in range(1, 6):
        consent(session, number, "e1")
        ConsentQuestion.objects.update(state="closed", answered_at=NOON)
    for address in ("/api/executions/e1/", f"/api/sessions/{session}/executions/"):
        answer = ada.get(address)
        assert len(answer.content) < 1_200_000
        body = answer.json()
        shown = body["results"][0] if "results" in body else body
        assert [each["question_id"] for each in shown["consents"]] == ["c4", "c5"]
        assert shown["more_consents"]
    ConsentQuestion.objects.exclude(pk="c5").delete()
    shown = ada.get("/api/executions/e1/").json()
    assert ([each["question_id"] for each in shown["consents"]], shown["more_consents"]) == (["c5"], False)


def test_the_list_of_conversations_reads_no_question(ada: Caller) -> None:
    for number in range(1, 6):
        consent(ada.session(), number)
    listed = conversations(ada.user)
    tracemalloc.start()
    try:
        listed = conversations(ada.user)
        assert tracemalloc.get_traced_memory()[1] < len(LONG)
    finally:
        tracemalloc.stop()
    assert [each.is_waiting for each in listed.rows if not each.is_primary] == [True] * 5


def test_a_page_for_people_holds_no_more_than_one_of_a_list(ada: Caller) -> None:
    session = ada.session()
    for seq in range(1, 4):
        Message.objects.create(session_id=session, seq=seq, role="user", content=f"{seq} {LONG}")
    newest = transcript.newest(ada.user, uuid.UUID(session))
    assert [entry.text[0] for entry in newest.entries] == ["2", "3"]
    before = transcript.newest(ada.user, uuid.UUID(session), str(newest.before))
    assert [entry.text[0] for entry in before.entries] == ["1"]
    assert before.before is None
    assert transcript.after(ada.user, uuid.UUID(session), "0") is None
