"""A browser's own EventSource, without any of our scripts, hears the tour's main act over a network that breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from sessions_app.models import Agent, Event, EventType
from tests.api.conftest import Site
from tests.browser import NEEDS_CHROMIUM, Visitor
from tests.fleet import until
from tests.proxy import Proxy

pytestmark = [pytest.mark.full, NEEDS_CHROMIUM, pytest.mark.processes, pytest.mark.rule("9.2")]

LISTEN = """([session, types]) => {
  window.heard = [];
  window.source = new EventSource(`/api/sessions/${session}/events/`);
  for (const type of types)
    source.addEventListener(type, (event) => heard.push({ id: event.lastEventId, ...JSON.parse(event.data) }));
  return new Promise((resolve) => source.addEventListener("open", () => resolve(null)));
}"""
POST = """async ([path, body]) => {
  const headers = {
    "Content-Type": "application/json",
    "X-CSRFToken": document.querySelector("[name=csrfmiddlewaretoken]").value,
  };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  return [answer.status, await answer.json()];
}"""
SOON = "new Date(Date.now() + 2000).toISOString()"


@pytest.fixture
def proxy(served: Site) -> Iterator[Proxy]:
    proxy = Proxy(served.url)
    yield proxy
    proxy.end()


def post(page: Page, path: str, body: Any) -> Any:
    status, answer = page.evaluate(POST, [path, body])
    assert status in {201, 202}, answer
    return answer


def heard(page: Page, *, stored: bool = True) -> list[Any]:
    """The events that came, by default those that have an id."""
    found = page.evaluate("window.heard")
    return [each for each in found if each["event_id"]] if stored else list(found)


def ends(page: Page) -> int:
    return sum(each["type"] == "turn_end" for each in heard(page))


def test_the_main_act_is_heard_once_and_whole(visitor: Visitor, proxy: Proxy, beat: None) -> None:
    Agent.objects.filter(pk=visitor.person.agent.pk).update(model="offline")
    session = str(visitor.person.session().pk)
    page = visitor.window()
    page.goto(f"{proxy.url}/account/")  # a page with a form and without a stream of its own
    page.evaluate(LISTEN, [session, [*EventType.values, "delta", "snapshot"]])
    address = f"/api/sessions/{session}"

    post(page, f"{address}/messages/", {"content": "My favourite colour is blue."})
    until(lambda: ends(page) == 1)
    assert proxy.cut() >= 1  # the browser connects again by itself, in three seconds or so
    schedule = {"kind": "at", "at": page.evaluate(SOON)}
    job = post(
        page, f"{address}/automations/", {"message": "What is my favourite colour?", "schedule": schedule}
    )
    until(lambda: ends(page) == 2)
    post(page, f"{address}/messages/", {"content": "What did the automation say last? Quote it."})
    until(lambda: ends(page) == 3)

    rows = Event.objects.filter(session_id=session).order_by("xid", "pk")
    assert [each["event_id"] for each in heard(page)] == [f"{row.xid}-{row.pk}" for row in rows]
    assert all(each["id"] == each["event_id"] for each in heard(page))
    said = [each["content"] for each in heard(page) if each["type"] == "message"]
    assert [each["role"] for each in said] == ["user", "assistant"] * 3
    assert said[3]["metadata"]["source"]["id"] == job["id"]
    assert "blue" in said[3]["text"]
    assert "blue" in said[5]["text"]
    assert {each["type"] for each in heard(page, stored=False)} >= {"delta", "turn_start", "turn_end"}
