"""Create, change and delete bots, and connect chats. A token is taken here and never given back.

A code connects a chat. It is made on the web page, by the agent's owner; its hash is stored, and it is valid for ten
minutes, once.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from datetime import timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from sessions_app import encryption
from sessions_app.exceptions import (
    BadInput,
    BotExists,
    BotTaken,
    NotFound,
    TelegramAway,
    UnreadableSecret,
)
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import Agent, TelegramBot, TelegramChat, TelegramUpdate
from sessions_app.models.telegram import LONGEST_ERROR
from sessions_app.postgres.rows import equals, existing, release_connection
from sessions_app.telegram.client import MISSING, ApiError, client_of, is_installed, wait_for
from sessions_app.tokens.issue import hashed
from sessions_app.tokens.reach import in_agents

PURPOSE = "telegram bot"  # of encrypted tokens
LONGEST_TOKEN = 200
NO_BOT = "this agent has no Telegram bot"
TESTS = Rate(limit=6, seconds=60)  # of tokens, for each person
CODE_VALID = timedelta(minutes=10)
TRIES = Rate(limit=5, seconds=600)  # of one chat
MOST_CHATS = 10  # of one bot
_CODE = re.compile(r"[A-Za-z0-9_-]{22}")
_TOKEN = re.compile(r"[0-9]{6,16}:[A-Za-z0-9_-]{30,100}")


@dataclass(frozen=True, kw_only=True)
class CheckedToken:
    """A token that Telegram accepts, with the id and name of its bot."""

    token: str = field(repr=False)
    telegram_id: int
    username: str


def check_token(token: str) -> CheckedToken:
    """Ask Telegram whose token it is. Not in a transaction. BadInput `bad_token` or `missing_extra`; TelegramAway."""
    if not is_installed():
        raise BadInput(f"bots cannot be used here: {MISSING}", code="missing_extra")
    if len(token) > LONGEST_TOKEN or not _TOKEN.fullmatch(token):
        text = "the token does not look like one; BotFather gives it, such as 123456789:AAF…"
        raise BadInput(text, code="bad_token")
    release_connection()  # during the call
    try:
        telegram_id, username = wait_for(client_of(token).me())
    except ApiError as error:
        if error.kind == "away":
            raise TelegramAway(f"{error}; try again") from None
        raise BadInput(str(error), code="bad_token") from None
    return CheckedToken(token=token, telegram_id=telegram_id, username=username[:64])


def bot_of(user: AbstractBaseUser, agent_name: str) -> TelegramBot:
    """Return the bot of a user's agent. NotFound."""
    rows = TelegramBot.objects.filter(in_agents(user), agent__owner_id=user.pk).select_related("agent")
    return existing(rows.filter(equals("agent__name", agent_name)), NO_BOT)


def chats_of(bot: TelegramBot) -> QuerySet[TelegramChat]:
    """Return the chats that are connected by the bot, the oldest first."""
    return TelegramChat.objects.filter(bot=bot).order_by("connected_at", "pk")


def add_bot(agent: Agent, checked: CheckedToken) -> TelegramBot:
    """Give the agent a bot. BotExists, BotTaken; NotFound if the agent was deleted."""
    row = TelegramBot(agent=agent)
    _set_token(row, checked)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        if TelegramBot.objects.filter(agent=agent).exists():
            raise BotExists from None
        if TelegramBot.objects.filter(telegram_id=checked.telegram_id).exists():
            raise BotTaken from None
        raise NotFound("there is no such agent") from None
    return row


def update_bot(
    agent_id: int,
    *,
    checked: CheckedToken | None = None,
    enabled: bool | None = None,
    revision: int | None = None,
) -> TelegramBot:
    """Change the token, or switch the bot on or off. Another bot's token disconnects the chats.

    NotFound, BotTaken, RevisionConflict.
    """
    try:
        with transaction.atomic():
            row = _locked(agent_id, revision)
            if checked is not None:
                if checked.telegram_id != row.telegram_id:
                    TelegramChat.objects.filter(bot=row).delete()
                    TelegramUpdate.objects.filter(bot=row).delete()  # the other one numbers its own anew
                    row.code_sha256, row.code_expires_at = "", None
                _set_token(row, checked)
            if enabled is not None:
                row.enabled = enabled
            row.last_error, row.state_since = "", None
            row.revision += 1
            row.save()
    except IntegrityError:
        raise BotTaken from None
    return row


def delete_bot(agent_id: int, *, revision: int | None = None) -> None:
    """Delete the bot and disconnect its chats; their conversations stay. NotFound, RevisionConflict."""
    with transaction.atomic():
        _locked(agent_id, revision).delete()


def token_of(bot: TelegramBot) -> str:
    """Return the token. UnreadableSecret."""
    return encryption.decrypt(bot.token_ciphertext, PURPOSE)


def note_state(agent_id: int, revision: int, error: str) -> None:
    """Store why updates cannot be read, or that they can. It writes only what is new."""
    rows = TelegramBot.objects.filter(pk=agent_id, revision=revision).exclude(
        last_error=error[:LONGEST_ERROR], state_since__isnull=False
    )
    rows.update(last_error=error[:LONGEST_ERROR], state_since=Now())


def why_unusable(bot: TelegramBot) -> str:
    """Why the bot does not work now, as far as it is known here; empty if it does."""
    if not is_installed():
        return MISSING
    if not bot.enabled:
        return "the bot is switched off"
    try:
        token_of(bot)
    except UnreadableSecret:
        return "its token cannot be read, because SECRET_KEY has changed; enter it again"
    return bot.last_error


def renew_tokens() -> tuple[int, list[str]]:
    """Encrypt all tokens with the present key. Returns how many, and the names of bots that cannot be read."""
    return encryption.renew_all(TelegramBot.objects.all(), "token_ciphertext", PURPOSE)


def _set_token(row: TelegramBot, checked: CheckedToken) -> None:
    row.telegram_id, row.username = checked.telegram_id, checked.username
    row.token_ciphertext = encryption.encrypt(checked.token, PURPOSE)


def _locked(agent_id: int, revision: int | None) -> TelegramBot:
    rows = TelegramBot.objects.select_for_update(no_key=True).filter(pk=agent_id)
    return existing(rows, NO_BOT, revision=revision)


@dataclass(frozen=True, kw_only=True)
class Code:
    """A new code, and the address that sends it to the bot."""

    code: str = field(repr=False)
    link: str = field(repr=False)


def issue_code(agent_id: int) -> Code:
    """Make a code; the one before it stops working. NotFound."""
    code = secrets.token_urlsafe(16)
    rows = TelegramBot.objects.filter(pk=agent_id)
    if not rows.update(code_sha256=hashed(code), code_expires_at=Now() + CODE_VALID):
        raise NotFound(NO_BOT)
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
