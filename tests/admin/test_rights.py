"""Who may do what in the admin: nobody raises their own rights, and who may only look changes nothing."""

from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from sessions_app.models import (
    Allowance,
    ApiToken,
    Counter,
    Delivery,
    DeliveryState,
    ExecutionState,
    Preference,
    Session,
    Turn,
    TurnState,
)
from tests.admin.conftest import act, fill, make_turn, url
from tests.conftest import Person
from tests.tokens import token_of

SECRET_LOOKUPS = (
    ("sessions_app_agent", "mcp_servers__docs__headers__Authorization__startswith"),
    ("sessions_app_agent", "signing_secret__startswith"),
    ("sessions_app_agent", "owner__password__startswith"),
    ("sessions_app_connection", "secret_ciphertext__startswith"),
    ("sessions_app_hook", "token_salt__gt"),
    ("sessions_app_hook", "token_sha256__startswith"),
    ("sessions_app_session", "agent__signing_secret__startswith"),
    ("sessions_app_apitoken", "token_sha256__startswith"),
    ("auth_user", "password__startswith"),
    ("auth_user", "api_tokens__token_sha256__startswith"),
)


def new_staff(name: str, *codenames: str) -> User:
    """A member of the staff with these permissions; `*` is every one that there is."""
    user = User.objects.create_user(name, password="pw", is_staff=True)
    chosen = Permission.objects.all()
    user.user_permissions.set(chosen if "*" in codenames else chosen.filter(codename__in=codenames))
    return user


def signed_in(user: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


@pytest.fixture
def clerk(db: None) -> User:
    """Has every permission of Django's and is no superuser."""
    return new_staff("clerk", "*")


@pytest.fixture
def viewer(db: None) -> User:
    """May look at everything and change nothing."""
    codenames = Permission.objects.filter(codename__startswith="view_").values_list("codename", flat=True)
    return new_staff("viewer", *codenames)


def form_of(user: User, **given: Any) -> dict[str, Any]:
    return {"username": user.username, "email": user.email, "is_active": "on", "first_name": ""} | given


EVERYTHING = {"is_superuser": "on", "is_staff": "on"}
PASSWORD = {"password1": "x9-tuckahoe", "password2": "x9-tuckahoe", "usable_password": "true"}


def rights(user: User) -> tuple[Any, ...]:
    columns = ("is_superuser", "is_staff", "is_active", "password", "email")
    related = (user.groups, user.user_permissions)
    own = User.objects.values_list(*columns).get(pk=user.pk)
    return (*own, *(sorted(each.values_list("pk", flat=True)) for each in related))


def test_staff_cannot_raise_their_own_or_other_users_rights(clerk: User) -> None:
    group = Group.objects.create(name="all")
    eve = User.objects.create_user("eve", email="eve@example.org")
    client = signed_in(clerk)
    more = EVERYTHING | {"groups": [group.pk], "user_permissions": [Permission.objects.all()[0].pk]}
    before = rights(clerk), rights(eve)
    assert client.post(url(clerk, "change"), form_of(clerk, **more)).status_code == 403
    saved = client.post(url(eve, "change"), form_of(eve, **more))
    assert saved.status_code == 302  # without the rights
    assert (rights(clerk), rights(eve)) == before
    made = {"username": "mallory"} | PASSWORD
    assert client.post(url(eve, "add"), made | more).status_code == 302
    assert rights(User.objects.get(username="mallory"))[:2] == (False, False)
    # an ordinary user's account is still theirs to change
    assert client.post(url(eve, "change"), form_of(eve, email="new@example.org")).status_code == 302
    assert rights(eve)[4] == "new@example.org"
    assert client.post(reverse("admin:auth_user_password_change", args=[eve.pk]), PASSWORD).status_code == 302
    assert User.objects.get(pk=eve.pk).check_password("x9-tuckahoe")
    assert client.post(url(eve, "delete"), {"confirmed": "yes"}).status_code == 302
    assert not User.objects.filter(pk=eve.pk).exists()


def test_accounts_of_staff_and_superusers_are_superusers_to_change(clerk: User, boss: User) -> None:
    client = signed_in(clerk)
    colleague = new_staff("colleague", "view_agent")
    for user in (boss, colleague, clerk):
        before = rights(user)
        password = reverse("admin:auth_user_password_change", args=[user.pk])
        assert client.get(password).status_code == 403
        assert client.post(password, PASSWORD).status_code == 403
        assert client.post(url(user, "change"), form_of(user, email="eve@example.org")).status_code == 403
        gone = form_of(user)
        del gone["is_active"]
        assert client.post(url(user, "change"), gone).status_code == 403
        assert client.post(url(user, "delete"), {"confirmed": "yes"}).status_code == 403
        assert act(client, "delete_selected", user, confirmed="yes").status_code == 403
        assert rights(user) == before
        assert client.get(url(user, "change")).status_code == 200  # looking is another permission


def test_only_superusers_change_groups_and_give_rights(clerk: User, boss: User) -> None:
    group = Group.objects.create(name="clerks")
    clerk.groups.add(group)
    client = signed_in(clerk)
    everything = {"name": "clerks", "permissions": list(Permission.objects.values_list("pk", flat=True))}
    assert client.post(url(group, "change"), everything).status_code == 403
    assert client.post(url(group, "add"), everything | {"name": "more"}).status_code == 403
    assert client.post(url(group, "delete"), {"post": "yes"}).status_code == 403
    assert act(client, "delete_selected", group, post="yes").status_code == 403
    assert list(Group.objects.values_list("name", flat=True)) == ["clerks"]
    assert not group.permissions.exists()
    client = signed_in(boss)
    assert client.post(url(group, "change"), everything).status_code == 302
    assert group.permissions.exists()
    assert client.post(url(clerk, "change"), form_of(clerk, **EVERYTHING)).status_code == 302
    assert rights(clerk)[:2] == (True, True)


def test_staff_cannot_revoke_tokens_of_users_with_more_rights(clerk: User, boss: User) -> None:
    eve = User.objects.create_user("eve")
    tokens = {user.username: token_of(user) for user in (boss, clerk, new_staff("colleague"), eve)}
    chosen = list(ApiToken.objects.all())
    answer = act(signed_in(clerk), "revoke", *chosen)
    left = set(ApiToken.objects.values_list("user__username", flat=True))
    assert left == {"boss", "colleague"}
    assert "Only superusers revoke" in answer.content.decode()
    assert not [token for token in tokens.values() if token in answer.content.decode()]
    act(signed_in(User.objects.create_superuser("root")), "revoke", *chosen)
    assert not ApiToken.objects.exists()


def state_of_everything() -> dict[str, Any]:
    """All rows of all tables of ours and of accounts, save what signing in and looking write."""
    models = [model for label in ("sessions_app", "automations", "auth", "admin") for model in
              apps.get_app_config(label).get_models()]  # fmt: skip
    found = {}
    for counted in (Allowance, Counter):  # a page that is looked at counts; so do sums of earlier tests
        models.remove(counted)
    with connection.cursor() as cursor:
        for model in models:
            cursor.execute(f'SELECT t::text FROM "{model._meta.db_table}" t ORDER BY 1')
            found[model._meta.label] = cursor.fetchall()
    return found


def actions_of(model_admin: Any) -> set[str]:
    """Every action of a page, whoever may take it."""
    named = {each if isinstance(each, str) else each.__name__ for each in model_admin.actions or ()}
    return named | {"delete_selected", "no_such_action"}


def fill_the_rest(person: Person, session: Session) -> None:
    """Rows that `fill` leaves out."""
    token_of(person.user)
    Group.objects.create(name="group")
    Preference.objects.create(agent=person.agent, user=person.user, content="short answers")
    ExecutionState.objects.create(
        id="execute1", session=session, source="message", status="waiting_user", request="do",
        question="which?", asked_at="2026-11-21T00:00:00Z",
    )  # fmt: skip


@pytest.mark.long("every action and form of the admin")
def test_view_only_staff_cannot_run_actions_or_submit_forms(viewer: User, person: Person) -> None:
    """Every action and every address of every registered page, so that new ones are looked at, too."""
    session = fill(person)["session"]
    make_turn(session, TurnState.QUEUED)
    Delivery.objects.update(state=DeliveryState.FAILED, last_error="gone")
    fill_the_rest(person, session)
    client, anybody = signed_in(viewer), signed_in(new_staff("anybody"))
    before = state_of_everything()
    asked = 0
    for model, model_admin in admin.site._registry.items():
        rows = [str(pk) for pk in {row.pk for row in model_admin.model._default_manager.all()[:5]}]
        assert rows, model
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        changelist = reverse(f"admin:{name}_changelist")
        needs_permission = model in {User, Group, ApiToken}  # others are shown to all staff
        assert (anybody.get(changelist).status_code == 403) is needs_permission, name
        for action in actions_of(model_admin):
            for more in ({}, {"select_across": "1"}, {"confirmed": "yes", "post": "yes"}):
                data = {"action": action, "_selected_action": rows, "index": "0"} | more
                assert client.post(changelist, data).status_code == 403, (name, action)
                asked += 1
        for pattern in model_admin.get_urls():
            if pattern.name is None or pattern.name.endswith(("_changelist", "_history")):
                continue
            for row in rows:
                wants = [row] if "<" in str(pattern.pattern) else []
                address = reverse(f"admin:{pattern.name}", args=wants)
                data = {"post": "yes", "confirmed": "yes", "title": "x", "name": "x", "is_superuser": "on"}
                assert client.post(address, data).status_code == 403, address
                asked += 1
    assert asked > 200
    assert state_of_everything() == before
    assert Turn.objects.filter(state=TurnState.QUEUED, cancel_requested_at=None).count() == 1


def test_a_list_cannot_be_filtered_by_a_secret(viewer: User, person: Person) -> None:
    for page, lookup in SECRET_LOOKUPS:
        answer = signed_in(viewer).get(reverse(f"admin:{page}_changelist"), {lookup: "a"})
        assert answer.status_code == 400, lookup
