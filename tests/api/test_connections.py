"""What one client may take of a web process: sizes, times and numbers, over plain sockets."""

import asyncio
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from interfaces.http.server import bodies
from interfaces.http.server.bodies import LONGEST_BODY
from tests.api.conftest import web_process
from tests.fleet import Process, until
from tests.yardstick import processor_seconds, yardstick

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

QUICK = """
from interfaces.http.server import bodies, connection
connection.HEAD_SECONDS = 1
connection.STALLED_SECONDS = 1
bodies.BODY_SECONDS = 1
bodies.DRAIN_SECONDS = 0.2
bodies.MOST_HELD = 3_000_000
"""
BOUNDS = {"RONDO_CONNECTIONS": "40", "RONDO_CONNECTIONS_PER_ADDRESS": "5"}
ELSEWHERE = "127.0.0.2"  # no trusted proxy
CHUNKED = "Transfer-Encoding: chunked"
HUNDREDS = "Content-Length: 300000000"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(kw_only=True)
class Server:
    """A web process whose seconds are short."""

    url: str
    web: Process

    @contextmanager
    def plug(self, source: str = "127.0.0.1", size: int | None = None) -> Iterator[socket.socket]:
        """A connection; `size`: of its receive buffer."""
        host, port = self.url.removeprefix("http://").split(":")
        with socket.socket() as plug:
            plug.settimeout(10)
            plug.bind((source, 0))
            if size is not None:
                plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            plug.connect((host, int(port)))
            yield plug

    def seconds(self) -> float:
        """Of processor that it has used."""
        fields = Path(f"/proc/{self.web.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def holds(self, plug: socket.socket | None = None) -> int:
        """How many connections it holds open, or whether it holds this one."""
        ours, theirs = int(self.url.rpartition(":")[2]), plug.getsockname()[1] if plug else None
        rows = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        established = [
            int(remote.rpartition(":")[2], 16)
            for local, remote, state in rows
            if state == "01" and int(local.rpartition(":")[2], 16) == ours
        ]
        return established.count(theirs) if theirs else len(established)


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with web_process(tmp_path_factory.mktemp("web"), QUICK, **BOUNDS) as (url, web):
        yield Server(url=url, web=web)


def head(path: str, *lines: str, method: str = "POST") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def rest(plug: socket.socket) -> bytes:
    """All that comes until the server closes."""
    said = b""
    with suppress(ConnectionError):
        while piece := plug.recv(65536):
            said += piece
    return said


def send(plug: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):
        plug.sendall(data)


@pytest.mark.rule("10.0")
@pytest.mark.parametrize(
    "path", ["/", "/api/agents/", "/healthz", "/readyz", "/metrics", "/admin/login/", "/static/x", "/nothing"]
)
@pytest.mark.parametrize("length", [HUNDREDS, CHUNKED])
def test_a_huge_body_is_refused_at_every_address(server: Server, path: str, length: str) -> None:
    size = 3_000_000
    piece = b"x" * size if length == HUNDREDS else b"%x\r\n%b\r\n" % (size, b"x" * size)
    with server.plug() as plug:
        send(plug, head(path, length) + piece)
        answer = rest(plug)
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    assert b"connection: close" in answer.lower()
    # no middleware saw it
    assert b"content-security-policy: default-src 'none'" in answer.lower()
    assert (b"cache-control: no-store" in answer.lower()) == path.startswith("/api/")


def test_who_asks_before_sending_is_refused_at_once(server: Server) -> None:
    with server.plug() as plug:
        plug.sendall(head("/api/agents/", HUNDREDS, "Expect: 100-continue"))
        assert rest(plug).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("path", "longest"), [("/api/agents/", LONGEST_BODY), ("/admin/login/", 2 * LONGEST_BODY)]
)
def test_a_body_of_just_the_bound_is_taken(server: Server, path: str, longest: int) -> None:
    assert httpx2.post(server.url + path, content=b"x" * longest, headers=FORM).status_code in {401, 403}
    assert httpx2.post(server.url + path, content=b"x" * (longest + 1)).status_code == 413
    assert httpx2.request("GET", server.url + path, content=b"x" * (longest + 1)).status_code == 413


def test_an_empty_body_is_none(server: Server) -> None:
    for content in (b"", iter([b""])):
        assert httpx2.request("GET", f"{server.url}/healthz", content=content).status_code == 200


WHOLE = head("/healthz", method="GET")


@pytest.mark.rule("10.0")
def test_an_endless_request_head_times_out(server: Server) -> None:
    endless = {  # what is sent at once, and then again and again
        "silent": (b"", b""),
        "half a head": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b""),
        "dripping": (b"GET /healthz HTTP/1.1\r\n", b"X-A: b\r\n"),
        "a second head": (WHOLE + b"GET", b" "),
        "after two at once": (WHOLE + WHOLE + b"GET /", b"x"),
    }
    with ExitStack() as stack:
        left = {name: stack.enter_context(server.plug()) for name in endless}
        for name, plug in left.items():
            plug.settimeout(0.05)
            plug.sendall(endless[name][0])

        def over(name: str) -> bool:
            try:
                left[name].sendall(endless[name][1])
                return left[name].recv(65536) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        def all_over() -> bool:
            for name in list(left):
                if over(name):
                    del left[name]
            return not left

        until(all_over, 8, "the connections end")


@pytest.mark.rule("10.0")
def test_a_body_that_does_not_come_is_answered_408(server: Server) -> None:
    asked = {
        ("/api/agents/", "Content-Length: 1000"),
        ("/admin/login/", "Content-Length: 1000"),
        ("/api/agents/", CHUNKED),
        ("/healthz", CHUNKED),
    }
    with ExitStack() as stack:
        plugs = {each: stack.enter_context(server.plug()) for each in asked}
        for (path, length), plug in plugs.items():
            plug.sendall(head(path, length))
        for (path, length), plug in plugs.items():
            answer = rest(plug)
            assert answer.startswith(b"HTTP/1.1 408 "), (path, length)
            assert (b"body_timeout" in answer) == path.startswith("/api/"), (path, length)


def test_a_slowly_sent_body_times_out_as_a_whole(server: Server) -> None:
    with server.plug() as plug:
        plug.sendall(head("/api/agents/", "Content-Length: 1000"))
        plug.settimeout(0.1)

        def answered() -> bytes:
            send(plug, b"x")
            with suppress(TimeoutError):
                return plug.recv(65536)
            return b""

        assert until(answered, 8).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "path",
    ["/api/agents/", *(pytest.param(each, marks=pytest.mark.full) for each in ("/admin/login/", "/healthz"))],
)
def test_a_body_in_tiny_chunks_costs_no_more_than_another(server: Server, path: str) -> None:
    before = server.seconds()
    with server.plug() as plug:
        plug.settimeout(60)
        send(plug, head(path, CHUNKED) + b"1\r\nx\r\n" * 500_000)
        answer = rest(plug)
    assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
    times = (server.seconds() - before) / processor_seconds(yardstick)
    assert times < 10, "16,384 chunks cost two yardsticks"
    assert httpx2.post(f"{server.url}/api/agents/", content=iter([b"x"] * 1_000)).status_code == 401


def test_forms_are_read_in_one_way_only(server: Server) -> None:
    """Django decodes a field of a multipart form with whatever codec the client names: Punycode takes minutes."""
    name = b"a-" + b"b" * 60_000
    field = b'--b\r\nContent-Disposition: form-data; name="username"\r\n\r\n%b\r\n--b--\r\n' % name
    cookie = {"Cookie": f"csrftoken={'a' * 32}"}

    def post(kind: str) -> httpx2.Response:
        headers = cookie | {"Content-Type": kind}
        return httpx2.post(f"{server.url}/admin/login/", content=field, headers=headers, timeout=60)

    for codec in ("punycode", "zlib"):
        answer = post(f"multipart/form-data; boundary=b; charset={codec}")
        assert (answer.status_code, "application/x-www-form-urlencoded" in answer.text) == (415, True)
    assert post("application/x-www-form-urlencoded; charset=punycode").status_code == 400
    assert post("Application/X-WWW-Form-urlencoded").status_code == 403  # no CSRF token


async def nothing(waits: asyncio.Event) -> Any:
    """What never comes; `waits` says that somebody waits for it."""
    waits.set()
    return await asyncio.Future()


def test_one_address_does_not_hold_the_room_of_all_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_HELD_BY_ONE", 100)
    statuses: list[tuple[str, int]] = []

    async def post(received: bodies.Bodies, client: str, *, whole: bool, waits: asyncio.Event) -> None:
        pieces = [{"type": "http.request", "body": b"x" * 60, "more_body": not whole}]

        async def receive() -> Any:
            return pieces.pop() if pieces else await nothing(waits)

        scope = {"type": "http", "method": "POST", "path": "/api/agents/", "headers": []}
        try:
            body = await received.read(scope | {"client": (client, 1)}, receive)
            statuses.append((client, 200))
            body.release()
        except bodies.Refused as refused:
            statuses.append((client, refused.status))

    async def story() -> None:
        received, waits = bodies.Bodies(), asyncio.Event()
        half = asyncio.create_task(post(received, "2001:db8::1", whole=False, waits=waits))
        await asyncio.wait_for(waits.wait(), 10)
        for client in ("2001:db8::2", "192.0.2.1", "192.0.2.1"):
            await post(received, client, whole=True, waits=waits)
        half.cancel()
        await asyncio.wait({half})
        await post(received, "2001:db8::2", whole=True, waits=waits)
        assert not received.held

    asyncio.run(story())
    assert statuses == [("2001:db8::2", 503), ("192.0.2.1", 200), ("192.0.2.1", 200), ("2001:db8::2", 200)]


def test_an_answer_that_goes_on_holds_no_room_of_bodies(server: Server) -> None:
    """A stream has no body; a request that waits by `Prefer` has given its own back."""
    for method in ("GET", "HEAD"):
        asked = httpx2.request(method, f"{server.url}/api/agents/", content=b"x" * 100)
        assert asked.status_code == 413

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 60, "more_body": False}

    received = bodies.Bodies()
    post = {"type": "http", "method": "POST", "path": "/api/x/", "headers": [], "client": ("192.0.2.1", 1)}
    body = asyncio.run(received.read(post, receive))
    held = [received.held[bodies.ALL]]
    for _ in range(2):
        body.release()
        held.append(received.held[bodies.ALL])
    assert held == [60, 0, 0]


def test_who_reads_no_answer_is_let_go(server: Server) -> None:
    page = "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js"
    assert len(httpx2.get(server.url + page).content) > 500_000
    with server.plug(size=4096) as plug:
        plug.sendall(head(page, method="GET") * 8)
        until(lambda: server.holds(plug), 5)
        until(lambda: not server.holds(plug), 10, "the connection is gone")


def test_bodies_have_a_bound_together(server: Server) -> None:
    half = head("/admin/login/", "Content-Length: 2000000") + b"x" * 1_900_000
    with server.plug() as one, server.plug() as two:
        one.sendall(half)
        two.sendall(half)
        said = {rest(one)[:13], rest(two)[:13]}
    assert said == {b"HTTP/1.1 408 ", b"HTTP/1.1 503 "}
    free = httpx2.post(f"{server.url}/admin/login/", content=b"x" * 1_900_000, headers=FORM)
    assert free.status_code == 403


@pytest.mark.rule("10.0")
def test_connections_are_bounded_all_together(server: Server) -> None:
    with ExitStack() as stack:
        plugs = [stack.enter_context(server.plug()) for _ in range(60)]
        answers = [rest(plug) for plug in plugs]
    refused = [each for each in answers if each]
    assert 15 <= len(refused) <= 25
    assert all(each.startswith(b"HTTP/1.1 503 ") and b"Retry-After: " in each for each in refused)
    until(lambda: httpx2.get(f"{server.url}/healthz").status_code == 200, 5)


@pytest.mark.full
def test_the_limit_of_open_files_leaves_room_for_the_database(django_db_setup: None, tmp_path: Path) -> None:
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))"
    with web_process(tmp_path, few) as (url, web):
        server = Server(url=url, web=web)
        with ExitStack() as stack:
            plugs = [stack.enter_context(server.plug()) for _ in range(400)]
            refused, *_ = select.select(plugs, [], [], 10)
            assert rest(refused[-1]).startswith(b"HTTP/1.1 503 ")
        until(lambda: httpx2.get(f"{url}/healthz").status_code == 200, 5)
        assert httpx2.get(f"{url}/admin/login/").status_code == 200
        assert "Traceback" not in web.text()
        assert "out of system resource" not in web.text()


def test_connections_are_limited_per_address_except_for_a_proxy(server: Server) -> None:
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(server.plug())
        plugs = [stack.enter_context(server.plug(ELSEWHERE)) for _ in range(6)]
        assert rest(plugs[-1]).startswith(b"HTTP/1.1 503 ")
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        assert [rest(plug) for plug in plugs[:-1]] == [b""] * 5
    with server.plug(ELSEWHERE) as plug:
        plug.sendall(head("/healthz", "Connection: close", method="GET"))
        assert rest(plug).startswith(b"HTTP/1.1 200 ")


def test_an_abandoned_request_leaves_nothing_behind(server: Server) -> None:
    for _ in range(30):
        with server.plug() as plug:
            plug.sendall(head("/api/agents/", method="GET"))
    until(lambda: not server.holds(), 10)
    assert "Traceback" not in server.web.text()
