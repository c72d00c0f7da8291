"""No secret is on any page of the admin or in any answer of the API, and known ones are removed from texts."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.urls import reverse
from drf_spectacular.generators import SchemaGenerator

from agent_core.mcp.server import McpServer
from agent_core.text.redact import redact, secrets_of
from automations.models import CronJob, RunRecord, ScheduledMessage
from sessions_app.agents.edit import update_agent
from sessions_app.channels.webhook import secret_of
from sessions_app.encryption import encrypt
from sessions_app.hooks.edit import token_of
from sessions_app.models import Agent, ApiToken, Connection, TelegramBot, TelegramChat, Turn
from sessions_app.telegram import bots
from tests.admin.conftest import fill
from tests.admin.test_rights import actions_of, fill_the_rest, new_staff, signed_in
from tests.api.conftest import Caller, for_each
from tests.conftest import Person
from tests.tokens import token_of as api_token_of

MARK = "QmFzdGVsbGFuLTQ3MTE"  # in every secret that a test can choose
HEADERS = {"Authorization": f"Bearer {MARK}-of-the-server", "X-Key": f"{MARK}-of-another-header"}
BOT_TOKEN = f"123456789:{MARK}-of-the-bot"
QUERIES = ("?all=", "?_popup=1", "?q=a&o=1.2.3")
CHOSEN: dict[str, Any] = {
    "OPENAI_API_KEY": f"{MARK}-of-the-model",
    "RONDO_MAIL_SERVER": {"host": "mail.example", "password": f"{MARK}-of-the-mail-server"},
    "RONDO_NOTIFY": {"team": f"slack://{MARK}/of/chat"},
    "SECRET_KEY": f"{MARK}-that-signs",
}


@pytest.fixture
def owner(person: Person, settings: Any) -> Person:
    """Someone with a row of everything, whose every secret is marked or known to `stored_secrets`."""
    for name, value in CHOSEN.items():
        setattr(settings, name, value)
    rows = fill(person)
    address = f"https://docs.example.org/mcp?key={MARK}-of-the-address"
    docs = {"url": address, "headers": HEADERS, "trusted": True}
    update_agent(person.agent.pk, {"mcp_servers": {"docs": docs}})
    secret_of(person.agent.pk)
    bot = rows["telegrambot"]
    bot.token_ciphertext = encrypt(BOT_TOKEN, bots.PURPOSE)
    bot.save()
    bots.issue_code(bot.pk)
    TelegramChat.objects.create(bot=bot, chat_id=4001, name="Ada")
    person.user.set_password(f"{MARK}-password")
    person.user.save()
    fill_the_rest(person, rows["session"])
    return person


def stored_secrets(person: Person) -> list[str]:
    """What is secret and cannot be chosen: keys that were made, and what passwords and keys are checked with."""
    agent = Agent.objects.get(pk=person.agent.pk)
    hook, bot = agent.hooks.get(), TelegramBot.objects.get()
    assert bots.token_of(bot) == BOT_TOKEN
    return [
        MARK,
        Connection.objects.get().secret_ciphertext,
        bot.token_ciphertext,
        bot.code_sha256,
        agent.signing_secret,
        token_of(hook),
        hook.token_salt,
        hook.token_sha256,
        api_token_of(person.user),
        *ApiToken.objects.values_list("token_sha256", flat=True),
        *User.objects.exclude(password="").values_list("password", flat=True),
    ]


def pages_of(model_admin: Any) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Every address of a registered model, for each of its rows, and each of its actions."""
    meta = model_admin.model._meta
    name = f"admin:{meta.app_label}_{meta.model_name}"
    rows = [str(pk) for pk in {row.pk for row in model_admin.model._default_manager.all()[:1]}]
    assert rows, meta.label
    for query in (*QUERIES, *(["?_popup=1&_to_field=key"] if meta.pk.name == "key" else [])):
        yield reverse(f"{name}_changelist") + query, None
    for action in actions_of(model_admin):
        yield reverse(f"{name}_changelist"), {"action": action, "_selected_action": rows, "index": "0"}
    for pattern in model_admin.get_urls():
        if pattern.name:
            for row in rows if "<" in str(pattern.pattern) else [None]:
                address = reverse(f"admin:{pattern.name}", args=[row] if row else [])
                yield address, None
    for field in meta.concrete_fields:
        if field.is_relation:
            asked = {"app_label": meta.app_label, "model_name": meta.model_name, "field_name": field.name}
            yield reverse("admin:autocomplete") + "?" + "&".join(f"{k}={v}" for k, v in asked.items()), None


def everything(client: Client, *, briefly: bool) -> Iterator[tuple[str, str]]:
    """What each page of the admin and of the server shows. `briefly`: without queries and actions."""
    for address in ("admin:index", "admin:search", "admin:password_change", "admin:login", "home"):
        yield address, client.get(f"{reverse(address)}?s=a&extended=1").content.decode()
    for address in ("/readyz", "/metrics", "/api/schema/", "/api/docs/"):
        yield address, client.get(address).content.decode()
    for label in apps.app_configs:
        answer = client.get(f"/admin/{label}/")
        yield label, answer.content.decode()
    for model_admin in admin.site._registry.values():
        for address, posted in pages_of(model_admin):
            if briefly and (posted is not None or "?" in address):
                continue
            answer = client.get(address, follow=True) if posted is None else client.post(address, posted)
            yield address, answer.content.decode() + str(answer.headers) + str(answer.cookies)


def staff_of(kind: str) -> User:
    if kind == "superuser":
        return User.objects.create_superuser("boss", password=f"{MARK}-boss")
    if kind == "nobody":
        return new_staff("nothing")
    codenames = {"view": ("view_",), "change": ("view_", "change_"), "all": ("",)}[kind]
    named = [each.codename for each in Permission.objects.all() if each.codename.startswith(codenames)]
    return new_staff(kind, *named)


KINDS = ("superuser", "all", "change", "view", "nobody")


@pytest.mark.parametrize(
    ("kind", "briefly"),
    [("superuser", True), *(pytest.param(kind, False, marks=pytest.mark.full) for kind in KINDS)],
)
def test_no_page_shows_a_secret_to_any_kind_of_staff(owner: Person, kind: str, briefly: bool) -> None:
    client = signed_in(staff_of(kind))
    LogEntry.objects.create(
        user=owner.user, content_type=ContentType.objects.get_for_model(ApiToken), action_flag=ADDITION,
        object_id=owner.user.pk, object_repr=str(ApiToken.objects.get()),
    )  # fmt: skip
    secrets = stored_secrets(owner)
    texts = dict(everything(client, briefly=briefly))
    assert len(texts) > (100 if briefly else 150)
    for address, text in texts.items():
        assert not [secret for secret in secrets if secret in text], address
    assert not [each for each in LogEntry.objects.values() if any(secret in str(each) for secret in secrets)]


def test_a_page_says_only_whether_there_is_a_password(owner: Person) -> None:
    address = reverse("admin:auth_user_change", args=[owner.user.pk])
    for viewer in (signed_in(staff_of("superuser")), signed_in(staff_of("view"))):
        owner.user.set_password("right")
        owner.user.save()
        assert "A password is set." in viewer.get(address).content.decode()
        owner.user.set_unusable_password()
        owner.user.save()
        assert "No password is set." in viewer.get(address).content.decode()


def test_only_the_signing_secret_address_returns_a_secret(owner: Person) -> None:
    caller = Caller(user=owner.user, token=api_token_of(owner.user))
    session = owner.agent.sessions.get(title="A thread")
    values = {
        "name": owner.agent.name, "document": "USER.md", "session_id": session.pk,
        "turn_id": Turn.objects.get(session=session).pk, "hook_id": owner.agent.hooks.get().pk,
        "job_id": CronJob.objects.get(session=session).pk, "run_id": RunRecord.objects.get(session=session).pk,
        "connection": Connection.objects.get().name, "routine_id": "none", "revision": 1,
        "message_id": ScheduledMessage.objects.get(session=session).pk, "delivery_id": session.deliveries.first().pk,
        "execution_id": "execute1", "question_id": session.consent_questions.get().pk,
        "chat_id": TelegramChat.objects.get().chat_id, "token_id": ApiToken.objects.get(user=owner.user).pk,
    }  # fmt: skip
    secrets, asked = stored_secrets(owner), []

    def check(path: str) -> None:
        answer = caller.get(path.format(**values))
        assert answer.status_code in {200, 404}, answer.content
        asked.append(answer.status_code)
        shown = [each for each in secrets if each in answer.content.decode() + str(answer.headers)]
        assert bool(shown) is path.endswith("/signing-secret/")

    generator: Any = SchemaGenerator
    paths = generator().get_schema(public=True)["paths"]
    for_each(
        (path for path in paths if "get" in paths[path] and not path.endswith(("/events/", "/export/"))),
        check,
    )
    assert asked.count(200) > 20


def test_secrets_in_environment_variables_and_urls_are_removed_from_texts() -> None:
    environ = {
        "SECRET_KEY": "signs-browser-sessions", "OTHER_API_KEY": "key-of-another", "HOME": "/home/somebody",
        "DATABASE_URL": "postgresql://rondo:p%40ss-of-the-database@db:5432/rondo",
        "CELERY_BROKER_URL": "redis://:pass-of-the-broker@broker:6379/0",
        "EMAIL_URL": "smtp+starttls://me:pass-of-the-mail@mail:587",
        "RONDO_NOTIFY": '{"team": "slack://TokenAAAAAA/TokenBBBBBB/TokenCCCCCC/#general"}',
        "PGAPPNAME": "rondo web", "SHORT_TOKEN": "abc", "DATABASE_LOCK_URL": "postgresql://postgres:postgres@h/n",
        "PGPASSWORD": "pass-of-libpq", "AZURE_APIKEY": "key-of-azure",
    }  # fmt: skip
    secrets = secrets_of(environ)
    text = (
        "signs-browser-sessions key-of-another p@ss-of-the-database p%40ss-of-the-database pass-of-the-broker"
        " pass-of-the-mail TokenBBBBBB pass-of-libpq key-of-azure"
    )
    assert redact(text, secrets) == " ".join(["***"] * 9)
    kept = "abc postgres /home/somebody rondo web db:5432 mail:587"
    assert redact(kept, secrets) == kept


def test_secrets_in_the_address_of_a_server_are_hidden_and_removed_from_texts() -> None:
    """Everything after the first equals sign of a parameter, as it is and decoded."""
    for query, seen, secrets in (
        ("key=c2VjcmV0c2VjcmV0==", "key=***", ["c2VjcmV0c2VjcmV0==", "c2VjcmV0c2VjcmV0%3D%3D"]),
        ("key=aaa=bbb-secret", "key=***", ["aaa=bbb-secret"]),
        ("c2VjcmV0c2VjcmV0", "***", ["c2VjcmV0c2VjcmV0"]),
        ("a=&key=one%2Ftwo-three&b", "a=&key=***&***", ["one%2Ftwo-three", "one/two-three"]),
    ):
        server = McpServer(name="docs", url=f"https://docs.example.org/mcp?{query}")
        assert server.shown()["url"] == f"https://docs.example.org/mcp?{seen}"
        said = {server.without_secrets(f"you sent {secret}") for secret in secrets}
        assert said == {"you sent ***"}, query
