"""The second person of a server: an invitation, the first agent, a new password by mail."""

import re
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from interfaces.http.sign_in import BY_ADDRESS
from sessions_app.agents.invitations import MOST_OPEN, VALID, invite, join
from sessions_app.models import Agent, Allowance, Invitation, Session
from tests.automations.jobs.made import at_once
from tests.fleet import until
from tests.sessions_app.deliveries.receivers import mail_server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.7")]
GOOD = "Zaphod-4711"


def form(name: str = "bob", password: str = GOOD, **more: str) -> dict[str, str]:
    return {"username": name, "password1": password, "password2": password} | more


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_somebody_without_rights_makes_an_agent_and_lands_in_its_conversation() -> None:
    bob = User.objects.create_user("bob")
    client = signed_in(bob)
    for address in ("/", "/agents/", "/agents/-/new/"):
        assert 'action="/agents/-/new/"' in client.get(address).content.decode()
    answer = client.post("/agents/-/new/", {"name": "helper", "timezone": "Asia/Tokyo"})
    agent = Agent.objects.get(owner=bob)
    assert answer.headers["Location"] == f"/sessions/{Session.objects.get(agent=agent).pk}/"
    assert (agent.timezone, agent.model, agent.heartbeat["enabled"]) == ("Asia/Tokyo", "", False)
    for name in ("helper", "", "-", "a/b", "x" * 65):
        answer = client.post("/agents/-/new/", {"name": name})
        assert (answer.status_code, b'class="errorlist"' in answer.content) == (400, True), name
    assert Agent.objects.filter(owner=bob).count() == 1


def test_an_invitation_makes_one_account_with_an_agent_and_without_rights(boss: User) -> None:
    page = signed_in(boss).post("/account/invitations/").content.decode()
    path = re.findall(r"http://testserver(/join/[^<]+)<", page)[0]
    assert path[6:-1] not in str(list(Invitation.objects.values()))
    for bad in (form("boss"), form("BOSS"), form(password="12345678"), form("a b"), {}):
        assert Client().post(path, bad).status_code == (200 if not bad else 400), bad
    client = Client()
    assert client.post(path, form(timezone="Asia/Tokyo", is_staff="on")).headers["Location"] == "/"
    bob = User.objects.get(username="bob")
    assert client.session["_auth_user_id"] == str(bob.pk)
    assert (bob.is_staff, bob.is_superuser, Agent.objects.get(owner=bob).timezone) == (
        False,
        False,
        "Asia/Tokyo",
    )
    assert [Client().get(path).status_code, Client().post(path, form("eve")).status_code] == [410, 410]
    assert Invitation.objects.get().used_by == bob
    assert client.post("/account/invitations/").status_code == 404
    assert "Invite somebody" not in client.get("/account/").content.decode()
    for wrong in ({"token_sha256": "x"}, {"used_at": None}, {"used_at": timezone.now() + 2 * VALID}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Invitation.objects.update(**wrong)


def test_of_many_who_use_one_invitation_at_once_one_gets_an_account(boss: User) -> None:
    token = invite(boss)  # not by the page, which lets one after the other set a password
    came = at_once(*(partial(join, token, User(username=f"u{n}", password="x"), "") for n in range(6)))
    assert sorted(came) == [False] * 5 + [True]
    assert User.objects.exclude(pk=boss.pk).count() == Agent.objects.count() == 1


def test_an_invitation_ends_and_is_bounded(boss: User) -> None:
    admin, path = signed_in(boss), f"/join/{invite(boss)}/"
    other = signed_in(User.objects.create_user("chief", is_staff=True))
    pk = Invitation.objects.get().pk
    for client, left in ((other, 1), (admin, 0)):
        assert client.post(f"/account/invitations/{pk}/revoke/").status_code == 303
        assert Invitation.objects.count() == left
    assert Client().post(path, form()).status_code == 410
    path = f"/join/{invite(boss)}/"
    for change, back in (
        ({"is_active": False}, {"is_active": True}),
        ({"is_staff": False, "is_superuser": False}, {"is_staff": True}),
    ):
        User.objects.filter(pk=boss.pk).update(**change)
        assert Client().get(path).status_code == 410
        User.objects.filter(pk=boss.pk).update(**back)
    assert Client().get(path).status_code == 200
    created = timezone.now() - 2 * VALID
    Invitation.objects.update(created_at=created, expires_at=created + VALID)
    assert Client().post(path, form()).status_code == 410
    for _ in range(MOST_OPEN):
        assert admin.post("/account/invitations/").status_code == 200
    assert admin.post("/account/invitations/").status_code == 400
    tries = [Client().post("/join/guess/", form()).status_code for _ in range(BY_ADDRESS.limit)]
    assert tries[-1] == 429


def test_a_password_comes_by_mail_only_to_its_owner_and_once(settings: Any) -> None:
    ada = User.objects.create_user("ada", email="ada@example.org", password="right")
    elsewhere = signed_in(ada)  # a later sign-in would end the link
    assert Client().get("/password/").status_code == 404
    with mail_server() as server:
        settings.RONDO_MAIL_SERVER = settings.RONDO_MAIL_SERVER | {"host": "127.0.0.1", "port": server.port}
        assert 'href="/password/"' in Client().get("/sign-in/").content.decode()
        User.objects.create_user("bob", email="bob@example.org", password="right")
        addresses = ["no@example.org", *["ada@example.org"] * 5, "bob@example.org"]
        asked = [Client().post("/password/", {"email": each}) for each in addresses]
        assert {(each.status_code, each.headers["Location"]) for each in asked} == {(302, "/password/sent/")}
        until(lambda: [each for each in server.letters if each["To"] == "bob@example.org"])  # the last one
    assert len(server.letters) == 4
    assert (
        Allowance.objects.filter(key__startswith="reset:").count() == 3
    )  # nobody's costs the same statements
    path = re.findall(r"http://testserver(/password/\S+)", server.letters[0].get_content())[0]
    client = Client()
    page = client.get(path, follow=True)
    chosen = {"new_password1": GOOD, "new_password2": GOOD}
    assert client.post(page.redirect_chain[-1][0], chosen).headers["Location"] == "/"
    assert client.get("/account/").status_code == 200
    assert elsewhere.get("/account/").status_code == 302
    assert User.objects.get(pk=ada.pk).check_password(GOOD)
    assert "no longer works" in Client().get(path, follow=True).content.decode()
    settings.ALLOWED_HOSTS = ["*"]  # a link would name whatever host the request named
    assert Client().get("/password/").status_code == 404
