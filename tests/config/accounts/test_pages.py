"""Signing in at /sign-in/, signing out, and the page of one's own account."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from config.mcp_bridge import mcp_parser
from sessions_app.agents.edit import create_agent
from sessions_app.models import ApiToken
from sessions_app.sessions.open import open_session
from tests.conftest import new_person
from tests.talk import fresh

pytestmark = pytest.mark.django_db

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
    forms = ("", "password/", "tokens/", "tokens/x/revoke/")
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
