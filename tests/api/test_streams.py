"""A session's events over real HTTP, from a real worker; in unified mode those of the session that it shows."""

import json
import uuid
from typing import Any

import pytest

from sessions_app.models import Agent, Event, Lane, Session, SessionType, Turn, TurnInput, TurnKind
from sessions_app.sessions.open import open_session
from tests.api.conftest import Stream, Window
from tests.fleet import until
from tests.talk import queue_turn

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    pytest.mark.rule("3.1", "9.1", "9.2"),
]


def test_a_window_sees_a_turn_from_queue_to_end(window: Window) -> None:
    with window.stream() as stream:
        assert stream.response.headers["Content-Type"] == "text/event-stream"
        assert stream.response.headers["Cache-Control"] == "no-cache"
        assert stream.response.headers["X-Accel-Buffering"] == "no"
        turn = window.turn("my favourite colour is blue")
        stream.wait_for_end(turn["id"])
        kinds = [event["type"] for event in stream.events]
        assert kinds[:2] == ["turn_queued", "turn_start"]
        assert set(kinds[2:-3]) <= {"delta", "status", "tool_call", "tool_output"}
        assert kinds[-3:] == ["message", "message", "turn_end"]
        assert "".join(delta["content"]["text"] for delta in stream.of("delta")) == turn["reply"]
        assert all(delta["event_id"] is None for delta in stream.of("delta"))
        assert {(each["source_type"], each["run_id"]) for each in stream.events} == {("message", None)}
        expected = {"v": 1, "agent_name": "demo", "session_id": window.session, "scope": "session"}
        expected |= {"source_type": "message", "run_id": None, "type": "turn_queued"}
        said = {"turn": turn["id"], "text": "my favourite colour is blue", "kind": "message"}
        first = stream.events[0]
        assert first.pop("event_id")
        assert first.pop("timestamp")
        assert first == expected | {"content": said}


def test_a_window_that_comes_back_goes_on_where_it_was(window: Window) -> None:
    with window.stream() as stream:
        start = stream.cursor
        first = window.turn("one")["id"]
        stream.wait_for_end(first)
        middle = stream.of("turn_start")[0]["event_id"]
    second = window.turn("two")["id"]
    stored = [f"{event.xid}-{event.pk}" for event in Event.objects.order_by("xid", "id")]
    for cursor, expected in ((start, stored), (middle, stored[2:]), (stored[-1], [])):
        with window.stream(Last_Event_ID=cursor) as again:
            if expected:
                again.wait_for_end(second)
            assert [event["event_id"] for event in again.events if event["event_id"]] == expected
    with window.site.client(window.token) as client:
        address = f"{window.address}/events/?last_event_id={middle}"
        with client.stream("GET", address) as response:
            seen = next(line for line in response.iter_lines() if line.startswith("event:"))
    assert seen == "event: message"


def toggle(window: Window, on: bool) -> None:
    answer = window.http.patch("/api/agents/demo/", json={"unified_session": on})
    assert answer.json()["unified_session"] is on


def primary(window: Window) -> str:
    return str(window.http.get("/api/agents/demo/").json()["primary_session"])


def another(window: Window) -> Window:
    session = window.http.post("/api/sessions/", json={"agent": "demo"}).json()["id"]
    return Window(site=window.site, token=window.token, session=session, http=window.http)


def told(stream: Stream, turn: int) -> list[str]:
    """The stored events of a turn, as the stream told them."""
    return [each["type"] for each in stream.events if each["event_id"] and each["content"]["turn"] == turn]


def shows(stream: Stream) -> list[str]:
    return [each["content"]["shows"] for each in stream.of("status") if "shows" in each["content"]]


WHOLE = ["turn_queued", "turn_start", "message", "message", "turn_end"]


AGENT = "/api/agents/demo"
SECRET = "the words of the background"


def job_session() -> Session:
    """A session that works in the background, of the one agent there is."""
    session = open_session(Agent.objects.get())
    Session.objects.filter(pk=session.pk).update(type=SessionType.JOB, key=f"job:{uuid.uuid4()}")
    return session


def step_of_a_job(job: Session) -> Turn:
    """What a job left itself to do."""
    about = TurnInput(automation_id="x", automation_name="x", timezone="UTC", next_turn=True).to_json()
    return Turn(session=job, kind=TurnKind.JOB, lane=Lane.AUTO, content=SECRET, metadata=about)


def of_agent(stream: Stream) -> list[dict[str, Any]]:
    return [event for event in stream.events if event["scope"] == "agent"]


def test_every_window_sees_background_status_but_only_its_own_text(window: Window) -> None:
    job, other = job_session(), another(window)
    home = Window(site=window.site, token=window.token, session=str(job.pk), http=window.http)
    with window.stream() as one, other.stream() as two, window.stream(AGENT) as agent, home.stream() as own:
        turn = queue_turn(step_of_a_job(job)).pk
        own.wait_for_end(turn)
        for stream in (one, two, agent):
            until(lambda: len(of_agent(stream)) == 3, 10, "all are told")  # noqa: B023 - called at once
            assert [event["type"] for event in stream.events] == ["status"] * 3
            assert SECRET not in json.dumps(stream.events)
            began, ended = (event for event in stream.events if "background" in event["content"])
            [mark] = (event for event in stream.events if "event_id" in event["content"])  # of the result
            assert mark["content"]["has_unread_background_updates"] is True
            assert mark["source_type"] == "mailbox"
            assert began["content"] == {
                "turn": turn, "background": "turn_start", "kind": "job", "attempt": 1,
            }  # fmt: skip
            assert ended["content"] == {
                "turn": turn, "background": "turn_end", "kind": "job", "state": "succeeded",
            }  # fmt: skip
            named = {(each["session_id"], each["agent_name"]) for each in (began, ended)}
            assert named == {(str(job.pk), "demo")}
        assert SECRET in json.dumps(own.events)
        assert len(own.of("turn_end")) == 1


@pytest.mark.rule("4.10")
def test_a_toggle_ends_the_stream_and_the_next_one_shows_the_other_session(window: Window) -> None:
    home, cursor = primary(window), ""
    for on in (True, False, True):
        before, after = (window.session, home) if on else (home, window.session)
        with window.stream(**({"Last_Event_ID": cursor} if cursor else {})) as stream:
            toggle(window, on=on)
            until(lambda: stream.ended, 10, "the stream ends")
            assert shows(stream) == [after] != [before]
            cursor = stream.cursor
        with window.stream(Last_Event_ID=cursor) as stream:
            turn = window.turn(f"unified: {on}")
            stream.wait_for_end(turn["id"])
            assert told(stream, turn["id"]) == WHOLE
            of_turn = [each for each in stream.events if each["content"]["turn"] == turn["id"]]
            assert {each["session_id"] for each in of_turn} == {after}
            cursor = stream.cursor


@pytest.mark.rule("4.10")
def test_deleting_a_thread_ends_only_its_own_stream(window: Window) -> None:
    other = another(window)
    toggle(window, on=True)
    with window.stream() as stream, other.stream() as elsewhere:
        assert window.http.delete(f"{window.address}/").json()["deleted"] is True
        until(lambda: stream.ended, 10, "the stream ends")
        elsewhere.wait_for_end(other.turn("still there?")["id"])
        assert not elsewhere.ended
