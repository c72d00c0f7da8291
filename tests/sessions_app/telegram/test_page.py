"""The section of the agent's page about Telegram, in a browser and as forms."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from playwright.sync_api import expect

from sessions_app.models import TelegramBot, TelegramChat
from sessions_app.telegram.bots import redeem
from tests.bot_api import TOKEN, BotApi
from tests.browser import NEEDS_CHROMIUM, Visitor, browser, serious, served, visitor
from tests.conftest import Person, new_person

__all__ = ["browser", "served", "visitor"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.5")]
PAGE = "/agents/demo/"


def signed_in(person: Person) -> Client:
    client = Client()
    client.force_login(person.user)
    return client


@pytest.mark.full
@pytest.mark.processes
@NEEDS_CHROMIUM
def test_a_chat_is_connected_and_disconnected_on_the_page(visitor: Visitor) -> None:
    bot = TelegramBot.objects.create(
        agent=visitor.person.agent, telegram_id=1, username="rondo_test_bot", token_ciphertext="x"
    )
    page = visitor.window()
    page.goto(PAGE)
    part = page.locator("#telegram")
    expect(part).to_contain_text("@rondo_test_bot")
    part.get_by_role("button", name="Connect a chat").click()
    given = part.locator("code").inner_text().removeprefix("/start ")
    link = part.get_by_role("link", name="Open the chat").get_attribute("href")
    assert link == f"https://t.me/rondo_test_bot?start={given}"
    assert serious(page) == []
    assert redeem(bot.pk, 4001, given, "<b>Ada</b>") == ""
    page.goto(PAGE)
    expect(part.locator("code")).to_have_count(0)  # it was shown once
    part.get_by_role("button", name="Disconnect <b>Ada</b>").click()
    expect(part.get_by_role("status").first).to_contain_text("Saved")
    assert not TelegramChat.objects.exists()
    part.get_by_role("button", name="Switch off").click()
    expect(part.get_by_text("Off", exact=True)).to_be_visible()
    part.get_by_role("button", name="Delete the bot").click()
    expect(part.get_by_role("button", name="Add the bot")).to_be_visible()
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
