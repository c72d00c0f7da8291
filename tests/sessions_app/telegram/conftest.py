"""Somebody whose agent has a bot, and the Bot API server that it talks with."""

from collections.abc import Iterator
from typing import Any

import pytest
from telegram import Update

from interfaces.telegram.updates import Reply, handle
from sessions_app.models import TelegramBot
from sessions_app.telegram.bots import add_bot, check_token, issue_code, redeem
from tests.bot_api import TOKEN, BotApi, serving_bots
from tests.conftest import Person

CHAT = 4001


@pytest.fixture
def api(settings: Any) -> Iterator[BotApi]:
    """The Bot API of this process."""
    with serving_bots(settings) as api:
        yield api


@pytest.fixture
def bot(api: BotApi, person: Person) -> TelegramBot:
    """The bot of the person's agent."""
    return add_bot(person.agent, check_token(TOKEN))


@pytest.fixture
def chat(bot: TelegramBot) -> int:
    """A chat that is connected."""
    assert redeem(bot.pk, CHAT, issue_code(bot.pk).code, "Ada") == ""
    return CHAT


def take(bot: TelegramBot, update: dict[str, Any]) -> Reply | None:
    """Handle an update as a poll does, read by the real library."""
    read = Update.de_json(update, None)
    assert read is not None
    return handle(bot.pk, read)
