"""Who sees how the server is, the headers that every answer has, the version of the API, and the front page."""

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from config.env import EnvError, load
from interfaces.http.client_address import network_of
from interfaces.http.server.headers import ADMIN, DATA, DOCS, PAGES
from sessions_app.models import Session, SessionType
from tests.api import contract
from tests.api.conftest import Caller, for_each, problem
from tests.config.test_env import REQUIRED

pytestmark = pytest.mark.django_db

JSON = {"Accept": "application/json"}  # the other form takes a second and more to write
FAR: dict[str, Any] = {"REMOTE_ADDR": "192.0.2.7"}


def test_local_clients_see_all_details_and_remote_ones_only_readiness(ada: Caller, nobody: Client) -> None:
    for near in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert nobody.get("/metrics", REMOTE_ADDR=near).status_code == 200
        assert "checks" in nobody.get("/readyz", REMOTE_ADDR=near).json()
        assert nobody.get("/api/schema/", headers=JSON, REMOTE_ADDR=near).status_code == 200
    assert nobody.get("/metrics", **FAR).status_code == 403
    assert b"rondo_" not in nobody.get("/metrics", **FAR).content
    answer = nobody.get("/readyz", **FAR)
    assert (answer.status_code, answer.json()) == (503, {"ready": False})  # no worker runs here
    problem(nobody.get("/api/schema/", **FAR), 401, "not_authenticated")
    problem(nobody.get("/api/docs/", **FAR), 401, "not_authenticated")
    assert nobody.get("/healthz", **FAR).content == b"ok\n"
    ada.client.force_login(ada.user)
    for path, status in (("/api/schema/", 200), ("/api/docs/", 200), ("/metrics", 403)):
        assert ada.client.get(path, headers=JSON if "schema" in path else {}, **FAR).status_code == status


def test_a_proxy_on_this_machine_brings_nobody_near(nobody: Client) -> None:
    """uvicorn was not told to believe it, so that all its clients have the address of this machine."""

    def check(name: str) -> None:
        assert nobody.get("/metrics", headers={name: "192.0.2.7"}).status_code == 403
        assert nobody.get("/readyz", headers={name: "127.0.0.1"}).json().keys() == {"ready"}

    for_each(["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"], check)


def test_a_configured_token_or_network_grants_access(nobody: Client, settings: Any) -> None:
    def asked(authorization: str) -> int:
        headers = {"Authorization": authorization} if authorization else {}
        return nobody.get("/metrics", headers=headers, **FAR).status_code

    assert asked("Bearer ") == 403  # while there is none, an empty one is none
    settings.RONDO_WATCHER_TOKEN = "a-token-of-watchers"
    assert asked("Bearer a-token-of-watchers") == 200
    assert asked("bearer  a-token-of-watchers") == 200
    for wrong in (
        "Bearer a-token-of-watcher",
        "Token a-token-of-watchers",
        "Bearer",
        "a-token-of-watchers",
        "",
        "Bearer ü",
    ):
        assert asked(wrong) == 403, wrong
    for path, accepted in (("/api/schema/", JSON), ("/api/docs/", {})):
        seen = nobody.get(path, headers=accepted | {"Authorization": "Bearer a-token-of-watchers"}, **FAR)
        assert (seen.status_code, b"//cdn" in seen.content) == (200, False), path
        refused = nobody.get(path, headers={"Authorization": "Bearer a-token-of-watcher"}, **FAR)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Token")
    own = nobody.get("/api/agents/", headers={"Authorization": "Bearer a-token-of-watchers"}, **FAR)
    assert own.status_code == 401, "it shows nobody's things"
    given = REQUIRED | {"RONDO_WATCHERS": "192.0.2.0/24, 2001:db8::/32"}
    settings.RONDO_WATCHERS = load(given).rondo_watchers
    assert asked("") == 200
    assert nobody.get("/metrics", REMOTE_ADDR="127.0.0.1").status_code == 403
    with pytest.raises(EnvError, match="RONDO_WATCHERS must be addresses or networks"):
        load(REQUIRED | {"RONDO_WATCHERS": "x"})


def test_responses_have_security_headers_and_the_api_is_not_cached(ada: Caller, nobody: Client) -> None:
    session = ada.session()
    for path, policy in (
        ("/admin/login/", ADMIN),
        ("/api/docs/", DOCS),
        ("/api/schema/", DATA),
        ("/api/agents/", DATA),
        (f"/api/sessions/{session}/", DATA),
        ("/api/nothing/", DATA),
    ):
        answer = ada.get(path)
        assert answer.headers["Content-Security-Policy"] == policy, path
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "no-store" in answer.headers["Cache-Control"], path
    assert "'unsafe" not in DATA
    assert "script-src 'self';" in DOCS
    refused = ada("POST", "/api/agents/", b"x" * 1_048_577)  # refused before any view
    assert refused.status_code == 413
    for answer in (refused, nobody.get("/api/agents/")):
        expected = ("no-store", "nosniff")
        assert (answer.headers["Cache-Control"], answer.headers["X-Content-Type-Options"]) == expected


def test_pages_for_people_allow_no_script_or_style_but_files_of_ours(ada: Caller) -> None:
    ada.client.force_login(ada.user)
    page = ada.client.get(f"/sessions/{ada.session()}/")
    assert (page.status_code, page.headers["Content-Security-Policy"]) == (200, PAGES)
    assert "unsafe" not in PAGES
    assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", page.content.decode())


def test_hsts_is_told_over_https_only(nobody: Client, settings: Any) -> None:
    settings.SECURE_HSTS_SECONDS = 365 * 24 * 3600  # what HTTPS=1 means
    client = Client()  # reads the settings anew
    assert "Strict-Transport-Security" not in client.get("/healthz").headers
    assert client.get("/healthz", secure=True).headers["Strict-Transport-Security"] == "max-age=31536000"


def test_an_address_counts_for_one_customer() -> None:
    found = [network_of(each) for each in ("203.0.113.5", "::ffff:203.0.113.5", "2001:db8:1:2:3::4", "@")]
    assert found == ["203.0.113.5", "203.0.113.5", "2001:db8:1:2::/64", "@"]


def test_every_answer_names_the_version(ada: Caller, nobody: Client) -> None:
    answers = [
        ada.get("/api/sessions/"),
        ada.get("/api/sessions/", If_None_Match="*"),
        ada.get("/api/sessions/", Rondo_Version="1"),
        ada.get("/api/nowhere/"),
        ada.post("/api/agents/", b"{"),
        nobody.get("/api/sessions/"),
        nobody.get("/api/schema/", headers=JSON),
    ]
    assert [each.status_code for each in answers] == [200, 304, 200, 404, 400, 401, 200]
    assert {each.headers["Rondo-Version"] for each in answers} == {"1"}
    assert "Rondo-Version" not in nobody.get("/sign-in/").headers


def test_a_version_that_is_not_there_is_refused_and_nothing_is_done(ada: Caller) -> None:
    for version in ("2", "0", "", "1.0", "latest", "x" * 5_000):
        refused = ada.post("/api/agents/", {"name": "other"}, Rondo_Version=version)
        body = problem(refused, 400, "unknown_version")
        assert list(body["errors"]) == ["Rondo-Version"]
        assert len(refused.content) < 500
        assert refused.headers["Rondo-Version"] == "1"
    assert [each["name"] for each in ada.get("/api/agents/").json()["results"]] == ["demo"]


def test_nothing_that_clients_rely_on_was_removed_renamed_or_made_necessary(schema: Any) -> None:
    """A failure here is a new version of the API; before a release, the stored lines may be written again."""
    stored = set(contract.STORED.read_text().splitlines())
    demanded = {line for line in stored if " requires " in line}
    assert not (stored - demanded) - contract.promises(schema)
    known = {line.partition(" ")[0].partition(".")[0] for line in stored}
    new = {line for line in contract.demands(schema) - demanded if line.partition(" ")[0] in known}
    assert not new


TAKES = {"Accept-Encoding": "gzip, deflate, br"}


def test_pages_are_compressed_for_those_who_take_it(ada: Caller) -> None:
    ada.client.force_login(ada.user)
    address = f"/sessions/{ada.session()}/"
    compressed = ada.client.get(address, headers=TAKES)
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert b"<title>" in gzip.decompress(compressed.content)
    assert "Accept-Encoding" in compressed.headers["Vary"]
    assert "Content-Encoding" not in ada.client.get(address).headers


def test_static_files_are_compressed_whole(client: Client) -> None:
    found = finders.find("django_htmx/htmx-2.min.js")
    assert isinstance(found, str)
    answer = client.get("/static/django_htmx/htmx-2.min.js", headers=TAKES)
    assert answer.headers["Content-Encoding"] == "gzip"
    sent = answer.getvalue()
    assert gzip.decompress(sent) == Path(found).read_bytes()
    assert len(sent) < 20_000


def test_the_api_is_sent_as_it_is(ada: Caller) -> None:
    answer = ada.client.get("/api/schema/", headers=TAKES)
    assert "Content-Encoding" not in answer.headers
    headers = TAKES | {"Authorization": f"Token {ada.token}"}
    events = ada.client.get(f"/api/sessions/{ada.session()}/events/", headers=headers)
    assert events.headers["Content-Type"].startswith("text/event-stream")
    assert "Content-Encoding" not in events.headers
    events.close()


def test_the_front_page_asks_strangers_to_sign_in(nobody: Client, caplog: pytest.LogCaptureFixture) -> None:
    response = nobody.get("/")
    assert (response.status_code, response.headers["Location"]) == (302, "/sign-in/?next=/")
    assert nobody.get(response.headers["Location"]).status_code == 200
    assert not caplog.records


def test_the_front_page_leads_to_the_latest_conversation(ada: Caller) -> None:
    ada.client.force_login(ada.user)
    session = ada.session()
    assert ada.client.get("/").headers["Location"] == f"/sessions/{session}/"


def test_a_conversation_can_be_begun_from_every_page(ada: Caller) -> None:
    ada.client.force_login(ada.user)
    Session.objects.update(type=SessionType.HEARTBEAT)  # which the list does not show: the welcome page
    for address in ("/", "/account/"):
        page = ada.client.get(address)
        assert page.status_code == 200
        assert b'<input type="hidden" name="agent" value="demo">' in page.content, address
