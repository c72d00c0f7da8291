"""Callers of the API: in this process for what one request does, over real HTTP where processes matter."""

from __future__ import annotations

import json
import os
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.models import Turn, Worker
from sessions_app.models.turn import OPEN_STATES
from sessions_app.streams.hub import Hub
from tests import warm
from tests.conftest import Person
from tests.fleet import Fleet, Process, until, usual_environ
from tests.model_server import ModelServer
from tests.tokens import token_of
from tests.up import free_port


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that failed shows the logs of its module's processes."""
    outcome: Any = yield
    site = getattr(item, "funcargs", {}).get("processes")
    if outcome.get_result().failed and isinstance(site, Site):
        outcome.get_result().sections.append(("processes", site.fleet.logs()))


def dashed(headers: dict[str, str]) -> dict[str, str]:
    """Headers that were given as keywords."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(kw_only=True)
class Caller:
    """Someone with a token; talks JSON to the application in this process."""

    user: User
    token: str
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def __call__(self, method: str, path: str, data: Any = None, **headers: str) -> Any:
        """`headers` as keywords: If_Match="..."."""
        named = {"Authorization": f"Token {self.token}"} | dashed(headers)
        return self.client.generic(
            method,
            path,
            data=b"" if data is None else (data if isinstance(data, bytes) else json.dumps(data).encode()),
            content_type="application/json",
            headers=named,
        )

    def get(self, path: str, **headers: str) -> Any:
        return self("GET", path, **headers)

    def post(self, path: str, data: Any = None, **headers: str) -> Any:
        return self("POST", path, data, **headers)

    def patch(self, path: str, data: Any = None, **headers: str) -> Any:
        return self("PATCH", path, data, **headers)

    def put(self, path: str, data: Any = None, **headers: str) -> Any:
        return self("PUT", path, data, **headers)

    def delete(self, path: str, **headers: str) -> Any:
        return self("DELETE", path, **headers)

    def agent(self, name: str = "demo") -> Any:
        return made(self.post("/api/agents/", {"name": name}))

    def session(self, agent: str = "demo", **fields: Any) -> str:
        return str(made(self.post("/api/sessions/", {"agent": agent} | fields))["id"])

    def automation(self, session: str, **fields: Any) -> Any:
        every = {"kind": "every", "seconds": 3600}
        asked = {"message": "check the repo", "schedule": every, "allow_duplicate": True} | fields
        return made(self.post(f"/api/sessions/{session}/automations/", asked))


def made(response: Any) -> Any:
    assert response.status_code == 201, response.content
    return response.json()


ABOUT_NO_FIELD = {"bad_request", "internal_session", "missing_extra", "needs_person"}
ABOUT_NO_FIELD |= {"no_images", "not_private"}


def problem(response: Any, status: int, code: str) -> Any:
    """The answer is this problem, complete: with the field, where a value of the request is wrong."""
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    body = response.json()
    assert (body["status"], body["code"]) == (status, code), body
    assert body["type"] == f"/api/docs/errors/#{code}"
    assert body["title"]
    assert body["detail"]
    if status == 400 and (code not in ABOUT_NO_FIELD or "errors" in body):
        assert body["errors"], body
        assert all(texts and all(texts) for texts in body["errors"].values()), body
    return body


def for_each(rows: Iterable[Any], check: Callable[..., object]) -> None:
    """Call `check` with each row (a tuple: its values) and fail once, with all the rows that failed."""
    faults, given = [], list(rows)
    assert given
    for row in given:
        try:
            check(*row) if isinstance(row, tuple) else check(row)
        except (AssertionError, LookupError, pytest.fail.Exception) as fault:
            faults.append(f"{str(row)[:300]}: {type(fault).__name__}: {fault}")
    assert not faults, f"{len(faults)} rows failed:\n\n" + "\n\n".join(faults)


def new_caller(name: str) -> Caller:
    user = User.objects.create_user(name)
    return Caller(user=user, token=token_of(user))


@pytest.fixture
def ada(db: None) -> Caller:
    """Has an agent `demo`."""
    caller = new_caller("ada")
    caller.agent()
    return caller


@pytest.fixture
def bob(db: None) -> Caller:
    """Somebody else."""
    caller = new_caller("bob")
    caller.agent()
    return caller


@pytest.fixture
def nobody(db: None) -> Client:
    return Client(raise_request_exception=False)


@pytest.fixture
def schema(nobody: Client) -> Any:
    """The OpenAPI schema that the server gives."""
    return nobody.get("/api/schema/", headers={"Accept": "application/json"}).json()


def operations(schema: Any) -> Iterator[tuple[str, str, Any]]:
    """Each path, method and operation."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


@pytest.fixture(scope="module")
def stopped_hubs() -> Iterator[list[Hub]]:
    """Waits for their listeners, once for all: each ends within a second."""
    hubs: list[Hub] = []
    yield hubs
    for hub in hubs:
        hub._listener._thread.join()


@pytest.fixture
def hub(person: Person, stopped_hubs: list[Hub]) -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.stop()
    stopped_hubs.append(hub)


@dataclass(kw_only=True)
class Site:
    """A web process and a worker on the test database."""

    url: str
    web: Process
    fleet: Fleet
    model: ModelServer

    def client(self, token: str) -> httpx2.Client:
        """Another connection of the same user."""
        return httpx2.Client(base_url=self.url, headers={"Authorization": f"Token {token}"}, timeout=20)

    @property
    def worker(self) -> Process:
        """The one that is alive."""
        [worker, *_] = (each for each in self._alive() if each.name.startswith("worker"))
        return worker

    def _alive(self) -> list[Process]:
        return [each for each in self.fleet.processes if each.child.poll() is None]

    def renew(self) -> None:
        """As at the beginning, whatever a test has killed, started or told the model."""
        self.model.reset()
        for marks in self.fleet.folder.glob("*.calls"):
            marks.unlink()
        alive = self._alive()
        workers = [each for each in alive if each.name.startswith("worker")]
        for each in alive:
            if each not in [self.web, *workers[:1]]:
                each.kill()
        if not workers:
            self.fleet.worker()

    def metric(self, name: str) -> float:
        """One figure of /metrics."""
        lines = httpx2.get(f"{self.url}/metrics").text.splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


@dataclass(kw_only=True)
class Window:
    """A session of a user, over HTTP."""

    site: Site
    token: str
    session: str
    http: httpx2.Client

    @property
    def address(self) -> str:
        return f"/api/sessions/{self.session}"

    def send(self, content: str, **headers: str) -> httpx2.Response:
        return self.http.post(f"{self.address}/messages/", json={"content": content}, headers=dashed(headers))

    def turn(self, content: str) -> Any:
        """Send and wait for the end."""
        response = self.send(content, Prefer="wait=20")
        assert response.status_code == 200, response.text
        return response.json()

    @contextmanager
    def stream(self, address: str = "", **headers: str) -> Iterator[Stream]:
        """The session's events, or those at another address, read by a thread of their own."""
        named = dashed(headers) | {"Authorization": f"Token {self.token}"}
        connection = HTTPConnection(self.site.url.removeprefix("http://"), timeout=60)
        connection.request("GET", f"{address or self.address}/events/", headers=named)
        plug = connection.sock
        stream = Stream(response=connection.getresponse())
        assert stream.response.status == 200, stream.response.read()
        stream.thread.start()
        try:
            until(lambda: stream.cursor, 10, "the stream's first line")
            yield stream
        finally:
            with suppress(OSError):
                plug.shutdown(socket.SHUT_RDWR)
            stream.thread.join(5)
            connection.close()


@dataclass(kw_only=True)
class Stream:
    """What came through a stream so far."""

    response: HTTPResponse
    events: list[dict[str, Any]] = field(default_factory=list)
    cursor: str = ""
    ended: bool = False

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._read, daemon=True)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def wait_for_end(self, turn: int, seconds: float = 20) -> None:
        what = f"turn {turn} ends"
        until(lambda: any(e["content"]["turn"] == turn for e in self.of("turn_end")), seconds, what)

    def _read(self) -> None:
        block: dict[str, str] = {}
        with suppress(OSError, HTTPException):
            for raw in self.response:
                line = raw.decode().rstrip("\n")
                if not line:
                    self._take(block)
                    block = {}
                else:
                    name, _, value = line.partition(": ")
                    block[name] = value
        self.ended = True

    def _take(self, block: dict[str, str]) -> None:
        self.cursor = block.get("id", self.cursor)
        if "data" not in block:
            return
        event = json.loads(block["data"])
        assert event["type"] == block["event"]
        assert event["event_id"] == block.get("id")
        self.events.append(event)


def cookies_of(user: User) -> dict[str, str]:
    """Of a browser in which they have signed in."""
    browser = Client()
    browser.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return {name: browser.cookies[name].value}


def connected(url: str) -> socket.socket:
    """A plain connection to a web process."""
    at = urlsplit(url)
    return socket.create_connection((at.hostname, at.port), timeout=10)


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"{url}/healthz", timeout=1) as answer:
        return bool(answer.status == 200)
    return False


FEW_CONNECTIONS = {"DB_POOL_SIZE": "4"}


def start_web(folder: Path, first: str = "", **environ: str) -> tuple[str, Process]:
    """A web process. `first`: Python that it runs before it serves. PORT: by default a free one."""
    port = int(environ.pop("PORT", free_port()))
    log = folder / "web.log"
    log.touch()
    program = ["-c", f"{first}\nfrom config.web import main; main()"] if first else ["config.web"]
    command = [*program, "--port", str(port), "--timeout-graceful-shutdown", "1"]
    usual = usual_environ() | FEW_CONNECTIONS
    child = warm.start(command, os.environ | FEW_CONNECTIONS | environ, usual, log)
    web = Process(name="web", log=log, child=child)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _answers(url) or (child.poll() is not None), 60, "the web process answers")
        assert child.poll() is None, web.text()
    except BaseException:
        web.kill()  # nobody else knows it yet
        raise
    return url, web


@contextmanager
def web_process(folder: Path, first: str = "", **environ: str) -> Iterator[tuple[str, Process]]:
    """A web process while the block runs."""
    url, web = start_web(folder, first, **environ)
    try:
        yield url, web
    finally:
        web.kill()


def serve(folder: Path, first: str = "", **environ: str) -> Iterator[Site]:
    """A web process and a worker with a model over HTTP. `first`, `environ`: for the web process."""
    url, web = start_web(folder, first, **environ)
    fleet = Fleet(folder=folder, processes=[web])
    try:
        with ModelServer() as model:
            fleet.environ |= {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "test-key"}
            fleet.worker()
            yield Site(url=url, web=web, fleet=fleet, model=model)
    finally:
        fleet.end()


def _shares(item: Any) -> bool:
    """Whether a test uses the shared site, not one of its module."""
    found = item._fixtureinfo.name2fixturedefs.get("processes")
    return bool(found) and found[-1].scope == "function"


@dataclass(kw_only=True, eq=False)  # a plugin is hashed
class Shared:
    """Sites and a browser for test after test, by fixture. Each ends before a test that does not use it.

    A worker would take the turns of such a test, and Playwright's event loop runs in the thread of the tests.
    `modules`: they keep the site of `processes` also for their tests without it.
    """

    modules: set[Path]
    running: dict[str, tuple[Any, ExitStack]] = field(default_factory=dict)

    def get(self, name: str, start: Callable[[ExitStack], Any]) -> Any:
        """What runs for this fixture, started now unless it does."""
        if name not in self.running:
            with ExitStack() as stack:
                self.running[name] = start(stack), stack.pop_all()
        return self.running[name][0]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """This test's own fixtures have ended."""
        used = {*getattr(nextitem, "fixturenames", ())} - {"processes"}
        if nextitem is not None and nextitem.path in self.modules:
            used.add("processes")
        for name in [each for each in self.running if each not in used]:
            self.running.pop(name)[1].close()


def shared_of(request: pytest.FixtureRequest) -> Shared:
    """That of this run."""
    plugins = request.config.pluginmanager
    found = plugins.get_plugin(Shared.__name__)
    if not isinstance(found, Shared):
        found = Shared(modules={each.path for each in request.session.items if _shares(each)})
        plugins.register(found, Shared.__name__)
        # before the database goes, after a run that stopped early, too
        request.session.addfinalizer(partial(found.pytest_runtest_teardown, None))
    return found


def shared_site(request: pytest.FixtureRequest, name: str, **environ: str) -> Site:
    """The site of this fixture: a web process, for which `environ` is, and a worker."""
    database, folders = map(request.getfixturevalue, ("django_db_blocker", "tmp_path_factory"))

    def forget_the_worker() -> None:  # it outlived the last test's reset and may have registered again
        with database.unblock():
            Worker.objects.all().delete()

    def start(stack: ExitStack) -> Site:
        stack.callback(forget_the_worker)
        return stack.enter_context(contextmanager(serve)(folders.mktemp(name), **environ))

    site: Site = shared_of(request).get(name, start)
    return site


@pytest.fixture
def processes(request: pytest.FixtureRequest, django_db_setup: None) -> Site:
    """One web process and one worker; four database connections serve all requests. Some folders import it."""
    return shared_site(request, "processes")


@pytest.fixture
def site(request: pytest.FixtureRequest, transactional_db: None, processes: Site) -> Iterator[Site]:
    """The processes of the module, with empty tables. Nobody works on them when they are emptied."""
    if _shares(request.node):
        processes.renew()
    yield processes
    until(lambda: not Turn.objects.filter(state__in=OPEN_STATES).exists(), 20, "every turn has ended")


@pytest.fixture
def window(site: Site) -> Iterator[Window]:
    """A session of an agent on the model server."""
    user = User.objects.create_user("ada")
    token = token_of(user)
    with site.client(token) as http:
        made = http.post("/api/agents/", json={"name": "demo", "model": "openai-chat:test"})
        assert made.status_code == 201, made.text
        session = http.post("/api/sessions/", json={"agent": "demo"}).json()["id"]
        yield Window(site=site, token=token, session=session, http=http)
