"""Bots: their tokens stay secret, what cannot work is refused when it is saved, nothing hangs; and their page."""

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from agent_core.text.redact import redact
from automations.jobs.explain import undeliverable
from config.operations.checks import bots_read
from sessions_app.exceptions import BadInput
from sessions_app.models import TelegramBot, TelegramChat
from sessions_app.telegram import bots, client
from sessions_app.telegram.bots import disconnect, redeem
from sessions_app.telegram.client import ApiError, client_of, wait_for
from tests.automations.web.test_addresses import signed_in
from tests.bot_api import TOKEN, BotApi
from tests.conftest import Person, new_person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.5")]
OTHER = "123456789:BBF-another-token-of-the-same-bot-for-tests"


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


PAGE = "/agents/demo/"


def test_a_chat_is_connected_and_disconnected_on_the_page(bot: TelegramBot, person: Person) -> None:
    client = signed_in(person)
    shown = client.post(f"{PAGE}telegram/code/").content.decode()
    [given] = re.findall(r"<code>/start (.+?)</code>", shown)
    assert f'href="https://t.me/rondo_test_bot?start={given}"' in shown
    assert redeem(bot.pk, 4001, given, "<b>Ada</b>") == ""
    page = client.get(PAGE).content.decode()
    assert given not in page, "it was shown once"
    assert "Disconnect &lt;b&gt;Ada&lt;/b&gt;" in page
    assert client.post(f"{PAGE}telegram/chats/4001/disconnect/").status_code == 303
    assert not TelegramChat.objects.exists()
    client.post(f"{PAGE}telegram/", {"action": "off"})
    assert not TelegramBot.objects.get().enabled
    client.post(f"{PAGE}telegram/", {"action": "delete"})
    assert "Add the bot" in client.get(PAGE).content.decode()
    assert not TelegramBot.objects.exists()


def test_a_bot_is_added_by_its_token_which_is_never_shown(api: BotApi, person: Person) -> None:
    client = signed_in(person)
    refused = client.post(f"{PAGE}telegram/", {"action": "token", "token": "123456789:" + "x" * 35})
    assert refused.status_code == 400
    assert b"Telegram does not know this token" in refused.content
    assert b"x" * 35 not in refused.content
    assert client.post(f"{PAGE}telegram/", {"action": "token", "token": TOKEN}).status_code == 303
    shown = client.get(PAGE)
    assert b"@rondo_test_bot" in shown.content
    assert TOKEN.encode() not in shown.content
    bot = TelegramBot.objects.get()
    assert TOKEN not in f"{vars(bot)} {bots.check_token(TOKEN)!r}"
    assert bots.token_of(bot) == TOKEN
    with transaction.atomic():  # the worker of the tests before reads this bot, too, and says what came of it
        TelegramBot.objects.update(last_error="another program reads the updates of this bot")
        assert b"Messages are not read: another program" in client.get(PAGE).content


def test_tokens_are_tried_a_few_times_only(api: BotApi, person: Person) -> None:
    client = signed_in(person)
    tried = [client.post(f"{PAGE}telegram/", {"action": "token", "token": "x"}) for _ in range(7)]
    assert [each.status_code for each in tried] == [400] * 6 + [429]


def test_somebody_elses_bot_is_not_touched(bot: TelegramBot, chat: int) -> None:
    eve = new_person("eve")
    eve.agent.delete()
    kept = ("enabled", "token_ciphertext", "code_sha256", "revision")
    before: Any = TelegramBot.objects.values(*kept).get()
    for path in ("telegram/", "telegram/code/", "telegram/chats/4001/disconnect/"):
        answer = signed_in(eve).post(f"{PAGE}{path}", {"action": "delete"})
        assert answer.status_code == 404, path
    assert TelegramBot.objects.values(*kept).get() == before
    assert TelegramChat.objects.exists()
