"""Which chats talk with an agent: codes that connect one, and the end of a connection.

A code is made on the web page, by the agent's owner. Its hash is stored; it is valid for ten minutes, once.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from sessions_app.exceptions import NotFound
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import TelegramBot, TelegramChat
from sessions_app.tokens.issue import hashed

VALID = timedelta(minutes=10)
TRIES = Rate(limit=5, seconds=600)  # of one chat
MOST_CHATS = 10  # of one bot
_CODE = re.compile(r"[A-Za-z0-9_-]{22}")


@dataclass(frozen=True, kw_only=True)
class Code:
    """A new code, and the address that sends it to the bot."""

    code: str = field(repr=False)
    link: str = field(repr=False)


def issue_code(agent_id: int) -> Code:
    """Make a code; the one before it stops working. NotFound."""
    code = secrets.token_urlsafe(16)
    rows = TelegramBot.objects.filter(pk=agent_id)
    if not rows.update(code_sha256=hashed(code), code_expires_at=Now() + VALID):
        raise NotFound("this agent has no Telegram bot")
    username = rows.values_list("username", flat=True).get()
    return Code(code=code, link=f"https://t.me/{username}?start={code}")


def redeem(bot_id: int, chat_id: int, code: str, name: str) -> str:
    """Use the code up and connect the chat. Empty: it is connected; else why not, in a sentence for that chat."""
    if take_allowance(f"telegram-code:{bot_id}:{chat_id}", TRIES):
        return "Too many codes were tried here. Wait ten minutes."
    with transaction.atomic():
        if not _use_up(bot_id, code):
            return "This code is not valid. Make a new one on the page of the agent."
        chats = TelegramChat.objects.filter(bot=bot_id)
        if chats.exclude(chat_id=chat_id).count() >= MOST_CHATS:
            return f"The agent has {MOST_CHATS} chats already. Disconnect one on its page."
        chats.update_or_create(bot_id=bot_id, chat_id=chat_id, defaults={"name": name, "blocked_at": None})
    return ""


def connected_chat(bot_id: int, chat_id: int) -> TelegramChat | None:
    """Return the chat, if it is connected by this bot."""
    return TelegramChat.objects.filter(bot=bot_id, chat_id=chat_id).first()


def disconnect(agent_id: int, chat_id: int) -> None:
    """Disconnect a chat. Its conversation stays, and is answered no more. NotFound."""
    if not TelegramChat.objects.filter(bot=agent_id, chat_id=chat_id).delete()[0]:
        raise NotFound("this chat is not connected")


def _use_up(bot_id: int, code: str) -> bool:
    """Remove the code from the bot's row. Of two tries at once the second waits for the first, and finds no code."""
    if not _CODE.fullmatch(code):
        return False
    valid = TelegramBot.objects.filter(pk=bot_id, code_sha256=hashed(code), code_expires_at__gt=Now())
    return bool(valid.update(code_sha256="", code_expires_at=None))
