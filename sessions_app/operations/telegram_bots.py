"""The check of Telegram bots (rule 10.2): their updates are read, and the chats of sessions are connected."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import CharField, Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Cast, Now

from sessions_app.channels import base as channels
from sessions_app.models import Session, SessionState, TelegramBot, TelegramChat
from sessions_app.operations.doctor import NAMED, Finding, failed, passed, some_named

NAME = "telegram"
NEW = timedelta(minutes=2)  # that a bot may wait for a worker
NOBODY = "no worker has read them yet; does one run, with the extra 'telegram'?"


def bots_read() -> Finding:
    """The updates of each bot that is on can be read, and each session of Telegram has a connected chat."""
    bots = TelegramBot.objects.filter(enabled=True, agent__owner__is_active=True)
    unread = Q(state_since=None, created_at__lt=Now() - NEW)
    wrong = bots.filter(~Q(last_error="") | unread).order_by("username")
    if count := wrong.count():
        named = some_named((f"@{bot.username}: {bot.last_error or NOBODY}" for bot in wrong[:NAMED]), count)
        return failed(
            f"bots whose messages are not read: {named}", "see docs/telegram.md, or switch these bots off"
        )
    lost = _unconnected()
    if count := lost.count():
        named = some_named((session.key[:60] for session in lost[:NAMED]), count)
        cure = "connect the chats on the pages of their agents, or delete these sessions"
        return failed(f"sessions whose chat is not connected: {named}", cure)
    return passed(f"{bots.count()} bots")


def _unconnected() -> QuerySet[Session]:
    """Open sessions whose answers go to a chat that is not connected. None if a plugin serves the channel."""
    if not isinstance(channels.known().get(NAME), channels.ChannelOfAgents):
        return Session.objects.none()
    chats = TelegramChat.objects.filter(bot=OuterRef("agent")).annotate(text=Cast("chat_id", CharField()))
    here = Q(last_route__isnull=True) | Q(last_route__channel=NAME)
    sessions = Session.objects.filter(here, channel=NAME, state=SessionState.OPEN, owner__is_active=True)
    return sessions.exclude(Exists(chats.filter(text=OuterRef("chat_id")))).order_by("key")
