"""Signing in at /sign-in/, signing out, the page of one's own account; tokens by `manage.py` and of connection.json."""

import html
import io
import json
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from automations.jobs.edit import NewJob, create_job
from config.mcp_bridge import mcp_parser
from sessions_app.agents.edit import create_agent
from sessions_app.agents.zones import zone_of
from sessions_app.models import ApiToken
from sessions_app.postgres.connection import connect_directly
from sessions_app.postgres.notify import EVENTS
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.open import open_session
from sessions_app.tokens.issue import MOST_TOKENS, NewToken, find_token, make_token, revoke_tokens
from tests.conftest import Person, new_person
from tests.talk import fresh
from tests.tokens import new_token
from tests.up import run as in_process

pytestmark = pytest.mark.django_db

HOURLY = {"kind": "every", "seconds": 3600}
PASSWORDS = {"old_password": "right", "new_password1": "Zaphod-4711", "new_password2": "Zaphod-4711"}
HTML = {"Accept": "text/html"}


@pytest.fixture
def ada(db: None) -> User:
    """Somebody without rights in the admin."""
    return User.objects.create_user("ada", password="right")


@pytest.fixture
def client(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def sign_in(password: str = "right", **fields: str) -> Any:
    return Client().post("/sign-in/", {"username": "ada", "password": password} | fields, headers=HTML)


def test_people_who_are_no_staff_sign_in_and_out(ada: User) -> None:
    client = Client()
    assert client.get("/sign-in/").status_code == 200
    answer = client.post("/sign-in/", {"username": "ada", "password": "right"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert client.get("/account/").status_code == 200
    assert client.get("/sign-out/").status_code == 405
    assert client.get("/account/").status_code == 200
    assert client.post("/sign-out/").headers["Location"] == "/sign-in/"
    assert client.get("/account/").headers["Location"] == "/sign-in/?next=/account/"
    assert sign_in(next="/account/").headers["Location"] == "/account/"
    assert 'class="errorlist nonfield"' in sign_in("wrong").content.decode()
    User.objects.update(is_active=False)
    assert sign_in().status_code == 200


def test_the_account_page_saves_name_and_address_of_oneself(client: Client, ada: User) -> None:
    other = User.objects.create_user("bob")
    form = {"first_name": "Ada", "last_name": "Lovelace", "email": "ada@example.org"}
    rights = {"username": "root", "is_staff": "on", "is_superuser": "on", "id": str(other.pk)}
    answer = client.post("/account/", form | rights)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/account/?done=profile")
    assert b"Saved." in client.get(answer.headers["Location"]).content
    ada.refresh_from_db()
    assert (ada.first_name, ada.email, ada.username, ada.is_staff) == ("Ada", "ada@example.org", "ada", False)
    assert fresh(other).first_name == ""
    answer = client.post("/account/", {"first_name": "x" * 151, "last_name": "", "email": "nonsense"})
    assert answer.status_code == 400
    for name in ("first_name", "email"):
        assert f'aria-describedby="id_{name}_error"' in answer.content.decode()
        assert f'<ul class="errorlist" id="id_{name}_error">' in answer.content.decode()
    assert fresh(ada).email == "ada@example.org"


def test_the_first_sign_in_keeps_the_browsers_zone_and_gives_it_to_unused_agents(ada: User) -> None:
    new, used, planned = (create_agent(ada, name) for name in ("new", "used", "planned"))
    receive(open_session(used).pk, MessageInput(content="hello"), ada.pk)
    create_job(NewJob(session_id=open_session(planned).pk, message="x", schedule=HOURLY))
    for sent in ({}, {"timezone": "Mars/Olympus"}):
        assert sign_in(**sent).status_code == 302
        assert zone_of(ada.pk) == ""
    sign_in(timezone="Asia/Calcutta")  # as some browsers say
    assert [fresh(each).timezone for each in (new, used, planned)] == ["Asia/Kolkata", "UTC", "UTC"]
    sign_in(timezone="Asia/Tokyo")
    assert zone_of(ada.pk) == "Asia/Kolkata"
    assert create_agent(ada, "more").timezone == "Asia/Kolkata"
    assert create_agent(ada, "other", timezone="Asia/Tokyo").timezone == "Asia/Tokyo"


def test_the_zone_of_the_account_is_changed_to_a_known_one(client: Client, ada: User) -> None:
    for address, sent, status, kept in (
        ("/account/zone/", {"timezone": "Mars", "first": "yes"}, 204, ""),
        ("/account/zone/", {"timezone": "Europe/Kiev", "first": "yes"}, 204, "Europe/Kyiv"),
        ("/account/zone/", {"timezone": "Asia/Tokyo", "first": "yes"}, 204, "Europe/Kyiv"),
        ("/account/zone/", {"timezone": "Mars"}, 400, "Europe/Kyiv"),
        ("/account/zone/", {"timezone": "Asia/Tokyo"}, 303, "Asia/Tokyo"),
        ("/account/", {"timezone": "Mars"}, 400, "Asia/Tokyo"),
        ("/account/", {"first_name": "Ada"}, 303, "Asia/Tokyo"),
        ("/account/", {"timezone": ""}, 303, ""),
    ):
        answer = client.post(address, sent)
        assert (answer.status_code, zone_of(ada.pk)) == (status, kept)
        assert status != 400 or "IANA name" in answer.content.decode()


def test_a_new_password_signs_out_other_browsers_only(client: Client, ada: User) -> None:
    elsewhere = Client()
    elsewhere.force_login(ada)
    answer = client.post("/account/password/", PASSWORDS)
    assert answer.headers["Location"] == "/account/?done=password"
    assert fresh(ada).check_password("Zaphod-4711")
    assert client.get("/account/").status_code == 200
    assert elsewhere.get("/account/").status_code == 302


def test_a_bad_change_of_password_changes_nothing(client: Client, ada: User) -> None:
    for change, text in (
        ({"old_password": "wrong"}, "Your old password was entered incorrectly"),
        ({"new_password2": "Zaphod-4712"}, "The two password fields"),
        ({"new_password1": "short", "new_password2": "short"}, "at least 8 characters"),
        ({"new_password1": "password", "new_password2": "password"}, "too common"),
        ({"new_password1": "", "new_password2": ""}, "required"),
    ):
        answer = client.post("/account/password/", PASSWORDS | change)
        assert answer.status_code == 400, change
        assert text in answer.content.decode(), change
        assert "Zaphod" not in answer.content.decode()
    assert fresh(ada).check_password("right")


NEW_TOKEN = {"name": "phone", "scopes": ["read", "talk"], "limit": "", "life": "30"}


def api(key: str, method: str = "GET") -> int:
    headers = {"Authorization": f"Token {key}"}
    answer = Client().generic(method, "/api/agents/", b"{}", "application/json", headers=headers)
    return int(answer.status_code)


def made(answer: Any) -> str:
    """The token that the page shows."""
    [key] = re.findall(r'<p class="secret"><code>(.+?)</code>', answer.content.decode())
    return str(key)


def test_tokens_are_shown_once_listed_and_revoked(client: Client, ada: User) -> None:
    empty = client.get("/account/").content
    assert b"You have no token" in empty
    assert b"uses all of its tools" in empty  # so that nobody trusts the limits too far
    shown = client.post("/account/tokens/", NEW_TOKEN)
    first = made(shown)
    assert "no-store" in shown.headers["Cache-Control"]
    backup = NEW_TOKEN | {"name": "backup", "scopes": ["manage"], "life": ""}
    second = made(client.post("/account/tokens/", backup))
    page = client.get("/account/").content.decode()
    assert first not in page
    for text in ("phone", first[:8], "read, talk · everything", "Never used", "backup", "does not expire"):
        assert text in page
    assert (api(first), api(second)) == (200, 200)
    assert (api(first, "POST"), api(second, "POST")) == (403, 400)
    row = ApiToken.objects.get(name="phone")
    assert row.expires_at is not None
    assert 29 <= (row.expires_at - row.created_at).days <= 30
    address = f"/account/tokens/{row.pk}/revoke/"
    assert client.get(address).status_code == 405
    assert client.post(address).headers["Location"] == "/account/?done=revoked"
    assert (api(first), api(second)) == (401, 200)
    assert client.post(address).status_code == 303


def test_a_token_is_limited_to_what_is_ones_own(client: Client, ada: User) -> None:
    agent = new_person("bob").agent
    own = create_agent(ada, "mine")
    theirs = (f"agent:{agent.name}", f"session:{open_session(agent).pk}", "agent:nobody", "x")
    values = {"name": ("", "a" * 65), "scopes": ([], ["all"]), "life": ("1",), "limit": theirs}
    for change in ({name: value} for name, wrong in values.items() for value in wrong):
        answer = client.post("/account/tokens/", NEW_TOKEN | change)
        assert answer.status_code == 400, change
        assert b"errorlist" in answer.content, change
        assert "name" in change or b'value="phone"' in answer.content, "what was typed is kept"
    assert not ApiToken.objects.exists()
    session = open_session(own, title="Plans")
    made(client.post("/account/tokens/", NEW_TOKEN | {"limit": f"session:{session.pk}"}))
    made(client.post("/account/tokens/", NEW_TOKEN | {"limit": "agent:mine"}))
    page = client.get("/account/").content.decode()
    assert "only conversation Plans" in page
    assert "only agent mine" in page
    token = ApiToken.objects.get(session=session)
    client.force_login(User.objects.create_user("carol"))
    client.post(f"/account/tokens/{token.pk}/revoke/")
    assert ApiToken.objects.filter(pk=token.pk).exists()


def test_nothing_of_an_account_is_changed_from_elsewhere(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    forms = ("", "password/", "zone/", "tokens/", "tokens/x/revoke/", "calendar/")
    for address in ("/sign-out/", *(f"/account/{form}" for form in forms)):
        assert client.post(address, PASSWORDS).status_code == 403, address
        assert Client().post(address).headers["Location"].startswith("/sign-in/"), address


def test_the_account_has_settings_for_mcp_clients(client: Client, settings: Any) -> None:
    page = html.unescape(client.get("/account/").content.decode())
    shown = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    http, program = (json.loads(each)["mcpServers"]["rondo"] for each in shown)
    assert http["url"] == "http://testserver/mcp"
    assert program["command"] == "rondo"
    assert program["args"][0] == "mcp"
    mcp_parser().parse_args(program["args"][1:])
    assert program["env"].keys() == {"RONDO_URL", "RONDO_TOKEN"}
    settings.RONDO_DOORS = ()
    assert "mcpServers" not in client.get("/account/").content.decode()


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("token", *words, stdout=out)
    return out.getvalue().strip()


def test_the_command_makes_lists_and_revokes(person: Person) -> None:
    session = open_session(person.agent)
    wide = run("make", "backup", "--user", "ada", "--scope", "read", "--scope", "schedule")
    narrow = run("make", "phone", "--user", "ada", "--scope", "talk", "--days", "3",
                 "--session", str(session.pk))  # fmt: skip
    for token, found in ((wide, 200), (narrow, 200)):
        headers = {"Authorization": f"Token {token}"}
        assert Client().get(f"/api/sessions/{session.pk}/", headers=headers).status_code == found
    first, second = run("list", "--user", "ada").splitlines()
    for word in (wide[:8], "read,schedule", "everything", "does not expire", "used 20", "backup"):
        assert word in first
    assert f"session {session.pk}" in second
    assert "expires 20" in second
    assert wide not in first
    run("revoke", first.split()[0], "--user", "ada")
    assert ApiToken.objects.get().name == "phone"


def test_what_is_wrong_is_said_and_nothing_is_made(person: Person) -> None:
    theirs = str(open_session(new_person("bob").agent).pk)
    make = ("make", "x", "--user", "ada", "--scope", "read")
    for words, text in (
        (("list", "--user", "nobody"), "no user 'nobody'"),
        ((*make, "--scope", "root"), "invalid choice"),
        ((*make, "--days", "0"), "must be 1 to"),
        ((*make, "--agent", "theirs"), "no such agent"),
        ((*make, "--session", theirs), "no such session"),
        (("make", "x" * 65, *make[2:]), "longer than"),
        (("revoke", "none", "--user", "ada"), "no token 'none'"),
    ):
        with pytest.raises(CommandError, match=text):
            run(*words)
        assert not ApiToken.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_revocation_is_told_to_open_streams_before_the_command_ends(person: Person) -> None:
    token, _ = make_token(person.user, NewToken(name="phone", scopes=["read"]))
    command = (sys.executable, "manage.py", "token", "revoke", str(token.pk), "--user", "ada")
    with connect_directly(settings.DATABASE_LOCK_URL) as listening:
        listening.execute(f"LISTEN {EVENTS}")
        in_process(*command, check=True)
        with closing(listening.notifies(timeout=0.5)) as notes:  # it was sent already
            assert any(json.loads(note.payload) == {"look": "all"} for note in notes)


KNOWN = "of-the-data-folder"


@pytest.fixture
def _data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ADMIN_USER", "admin"), ("ADMIN_PASSWORD", "pw"), ("API_TOKEN", KNOWN)):
        monkeypatch.setenv(f"RONDO_{name}", value)
    monkeypatch.setattr("config.management.commands.bootstrap.call_command", lambda *_, **__: None)  # migrate


def started(folder: Path) -> str:
    """The token after another start."""
    call_command("bootstrap", "--output", str(folder / "made.json"))
    return str(json.loads((folder / "made.json").read_text())["token"])


@pytest.mark.usefixtures("_data_folder")
def test_each_start_has_the_same_token_until_it_is_revoked(tmp_path: Path) -> None:
    assert started(tmp_path) == started(tmp_path) == KNOWN
    found = find_token(KNOWN)
    assert found is not None
    assert (found.user.username, found.manages_account, found.expires_at) == ("admin", True, None)
    other = new_token(found.user, "read")
    revoke_tokens(ApiToken.objects.filter(pk=found.pk))
    second, third = started(tmp_path), started(tmp_path)
    assert len({KNOWN, second, third}) == 3  # the revoked one is not made again
    alive = [each for each in (KNOWN, second, third, other) if find_token(each) is not None]
    assert alive == [third, other]
    assert ApiToken.objects.count() == 2  # those of earlier starts do not pile up


@pytest.mark.usefixtures("_data_folder")
def test_a_full_list_of_tokens_is_said(tmp_path: Path) -> None:
    started(tmp_path)
    user = User.objects.get()
    revoke_tokens(ApiToken.objects.all())
    for number in range(MOST_TOKENS):
        new_token(user, "read", name=str(number))
    with pytest.raises(CommandError, match="a user has at most"):
        started(tmp_path)
