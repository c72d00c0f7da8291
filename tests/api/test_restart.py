"""A web process dies while windows are open; another one takes over, and nobody misses a thing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sessions_app.models import Event
from tests.api.conftest import Window, start_web
from tests.fleet import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


def test_a_window_misses_and_repeats_nothing_across_a_web_restart(
    window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = window.site.url
    url, dying = start_web(tmp_path)
    monkeypatch.setattr(window.site, "url", url)
    seen: list[dict[str, Any]] = []
    with window.stream() as stream:
        ended = window.turn("before")["id"]
        stream.wait_for_end(ended)
        running = window.send("[[pause:middle]] [[reply:Once upon a time.]]").json()["id"]
        until(lambda: stream.of("delta"), 20, "the answer has begun")
        dying.kill()
        until(lambda: stream.ended, 10, "the stream breaks")
        cursor, seen = stream.cursor, list(stream.events)
    waiting = window.send("meanwhile", Prefer="").json()["id"]  # by the other process
    window.site.model.release("middle")
    until(lambda: window.http.get(f"/api/turns/{waiting}/").json()["state"] == "succeeded", 30)
    (tmp_path / "again").mkdir()
    again, born = start_web(tmp_path / "again")
    monkeypatch.setattr(window.site, "url", again)
    try:
        with window.stream(Last_Event_ID=cursor) as stream:
            late = window.turn("after")["id"]
            stream.wait_for_end(late)
            seen += stream.events
    finally:
        born.kill()
        monkeypatch.setattr(window.site, "url", ours)
    stored = [f"{event.xid}-{event.pk}" for event in Event.objects.order_by("xid", "id")]
    assert [event["event_id"] for event in seen if event["event_id"]] == stored
    ends = Counter(event["content"]["turn"] for event in seen if event["type"] == "turn_end")
    assert ends == dict.fromkeys([ended, running, waiting, late], 1)
