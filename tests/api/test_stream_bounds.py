"""Open streams: what they cost, how many one may have, and when they end because somebody may not read on."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from interfaces.api.sessions.streams import Stream
from sessions_app.events import Cursor
from sessions_app.models import ApiToken
from sessions_app.streams.event_log import Position
from sessions_app.streams.rights import OPEN_STREAMS, Right, lapsed
from sessions_app.tokens.issue import revoke_tokens
from tests.api.conftest import Site, Window, connected, web_process
from tests.conftest import new_person
from tests.fleet import Process, until
from tests.races import backends_that
from tests.tokens import token_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

FEW = 3  # streams of a user, in the process of its own
MANY = 120


@dataclass(kw_only=True)
class Reading:
    """An open stream, or the refusal of one, on a plain socket: no thread of ours reads it."""

    plug: socket.socket
    said: bytes = b""
    ended: bool = False

    def look(self) -> Reading:
        """With all that has come."""
        with suppress(BlockingIOError):
            try:
                while piece := self.plug.recv(65536):
                    self.said += piece
                self.ended = True
            except ConnectionError:
                self.ended = True
        self.ended |= self.said.endswith(b"\r\n0\r\n\r\n")  # the connection itself may be kept
        return self

    @property
    def status(self) -> int:
        """0 while nothing was answered."""
        return int(self.look().said[9:12] or 0)

    @property
    def is_open(self) -> bool:
        return self.status == 200 and b"\nid: " in self.said and not self.ended


class Reader:
    """A user with a session."""

    def __init__(self, name: str) -> None:
        person = new_person(name)
        self.user, self.agent = person.user, person.agent
        self.token, self.session = token_of(self.user), person.session()

    @contextmanager
    def stream(self, url: str, path: str = "", **headers: str) -> Iterator[Reading]:
        headers = headers or {"Authorization": f"Token {self.token}"}
        lines = [f"GET {path or self.path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        with connected(url) as plug:
            plug.sendall("\r\n".join([*lines, "", ""]).encode())
            plug.setblocking(False)
            yield Reading(plug=plug)

    @property
    def path(self) -> str:
        return f"/api/sessions/{self.session.pk}/events/"


def threads(web: Process) -> int:
    status = Path(f"/proc/{web.child.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("Threads:")))


def listeners() -> int:
    """The connections that listen, of all processes."""
    return len(backends_that("application_name = 'rondo listen'"))


@pytest.mark.rule("10.0")
def test_open_streams_take_no_thread_and_no_connection_each(site: Site) -> None:
    people = [Reader(f"reader {number}") for number in range(3)]
    with ExitStack() as stack:
        first = stack.enter_context(people[0].stream(site.url))
        until(lambda: first.is_open, 20)
        before, listening = threads(site.web), listeners()
        readings = [opened(stack, people[n % len(people)], site.url) for n in range(1, MANY)]
        assert all(each.is_open for each in readings)
        assert threads(site.web) < before + 20  # those of the bounded pools
        assert listeners() == listening
        began = time.monotonic()
        for _ in range(5):
            assert httpx2.get(f"{site.url}/healthz").status_code == 200
        assert time.monotonic() - began < 5
        assert site.metric("rondo_event_subscribers") == MANY
    until(lambda: site.metric("rondo_event_subscribers") == 0, 20, "streams that were left are forgotten")


@pytest.fixture(scope="module")
def strict(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web process that allows few streams, and has no patience."""
    first = (
        "import django; django.setup(); from interfaces.http.server import handler; "
        "handler.PATIENCE = 0.05; handler.STREAM_THREADS = 1"
    )
    folder = tmp_path_factory.mktemp("strict")
    with web_process(folder, first, RONDO_STREAMS_PER_USER=str(FEW)) as (url, _):
        yield url


def opened(stack: ExitStack, who: Reader, url: str, **headers: str) -> Reading:
    """One stream, once it is answered; who is sent away because others are being let in comes again."""
    began = time.monotonic()
    while True:
        reading = stack.enter_context(who.stream(url, **headers))
        until(lambda: reading.status and (reading.status != 200 or reading.is_open), 20)  # noqa: B023
        if reading.status != 503:
            return reading
        assert time.monotonic() - began < 30, "sent away again and again"


@pytest.mark.rule("10.0")
def test_streams_are_limited_per_user(transactional_db: None, strict: str) -> None:
    ada, bob = Reader("ada"), Reader("bob")
    with ExitStack() as stack:
        held = [opened(stack, ada, strict) for _ in range(FEW)]
        assert [each.status for each in held] == [200] * FEW
        refused = httpx2.get(strict + ada.path, headers={"Authorization": f"Token {ada.token}"})
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        assert int(refused.headers["Retry-After"]) > 0
        assert opened(stack, bob, strict).status == 200
        held[0].plug.close()
        until(lambda: opened(stack, ada, strict).status == 200, 10, "there is room again")


def test_streams_that_are_left_while_they_open_keep_no_place(transactional_db: None, strict: str) -> None:
    ada = Reader("ada")
    for _ in range(20):
        with ada.stream(strict):
            pass
    with ExitStack() as stack:
        for _ in range(FEW):
            until(lambda: opened(stack, ada, strict).status == 200, 10, "all places are free")


def test_who_has_all_streams_is_not_made_to_wait(site: Site, strict: str) -> None:
    ada = Reader("ada")
    with ExitStack() as stack:
        for _ in range(FEW):
            assert opened(stack, ada, strict).status == 200
        address = f"{strict}/api/sessions/{ada.session.pk}/messages/"
        headers = {"Authorization": f"Token {ada.token}", "Prefer": "wait=20"}
        began = time.monotonic()
        sent = httpx2.post(address, json={"content": "hello"}, headers=headers)
        assert (sent.status_code, sent.headers.get("Preference-Applied")) == (202, None)
        assert time.monotonic() - began < 10


def test_too_many_streams_are_refused_and_others_answered(transactional_db: None, strict: str) -> None:
    people = [Reader(f"reader {number}") for number in range(25)]
    with ExitStack() as stack:
        readings = [stack.enter_context(who.stream(strict)) for who in people * FEW]
        assert httpx2.get(f"{strict}/healthz", timeout=5).status_code == 200
        until(lambda: all(each.status for each in readings), 20)
        away = [each.look().said for each in readings if each.status == 503]
        assert away
        assert {each.status for each in readings} == {200, 503}
        assert all(b"Retry-After: " in said and b'"unavailable"' in said for said in away)


def deactivate(who: Reader, _other: Reader) -> None:
    User.objects.filter(pk=who.user.pk).update(is_active=False)


def give_token_away(who: Reader, other: Reader) -> None:
    ApiToken.objects.filter(user=who.user).update(user=other.user)


def log_out(browser: Client, _user: User) -> None:
    browser.logout()


def change_password(_browser: Client, user: User) -> None:
    user.set_password("second-password")
    user.save()


@pytest.mark.long("a stream asks for its rights every second")
@pytest.mark.rule("10.0")
def test_streams_end_when_access_or_the_login_is_lost(site: Site) -> None:
    with ExitStack() as stack:
        ending: dict[str, Reading] = {}
        going: dict[str, Reading] = {}
        changes: list[Callable[[], None]] = []
        for change in (deactivate, give_token_away):
            who, other = Reader(f"ada {change.__name__}"), Reader(f"bob {change.__name__}")
            ending[change.__name__] = stack.enter_context(who.stream(site.url))
            if change is not give_token_away:
                going[change.__name__] = stack.enter_context(other.stream(site.url))
            changes.append(partial(change, who, other))
        for end in (log_out, change_password):
            who, browser = Reader(f"ada {end.__name__}"), Client()
            browser.force_login(who.user)
            cookie = f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
            ending[end.__name__] = stack.enter_context(who.stream(site.url, Cookie=cookie))
            going[end.__name__] = stack.enter_context(who.stream(site.url))
            changes.append(partial(end, browser, who.user))
        until(lambda: all(each.is_open for each in [*ending.values(), *going.values()]), 20)
        for each in changes:
            each()
        until(lambda: all(each.look().ended for each in ending.values()), 8, "the streams end")
        assert not [name for name, each in ending.items() if b"event:" in each.said]
        assert not [name for name, each in going.items() if not each.is_open]


def test_who_is_inactive_when_the_turn_ends_is_told_nothing(window: Window) -> None:
    """The turn ends before the next check of access, and the hub does not know yet."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(window.send, "[[hold:late]] [[reply:an answer]]", Prefer="wait=60")
        until(lambda: window.site.model.held.get("late"), 10)
        until(lambda: window.site.metric("rondo_event_subscribers") == 1, 10)
        User.objects.filter(username="ada").update(is_active=False)
        window.site.model.release("late")
        answer = waiting.result(15)
        assert answer.status_code == 202
        assert answer.json()["reply"] is None
    User.objects.filter(username="ada").update(is_active=True)


def test_all_streams_are_asked_for_in_one_statement(transactional_db: None) -> None:
    people = [Reader(f"reader {number}") for number in range(20)]
    held: list[tuple[Right, Any]] = [
        (Right(user_id=who.user.pk, token=who.user.api_tokens.get().pk), who.session.pk) for who in people
    ]
    held += [(Right(user_id=who.user.pk), who.agent.pk) for who in people]
    revoke_tokens(ApiToken.objects.filter(user=people[3].user))
    deactivate(people[5], people[0])
    with CaptureQueriesContext(connection) as asked:
        assert lapsed(held) == {3, 5, 25}
    assert len(asked) == 1
    foreign: list[tuple[Right, Any]] = [
        (Right(user_id=people[0].user.pk), people[1].session.pk),
        (Right(user_id=0), people[0].agent.pk),
    ]
    assert lapsed(foreign) == {0, 1}


def test_a_stream_that_nobody_came_to_hold_leaves_its_place() -> None:
    """As when a middleware fails over an answer that the view had made already."""
    before = OPEN_STREAMS.taken(7)
    position = Position(session_id=uuid4(), agent_id=1, cursor=Cursor(xid=0, id=0))
    stream = Stream(uuid4(), position, "demo", Right(user_id=7))
    assert OPEN_STREAMS.taken(7) == before + 1
    del stream
    gc.collect()
    assert OPEN_STREAMS.taken(7) == before
