"""Tokens on real connections: a revoked one ends what is open, and a ticket opens one stream."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User

from sessions_app.events import Cursor, announce
from sessions_app.models import Agent, ApiToken, Event, Session
from sessions_app.streams import hub as streams
from sessions_app.streams.event_log import Position
from sessions_app.streams.hub import Hub, Subscription
from sessions_app.streams.rights import Right
from sessions_app.tokens.issue import revoke_tokens
from tests.api.conftest import Site, Window, dashed, serve
from tests.conftest import Person
from tests.fleet import until
from tests.tokens import new_token, token_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.rule("10.6")]

SOON = 1.0  # seconds in which open streams end
# without a notification it would be noticed only after a minute
PATIENT = "import config.asgi; from sessions_app.streams import hub; hub.POLL = 60.0"


@pytest.fixture(scope="module")
def processes(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """As for other modules, but what a web process is not told it does not notice."""
    yield from serve(tmp_path_factory.mktemp("tokens"), PATIENT)


class Open:
    """A response that is read in the background. `ended`: when it ended."""

    def __init__(
        self, site: Site, token: str, method: str, path: str, body: Any = None, **headers: str
    ) -> None:
        self.said, self.status, self.ended = "", 0, 0.0
        named = dashed(headers) | {"Accept": "text/event-stream"}
        if token:
            named["Authorization"] = f"Bearer {token}"
        given: Any = {"json": body, "headers": named, "timeout": 60}
        self._ask: Any = lambda: httpx2.stream(method, f"{site.url}{path}", **given)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(httpx2.HTTPError), self._ask() as answer:  # the server may end first
            self.status = answer.status_code
            for piece in answer.iter_text():
                self.said += piece
        self.ended = time.monotonic()


def opened(*streams: Open) -> None:
    until(lambda: all(each.status == 200 and each.said for each in streams), 20, "the streams are open")


def test_what_is_open_ends_within_a_second_of_the_revocation(window: Window) -> None:
    """The streams of a session, of an agent, of /v1 and of AG-UI; the same streams of another token go on."""
    site, user = window.site, User.objects.get(username="ada")
    token = new_token(user, "talk")
    chat = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "[[hold:a]] x"}]}
    run = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
           "messages": [{"id": "1", "role": "user", "content": "[[hold:b]] x"}]}  # fmt: skip
    streams = [
        Open(site, token, "GET", f"{window.address}/events/"),
        Open(site, token, "GET", "/api/agents/demo/events/"),
        Open(site, token, "POST", "/v1/chat/completions", chat),
        Open(site, token, "POST", "/ag-ui/demo/", run),
    ]
    with window.stream() as other:
        opened(*streams)
        until(lambda: site.metric("rondo_event_subscribers") == 5, 10)
        revoked = ApiToken.objects.get(user=user, name="another").pk
        assert window.http.delete(f"/api/tokens/{revoked}/").status_code == 204
        at = time.monotonic()
        until(lambda: all(each.ended for each in streams), 10, "all streams end")
        assert max(each.ended for each in streams) - at < SOON
        assert not other.ended
    assert "permission_denied" in streams[2].said
    assert "RUN_ERROR" in streams[3].said
    for name in ("a", "b"):
        site.model.release(name)


@pytest.mark.long("a token that expires after a second")
def test_a_stream_ends_when_its_token_expires(window: Window) -> None:
    end = datetime.now(UTC) + timedelta(seconds=2)
    token = new_token(User.objects.get(username="ada"), "read", expires_at=end)
    stream = Open(window.site, token, "GET", f"{window.address}/events/")
    opened(stream)
    until(lambda: stream.ended, 10, "the stream ends")
    assert (datetime.now(UTC) - end).total_seconds() < SOON + 0.5


def test_a_stream_that_joins_after_the_revocation_was_told_ends_too(
    hub: Hub, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was let in before the revocation, and its stream begins after the check that followed."""
    monkeypatch.setattr(streams, "POLL", 60.0)
    token_of(person.user)
    valid = ApiToken.objects.get(user=person.user)
    session = person.session()

    def subscribe(token: str) -> Subscription:
        subscription = Subscription(
            opened=session.pk,
            position=Position(session_id=session.pk, cursor=Cursor(xid=0, id=0)),
            right=Right(user_id=person.user.pk, token=token),
            wake=lambda: None,
        )
        hub.subscribe(subscription)
        return subscription

    hub.listen()  # with the connection comes a check of all
    first = subscribe(valid.pk)
    until(lambda: first.checked and first.live, 10, "the first checks are over")
    late = subscribe("revoked")
    until(lambda: late.revoked, 2, "the newcomer is checked by itself")
    assert not first.revoked


def ticket(site: Site, token: str) -> str:
    with site.client(token) as http:
        answer = http.post("/api/stream-tickets/")
        assert answer.status_code == 201, answer.text
        return str(answer.json()["ticket"])


def test_of_many_connections_with_one_ticket_one_is_served(window: Window) -> None:
    site, secret = window.site, ticket(window.site, window.token)
    barrier = threading.Barrier(8)

    def connect() -> int:
        barrier.wait()
        with httpx2.stream(
            "GET", f"{site.url}{window.address}/events/?ticket={secret}", timeout=20
        ) as answer:
            return int(answer.status_code)

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(each.result(30) for each in [pool.submit(connect) for _ in range(8)])
    assert statuses == [200] + [401] * 7
    site.web.wait_for("?ticket=***")
    assert secret not in site.web.text()


@contextmanager
def by_ticket(window: Window, token: str, path: str = "") -> Iterator[Open]:
    address = f"{path or window.address}/events/?ticket={ticket(window.site, token)}"
    stream = Open(window.site, "", "GET", address)
    opened(stream)
    yield stream


def test_a_stream_by_ticket_lives_as_long_as_its_token(window: Window) -> None:
    token = new_token(User.objects.get(username="ada"), "read")
    with by_ticket(window, token) as stream:
        window.turn("[[reply:Good morning]]")
        until(lambda: "Good morning" in stream.said, 10)
        revoke_tokens(ApiToken.objects.filter(name="another"))
        until(lambda: stream.ended, 5, "the stream ends")


@pytest.mark.long("streams in a web process, and turns in a worker")
def test_a_stream_of_a_limited_token_names_no_other_session(window: Window) -> None:
    """Every window of an agent is told of background work in its other sessions, without any text."""
    user = User.objects.get(username="ada")
    session, agent = Session.objects.get(pk=window.session), Agent.objects.get(name="demo")
    other = Session.objects.exclude(pk=session.pk).get(key="unified:default")
    with ExitStack() as stack:
        limited = stack.enter_context(by_ticket(window, new_token(user, "read", session=session)))
        whole = stack.enter_context(by_ticket(window, window.token))
        mark: dict[str, Any] = {"agent": agent, "type": "status", "scope": "agent", "content": {"n": 1}}
        Event.objects.create(session_id=other.pk, **mark)
        Event.objects.create(session_id=session.pk, **mark)
        announce(session.pk, agent.pk)
        until(lambda: str(other.pk) in whole.said and "event: status" in limited.said, 10)
        assert str(other.pk) not in limited.said
        assert str(session.pk) in limited.said
