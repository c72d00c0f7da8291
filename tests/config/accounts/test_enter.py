"""Links that sign in once. Ways to trick them, each with a test here:

1. A preview, a prefetch or a scanner opens the link first: only the button of the page uses it up.
2. A used link is opened again, or an expired one; or two open it at once: one conditional UPDATE decides.
3. Somebody elsewhere has the link, or a proxy brings them to this machine, or a name that was pointed at it (DNS
   rebinding): only loopback addresses and names without a proxy's headers count.
4. The token leaks by the Referer of the page's own requests, or by the access log.
5. A page elsewhere posts the form for a visitor (login CSRF), or shows it in a frame.
6. A session id that was planted before signs in, too (session fixation); or the session of another user goes on.
7. The link leads elsewhere (`?next=`), signs in somebody who may no longer sign in, or is guessed.
"""

import io
import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session as BrowserSession
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.db.models import F
from django.test import Client

from interfaces.http.sign_in import issue
from sessions_app.agents.zones import zone_of
from sessions_app.models import SignInLink
from tests.automations.jobs.made import at_once

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.4")]

NEAR: dict[str, Any] = {"REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "127.0.0.1:8000"}
FIELD = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


def is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def age(minutes: float) -> None:
    """As if the links had been made so long ago."""
    delta = timedelta(minutes=minutes)
    SignInLink.objects.update(created_at=F("created_at") - delta, expires_at=F("expires_at") - delta)


def test_the_button_signs_in_and_leads_to_the_front_page(boss: User) -> None:
    client, path = Client(**NEAR), issue(boss)
    page = client.get(path)
    assert page.status_code == 200
    assert path.split("/")[2] not in page.content.decode()
    sent = {"next": "//elsewhere.example", "timezone": "Asia/Kolkata"}
    answer = client.post(f"{path}?next=https://elsewhere.example/", sent)
    assert zone_of(boss.pk) == "Asia/Kolkata"
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert client.session["_auth_user_id"] == str(boss.pk)
    assert client.get("/account/").status_code == 200


def test_only_the_button_uses_the_link_up_and_then_it_says_what_to_do(boss: User) -> None:
    path = issue(boss)
    for _ in range(3):
        assert Client(**NEAR).get(path, headers={"Sec-Purpose": "prefetch"}).status_code == 200
        assert Client(**NEAR).head(path).status_code == 200
    assert SignInLink.objects.filter(used_at=None).exists()
    assert Client(**NEAR).post(path).status_code == 303
    for method in ("get", "post"):
        client = Client(**NEAR)
        answer = getattr(client, method)(path)
        assert answer.status_code == 410
        assert b"manage.py sign_in_link" in answer.content
        assert b'href="/sign-in/"' in answer.content
        assert not is_signed_in(client)


def test_a_late_link_a_wrong_one_and_one_of_an_inactive_user_are_dead(boss: User) -> None:
    path, client = issue(boss), Client(**NEAR)

    def answers() -> tuple[int, int]:
        return client.get(path).status_code, client.post(path).status_code

    User.objects.update(is_active=False)
    assert answers() == (410, 410)
    User.objects.update(is_active=True)
    age(9.9)
    assert client.get(path).status_code == 200
    age(0.2)
    assert answers() == (410, 410)
    for token in ("x", "A" * 43, "A" * 5000, "%00", "..%2f..", "é" * 43):
        assert client.post(f"/enter/{token}/").status_code in {404, 410}, token
    assert not is_signed_in(client)
    assert SignInLink.objects.get().used_at is None


def test_only_this_machine_without_a_proxy_redeems(boss: User, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    path = issue(boss)
    proxies = ("X_FORWARDED_FOR", "X_FORWARDED_HOST", "X_REAL_IP", "VIA", "FORWARDED", "CF_CONNECTING_IP")
    for elsewhere in (
        {"REMOTE_ADDR": "192.0.2.7"},
        {"REMOTE_ADDR": ""},
        {"HTTP_HOST": "rondo.example"},
        {"HTTP_HOST": "127.0.0.1.rondo.example"},
        *({f"HTTP_{name}": "127.0.0.1"} for name in (*proxies, "TRUE_CLIENT_IP")),
    ):
        client = Client(**(NEAR | elsewhere))
        assert (client.get(path).status_code, client.post(path).status_code) == (403, 403), elsewhere
        assert not is_signed_in(client)
    for name in ("127.0.0.1", "localhost:8000", "[::1]:8000"):
        assert Client(**(NEAR | {"HTTP_HOST": name})).get(path).status_code == 200
    assert Client(**(NEAR | {"REMOTE_ADDR": "::1"})).post(path).status_code == 303


def test_another_page_can_neither_post_nor_frame_the_form(boss: User) -> None:
    path, client = issue(boss), Client(**NEAR, enforce_csrf_checks=True)
    page = client.get(path)
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert page.headers["Referrer-Policy"] == "strict-origin"
    assert "no-store" in page.headers["Cache-Control"]
    found = FIELD.search(page.content.decode())
    assert found
    form = {"csrfmiddlewaretoken": found[1]}
    assert client.post(path).status_code == 403
    assert client.post(path, form, headers={"Origin": "https://elsewhere.example"}).status_code == 403
    assert client.post(path, form, headers={"Origin": "http://127.0.0.1:8000"}).status_code == 303


def test_no_session_from_before_signs_in_or_stays(boss: User) -> None:
    planted = Client(**NEAR)
    planted.force_login(User.objects.create_user("eve"))
    planted.session["drafts"] = "eve's"
    before = planted.session.session_key
    assert planted.post(issue(boss)).status_code == 303
    assert planted.session["_auth_user_id"] == str(boss.pk)
    assert planted.session.session_key != before
    assert not BrowserSession.objects.filter(session_key=before).exists()


def test_the_database_has_only_the_hash(boss: User) -> None:
    token = issue(boss).split("/")[2]
    assert len(token) == 43
    assert token not in str(list(SignInLink.objects.values()))
    link = SignInLink.objects.get()
    for wrong in ({"token_sha256": token}, {"expires_at": link.created_at}, {"used_at": link.expires_at}):
        with pytest.raises(IntegrityError), transaction.atomic():
            SignInLink.objects.update(**wrong)


def test_the_command_prints_a_link_of_the_only_administrator(boss: User) -> None:
    out = io.StringIO()
    call_command("sign_in_link", "--url", "http://127.0.0.1:9000/", stdout=out)
    link = out.getvalue().strip()
    assert link.startswith("http://127.0.0.1:9000/enter/")
    assert Client(**NEAR).post(link.removeprefix("http://127.0.0.1:9000")).status_code == 303
    User.objects.create_superuser("chief")
    with pytest.raises(CommandError, match="several active superusers; name a user with --user"):
        call_command("sign_in_link")
    with pytest.raises(CommandError, match="no active user 'nobody'"):
        call_command("sign_in_link", "--user", "nobody")
    call_command("sign_in_link", "--user", "chief", stdout=out)
    assert SignInLink.objects.filter(user__username="chief").count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_is_signed_in(boss: User) -> None:
    path = issue(boss)
    answers = at_once(*(partial(Client(**NEAR).post, path) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [303] + [410] * 7
    assert BrowserSession.objects.count() == 1
