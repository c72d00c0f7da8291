"""Create, change and delete bots. The token is taken here and never given back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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
from sessions_app.limits.request_rate import Rate
from sessions_app.models import Agent, TelegramBot, TelegramChat, TelegramUpdate
from sessions_app.models.telegram import LONGEST_ERROR
from sessions_app.postgres.rows import equals, existing, release_connection
from sessions_app.telegram.client import MISSING, ApiError, client_of, is_installed, wait_for
from sessions_app.tokens.reach import in_agents

PURPOSE = "telegram bot"  # of encrypted tokens
LONGEST_TOKEN = 200
NO_BOT = "this agent has no Telegram bot"
TESTS = Rate(limit=6, seconds=60)  # of tokens, for each person
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
