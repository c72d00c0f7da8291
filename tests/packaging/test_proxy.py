"""deploy/nginx.conf before a web process: TLS, streams without delay, and its limits. Needs nginx."""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from interfaces.http.errors.codes import PROBLEM, problem_body
from tests.api.conftest import start_web
from tests.conftest import Person
from tests.fleet import QUICK, Fleet, Process, until
from tests.packaging.nodes import PATH
from tests.tokens import token_of
from tests.up import ROOT, free_port

NGINX = shutil.which("nginx", path=PATH)
pytestmark = [
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    pytest.mark.full,
]
CERTIFICATE = ROOT / "tests" / "data" / "tls_for_tests.pem"
HOST = "rondo.example"
BURST = 40  # requests at once
SOON = 3.0  # seconds in which the first line of a stream comes; a proxy that keeps it back needs longer
AROUND = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{
    access_log off; gzip on;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/rondo.conf;
}}
"""


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """nginx on this machine: its port for HTTP, and a client over TLS."""

    plain: int
    http: httpx2.Client
    web: Process


@pytest.fixture
def proxy(fleet: Fleet, tmp_path: Path) -> Iterator[Proxy]:
    plain, tls = free_port(), free_port()
    url, web = start_web(
        tmp_path, **QUICK, HTTPS="1", ALLOWED_HOSTS=f"{HOST},127.0.0.1", FORWARDED_ALLOW_IPS="127.0.0.1"
    )
    fleet.processes.append(web)
    places = {
        "127.0.0.1:8000": url.removeprefix("http://"),
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl;": f"listen 127.0.0.1:{tls} ssl;",
        "/etc/ssl/rondo/fullchain.pem": str(CERTIFICATE),
        "/etc/ssl/rondo/privkey.pem": str(CERTIFICATE),
        # a slow machine cannot ask as often as the page's limits allow
        "rate=50r/s": "rate=1r/s",
        "burst=200": f"burst={BURST}",
    }
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    for there, here in places.items():
        assert there in text
        text = text.replace(there, here)
    (tmp_path / "rondo.conf").write_text(text)
    (tmp_path / "nginx.conf").write_text(AROUND.format(folder=tmp_path))
    assert NGINX is not None
    process = subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
    more: dict[str, Any] = {"headers": {"Host": HOST}, "verify": False, "timeout": 30}
    try:
        with httpx2.Client(base_url=f"https://127.0.0.1:{tls}", **more) as http:
            until(lambda: _answers(http), 20, "nginx answers")
            yield Proxy(plain=plain, http=http, web=web)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _answers(http: httpx2.Client) -> bool:
    with suppress(httpx2.TransportError):
        return bool(http.get("/healthz").status_code == 200)
    return False


def plain_http_is_led_to_https(proxy: Proxy) -> None:
    answer = httpx2.get(f"http://127.0.0.1:{proxy.plain}/sign-in/?next=/x", headers={"Host": HOST})
    assert (answer.status_code, answer.headers["Location"]) == (301, f"https://{HOST}/sign-in/?next=/x")


def pages_know_that_they_came_by_https(proxy: Proxy) -> None:
    answer = proxy.http.get("/sign-in/")
    assert answer.status_code == 200
    assert "secure" in answer.headers["Set-Cookie"].lower()


def nobody_outside_reads_the_metrics_by_a_forged_address(proxy: Proxy) -> None:
    assert proxy.http.get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403


def a_stream_begins_at_once(proxy: Proxy, person: Person) -> None:
    address, began = f"/api/sessions/{person.session().pk}/events/", time.monotonic()
    headers = {"Authorization": f"Token {token_of(person.user)}"}
    with proxy.http.stream("GET", address, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert next(answer.iter_text())
        assert time.monotonic() - began < SOON


def a_body_of_more_than_2_mb_goes_no_further(proxy: Proxy) -> None:
    answer = proxy.http.post("/api/agents/", content=b"x" * (2 * 1024 * 1024 + 1))
    assert answer.headers["Server"].startswith("nginx")
    assert "Retry-After" not in is_problem(answer, 413, "too_large").headers


def is_problem(answer: httpx2.Response, status: int, code: str) -> httpx2.Response:
    """An answer of nginx that has the form of the API's."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, PROBLEM)
    told = answer.json()
    assert told | {"detail": ""} == problem_body(status, code, "")
    assert told["detail"]
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["X-Request-Id"])
    return answer


def who_asks_too_often_is_told_so(proxy: Proxy) -> None:
    answers = [proxy.http.get("/api/agents/") for _ in range(2 * BURST)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= BURST // 2  # one a second is let through
    assert is_problem(refused[0], 429, "throttled").headers["Retry-After"] == "1"


def a_web_process_that_is_away_is_said_to_be(proxy: Proxy) -> None:
    proxy.web.kill()
    answer = proxy.http.get("/api/agents/")
    assert is_problem(answer, 503, "unavailable").headers["Retry-After"] == "2"
    assert proxy.http.get("/sign-in/").status_code == 502


def test_the_proxy_of_the_page_leads_to_https_and_delays_no_stream(proxy: Proxy, person: Person) -> None:
    plain_http_is_led_to_https(proxy)
    pages_know_that_they_came_by_https(proxy)
    nobody_outside_reads_the_metrics_by_a_forged_address(proxy)
    a_body_of_more_than_2_mb_goes_no_further(proxy)
    a_stream_begins_at_once(proxy, person)
    a_web_process_that_is_away_is_said_to_be(proxy)
    who_asks_too_often_is_told_so(proxy)
