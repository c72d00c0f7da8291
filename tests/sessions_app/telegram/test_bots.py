"""Bots: their tokens stay secret, what cannot work is refused when it is saved, and nothing hangs."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from agent_core.text.redact import redact
from automations.jobs.explain import undeliverable
from config.operations.checks import bots_read
from sessions_app.exceptions import BadInput
from sessions_app.models import TelegramBot, TelegramChat
from sessions_app.telegram import bots, client
from sessions_app.telegram.bots import disconnect
from sessions_app.telegram.client import ApiError, client_of, wait_for
from tests.bot_api import TOKEN, BotApi
from tests.conftest import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.5")]
OTHER = "123456789:BBF-another-token-of-the-same-bot-for-tests"


def test_a_token_is_stored_as_ciphertext_and_shown_nowhere(bot: TelegramBot) -> None:
    bot.refresh_from_db()
    assert TOKEN not in str(vars(bot))
    assert bots.token_of(bot) == TOKEN
    assert TOKEN not in repr(bots.check_token(TOKEN))


def test_a_token_is_removed_from_texts() -> None:
    for text in (
        f"POST https://api.telegram.org/bot{TOKEN}/getUpdates failed",
        f"The token `{TOKEN}` was rejected by the server.",
        f"https://bots.example/bot{TOKEN.replace(':', '%3A')}/getMe",
    ):
        assert TOKEN.partition(":")[2] not in redact(text)


def test_what_is_no_token_is_refused_before_anything_is_sent(api: BotApi) -> None:
    for token in ("", "abc", "123:short", f"{TOKEN}\n", f"{TOKEN}/../x", "1" * 300):
        with pytest.raises(BadInput, match="does not look like one"):
            bots.check_token(token)
    assert api.calls == {}


def test_without_the_extra_a_bot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bots, "is_installed", lambda: False)
    with pytest.raises(BadInput, match="the extra 'telegram'") as refused:
        bots.check_token(TOKEN)
    assert refused.value.code == "missing_extra"


def test_another_bots_token_disconnects_the_chats(api: BotApi, bot: TelegramBot, chat: int) -> None:
    bots.update_bot(bot.pk, checked=bots.check_token(TOKEN))
    assert TelegramChat.objects.count() == 1
    other = bots.CheckedToken(token=OTHER, telegram_id=5, username="other")
    bots.update_bot(bot.pk, checked=other)
    assert not TelegramChat.objects.exists()


def test_a_bot_goes_with_its_agent(bot: TelegramBot, chat: int, person: Person) -> None:
    from sessions_app.sessions.delete import delete_agent

    delete_agent(person.agent.pk, with_dependents=True)
    assert not TelegramBot.objects.exists()
    assert not TelegramChat.objects.exists()


@pytest.mark.parametrize("call", ["me", "updates"])
def test_a_server_that_hangs_is_given_up(api: BotApi, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(client, "ANSWER", 0.5)
    monkeypatch.setattr(client, "CONNECT", 0.5)
    asked = client.Client(TOKEN)
    with api.hanging("getMe", "getUpdates"):
        began = time.monotonic()
        with pytest.raises(ApiError, match="in time"):
            wait_for(asked.me() if call == "me" else asked.updates(None, 1), 10)
        assert time.monotonic() - began < 5


def test_an_error_does_not_carry_the_librarys_text(api: BotApi) -> None:
    for status in (400, 401, 403, 404, 409, 429, 500, 502):
        api.fail("sendMessage", status, retry_after=1 if status == 429 else 0)
        with pytest.raises(ApiError) as caught:
            wait_for(client_of(TOKEN).send(1, "hello"))
        error = caught.value
        assert TOKEN not in str(error)
        assert error.__suppress_context__


@pytest.mark.rule("10.2")
def test_doctor_and_explain_name_bots_that_do_not_work(bot: TelegramBot, chat: int, person: Person) -> None:
    session = person.session(key=f"telegram:{chat}")
    assert bots_read().ok  # it is new
    TelegramBot.objects.update(created_at=Now() - timedelta(minutes=5))
    assert "@rondo_test_bot: no worker has read them yet" in bots_read().detail
    bots.note_state(bot.pk, bot.revision, "")  # as the first answer to a poll does
    assert bots_read().ok
    assert undeliverable(session) == []
    TelegramBot.objects.update(last_error="another program reads the updates of this bot")
    assert "@rondo_test_bot: another program" in bots_read().detail
    assert "another program" in undeliverable(session)[0]
    TelegramBot.objects.update(last_error="")
    TelegramChat.objects.update(blocked_at=Now())
    assert "the person has blocked the bot" in undeliverable(session)[0]
    disconnect(bot.pk, chat)
    assert bots_read().detail == f"sessions whose chat is not connected: telegram:{chat}"
    assert "not connected to the agent" in undeliverable(session)[0]
