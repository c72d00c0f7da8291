"""Telegram bots through the API: made with a token that is never shown, changed, and connected by codes."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from sessions_app.models import TelegramBot, TelegramChat
from sessions_app.telegram.bots import redeem
from tests.api.conftest import Caller, made, problem
from tests.bot_api import TOKEN, BotApi, serving_bots

pytestmark = [pytest.mark.django_db, pytest.mark.rule("9.5")]
BOT = "/api/agents/demo/telegram/"


@pytest.fixture
def api(settings: Any) -> Iterator[BotApi]:
    with serving_bots(settings) as api:
        yield api


@pytest.fixture
def bot(api: BotApi, ada: Caller) -> TelegramBot:
    body = made(ada.post(BOT, {"token": TOKEN}))
    assert body["username"] == "rondo_test_bot"
    assert TOKEN not in str(body)
    return TelegramBot.objects.get()


def test_a_bot_is_made_shown_switched_and_deleted(bot: TelegramBot, ada: Caller) -> None:
    answer = ada.get(BOT)
    shown = answer.json()
    assert (shown["agent"], shown["enabled"], shown["problem"]) == ("demo", True, "")
    assert TOKEN not in answer.content.decode()
    assert ada.patch(BOT, {"enabled": False}).json()["problem"] == "the bot is switched off"
    stale = ada.patch(BOT, {"enabled": True}, If_Match=answer.headers["ETag"])
    problem(stale, 412, "revision_conflict")
    assert ada.patch(BOT, {"token": TOKEN, "enabled": True}).status_code == 200
    assert ada.delete(BOT).status_code == 204
    problem(ada.get(BOT), 404, "not_found")


def test_the_address_of_a_new_bot_is_a_url(api: BotApi, ada: Caller) -> None:
    ada.agent("日本 größe")
    name = quote("日本 größe")
    made = ada.post(f"/api/agents/{name}/telegram/", {"token": TOKEN})
    assert (made.status_code, made.headers["Location"]) == (201, f"/api/agents/{name}/telegram/")


def test_what_cannot_be_a_bot_is_refused(bot: TelegramBot, api: BotApi, ada: Caller) -> None:
    problem(ada.post(BOT, {"token": TOKEN}), 409, "bot_exists")
    ada.agent("other")
    other = "/api/agents/other/telegram/"
    problem(ada.post(other, {"token": TOKEN}), 409, "bot_taken")
    problem(ada.post(other, {"token": "123456789:" + "x" * 35}), 400, "bad_token")
    problem(ada.post(other, {"token": "x"}), 400, "bad_token")
    api.is_gone = True
    problem(ada.post(other, {"token": TOKEN}), 409, "telegram_away")
    assert TelegramBot.objects.count() == 1


def test_a_code_connects_a_chat_that_can_be_disconnected(bot: TelegramBot, ada: Caller) -> None:
    answer = ada.post(f"{BOT}code/", {})
    code = answer.json()
    assert answer.headers["Cache-Control"] == "no-store"
    assert code["link"] == f"https://t.me/rondo_test_bot?start={code['code']}"
    assert redeem(bot.pk, 4001, code["code"], "Ada") == ""
    [chat] = ada.get(f"{BOT}chats/").json()["results"]
    assert (chat["chat_id"], chat["name"], chat["blocked_at"]) == (4001, "Ada", None)
    assert ada.delete(f"{BOT}chats/4001/").status_code == 204
    problem(ada.delete(f"{BOT}chats/4001/"), 404, "not_found")
    assert not TelegramChat.objects.exists()


def test_a_session_or_a_hook_may_have_a_connected_chat_only(bot: TelegramBot, ada: Caller) -> None:
    given = {"agent": "demo", "channel": "telegram"}
    hook = {"name": "CI", "channel": "telegram", "address": "4001"}
    problem(ada.post("/api/sessions/", given | {"key": "telegram:-100123"}), 400, "bad_address")
    problem(ada.post("/api/sessions/", given | {"key": "telegram:4001"}), 400, "bad_address")
    problem(ada.post("/api/agents/demo/hooks/", hook), 400, "bad_address")
    TelegramChat.objects.create(bot=bot, chat_id=4001)
    assert made(ada.post("/api/agents/demo/hooks/", hook))["address"] == "4001"
    assert made(ada.post("/api/sessions/", given | {"key": "telegram:4001"}))["channel"] == "telegram"
