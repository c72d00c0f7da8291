"""Unified mode over real HTTP and a real worker: streams, waiting, turns that a toggle finds queued or running."""

from __future__ import annotations

import pytest

from sessions_app.models import Turn
from tests.api.conftest import Stream, Window
from tests.fleet import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.rule("4.10")]


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
            assert {
                each["session_id"] for each in stream.events if each["content"]["turn"] == turn["id"]
            } == {after}
            cursor = stream.cursor


def test_no_event_is_missed_when_toggling_during_an_older_turn(window: Window) -> None:
    """The thread's own turn writes events all the while, so that the stream's place moves on."""
    with window.stream() as stream:
        own = window.send("[[pause:own]] [[reply:of the thread]]").json()["id"]
        until(lambda: stream.of("delta"), 20)
        toggle(window, on=True)
        sent = [window.send(f"note {number}").json() for number in range(3)]
        window.site.model.release("own")
        until(lambda: stream.ended, 10, "the stream ends")
    with window.stream(Last_Event_ID=stream.cursor) as stream:
        for turn in sent:
            stream.wait_for_end(turn["id"])
            assert told(stream, turn["id"])[0] == "turn_queued"
            assert told(stream, turn["id"]).count("turn_end") == 1
        assert {turn["session"] for turn in sent} == {primary(window)}
        toggle(window, on=False)
        until(lambda: Turn.objects.get(pk=own).state == "succeeded")
        history = window.http.get(f"{window.address}/messages/").json()["results"]
        assert [each["content"] for each in history if each["turn"] == own][-1] == "of the thread"


def test_a_reconnected_window_continues_with_what_its_thread_now_shows(window: Window) -> None:
    with window.stream() as stream:
        first = window.turn("in the thread")["id"]
        stream.wait_for_end(first)
        cursor = stream.cursor
    toggle(window, on=True)
    second = window.turn("in the primary")["id"]
    with window.stream(Last_Event_ID=cursor) as again:
        again.wait_for_end(second)
        assert told(again, second) == WHOLE
        assert told(again, first) == shows(again) == []
    toggle(window, on=False)
    third = window.turn("in the thread again")["id"]
    with window.stream(Last_Event_ID=cursor) as again:
        again.wait_for_end(third)
        assert told(again, third) == WHOLE
        assert told(again, second) == []


def test_a_window_that_comes_back_onto_a_running_turn_gets_its_text(window: Window) -> None:
    with window.stream() as early:
        home = Window(site=window.site, token=window.token, session=primary(window), http=window.http)
        with home.stream() as stream:
            turn = home.send("[[pause:story]] [[reply:Once upon a time.]]").json()["id"]
            until(lambda: stream.of("delta"), 20)
            toggle(window, on=True)
            until(lambda: early.ended, 10, "the stream ends")
            with window.stream(Last_Event_ID=early.cursor) as late:
                until(lambda: late.of("snapshot"), 10)
                assert late.of("snapshot")[0]["content"] == {
                    **stream.of("delta")[0]["content"],
                    "earlier": "",
                }
                assert late.of("snapshot")[0]["session_id"] == home.session
                window.site.model.release("story")
                late.wait_for_end(turn)


def test_deleting_a_thread_ends_only_its_own_stream(window: Window) -> None:
    other = another(window)
    toggle(window, on=True)
    with window.stream() as stream, other.stream() as elsewhere:
        assert window.http.delete(f"{window.address}/").json()["deleted"] is True
        until(lambda: stream.ended, 10, "the stream ends")
        elsewhere.wait_for_end(other.turn("still there?")["id"])
        assert not elsewhere.ended
