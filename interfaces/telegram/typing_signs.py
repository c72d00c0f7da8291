"""Shows in Telegram that an answer is being written, while the turn of a message runs."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import structlog
from django.db.models.functions import Now

from agent_core import process
from sessions_app.models import TelegramChat, Turn, TurnKind, TurnState
from sessions_app.telegram.client import ApiError, client_of

log = structlog.get_logger(__name__)

EVERY = 4.5  # seconds; Telegram shows the sign for five
LONGEST = timedelta(minutes=5)  # after which a turn that still runs shows nothing
MOST = 100  # chats at a time


class TypingSigns:
    """The signs of one process. At most one round of them is on its way."""

    def __init__(self) -> None:
        self._next = 0.0
        self._running: list[Future[None]] = []

    def show(self, tokens: Mapping[int, str]) -> None:
        """Show the signs that are due, for the bots of these agents."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        self._running = [each for each in self._running if not each.done()]
        if self._running:
            return
        for agent_id, chat_id in _writing(list(tokens)):
            sign = client_of(tokens[agent_id]).show_typing(chat_id)
            self._running.append(process.submit(_quietly(sign)))


def _writing(agent_ids: list[int]) -> list[tuple[int, int]]:
    """Agents and connected chats in which the turn of a message runs."""
    running = Turn.objects.filter(
        state=TurnState.RUNNING,
        kind=TurnKind.MESSAGE,
        session__channel="telegram",
        session__agent__in=agent_ids,
        started_at__gt=Now() - LONGEST,
    )
    pairs = set(running.values_list("session__agent_id", "session__chat_id")[:MOST])
    chats = TelegramChat.objects.filter(
        bot__in=[agent for agent, _ in pairs],
        chat_id__in=[int(chat) for _, chat in pairs if chat.isdigit()],
        blocked_at=None,
    )
    known = chats.values_list("bot_id", "chat_id") if pairs else ()
    return [(agent, chat) for agent, chat in known if (agent, str(chat)) in pairs]


async def _quietly(call: Coroutine[Any, Any, None]) -> None:
    try:
        await call
    except ApiError as error:
        log.debug("typing_not_shown", error=str(error))
