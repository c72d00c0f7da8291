"""Calls of the Bot API, by the library python-telegram-bot, which is loaded with the first call.

A token is a part of each address, and some errors of the library repeat it: nothing of its errors is passed on. All
calls run on the process's event loop, because the connections belong to a loop. Each has an end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, TypeVar

import structlog
from django.conf import settings

from agent_core import process

T = TypeVar("T")

MISSING = "python-telegram-bot is not installed; it comes with the extra 'telegram' of Rondo"
CONNECT = 5.0  # seconds
POLL = 25  # seconds that Telegram holds a request for updates while there are none
ANSWER = 10.0  # seconds for the answer to any other call, and beyond POLL
LONGEST_WAIT = 3_600.0  # seconds; a longer retry_after is cut to it
MOST_UPDATES = 50  # of one answer
MOST_CLIENTS = 200  # that are kept; a process that serves more bots makes some anew
KINDS = ["message", "edited_message", "callback_query"]

log = structlog.get_logger(__name__)


class ApiError(Exception):
    """A call failed. The text is for people: no token, nothing that the server said.

    `wait`: seconds that Telegram asks to wait. `kind`: `refused` (the request is wrong), `blocked` (the person blocked
    the bot, or the chat is gone), `token`, `conflict` (another program reads the updates) or `away`.
    """

    def __init__(self, text: str, *, kind: str, wait: float = 0.0) -> None:
        super().__init__(text)
        self.kind, self.wait = kind, wait


def is_installed() -> bool:
    """Whether the extra is installed. It loads nothing."""
    return find_spec("telegram") is not None


class Client:
    """The calls of one bot. Each method is a coroutine for the process's event loop, and raises ApiError."""

    def __init__(self, token: str) -> None:
        import telegram
        from telegram.request import HTTPXRequest

        self._library = telegram
        base = settings.RONDO_TELEGRAM_URL.rstrip("/")
        self._bot = telegram.Bot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=_connections(HTTPXRequest, 16),
            get_updates_request=_connections(HTTPXRequest, 1),
        )

    async def me(self) -> tuple[int, str]:
        """Return the bot's id and user name."""
        user = await self._call(self._bot.get_me())
        return user.id, user.username or ""

    async def updates(self, offset: int | None, wait: int = POLL) -> tuple[Any, ...]:
        """Return the next updates, and confirm those before `offset`."""
        asking = self._bot.get_updates(offset=offset, limit=MOST_UPDATES, timeout=wait, allowed_updates=KINDS)
        return await self._call(asking, wait + ANSWER + CONNECT)

    async def send(self, chat_id: int, text: str, buttons: list[tuple[str, str]] | None = None) -> int:
        """Send a plain text, with buttons in one row below it: each is a label and its data. Returns its id."""
        library = self._library
        row = [library.InlineKeyboardButton(label, callback_data=data) for label, data in buttons or ()]
        sent = await self._call(
            self._bot.send_message(
                chat_id,
                text,
                reply_markup=library.InlineKeyboardMarkup([row]) if row else None,
                # a preview would make Telegram fetch any address that a model wrote
                link_preview_options=library.LinkPreviewOptions(is_disabled=True),
            )
        )
        return int(sent.message_id)

    async def show_typing(self, chat_id: int) -> None:
        """Show for five seconds that an answer is being written."""
        await self._call(self._bot.send_chat_action(chat_id, "typing"))

    async def answer_press(self, press_id: str, text: str) -> None:
        """End the waiting sign of a button, with a short text."""
        await self._call(self._bot.answer_callback_query(press_id, text=text))

    async def remove_buttons(self, chat_id: int, message_id: int) -> None:
        """Remove the buttons below a message."""
        await self._call(self._bot.edit_message_reply_markup(chat_id=chat_id, message_id=message_id))

    async def _call(self, call: Coroutine[Any, Any, T], seconds: float = CONNECT + ANSWER) -> T:
        try:
            return await asyncio.wait_for(call, seconds)
        except TimeoutError:
            raise ApiError("Telegram did not answer in time", kind="away") from None
        except self._library.error.TelegramError as error:
            raise self._error_of(error) from None

    def _error_of(self, error: Exception) -> ApiError:
        known = self._library.error
        if isinstance(error, known.RetryAfter):
            # Telegram names whole seconds: a wait of exactly so many may end too early
            wait = min(error.retry_after.total_seconds() + 1.0, LONGEST_WAIT)
            return ApiError("Telegram asks to wait (429)", kind="away", wait=wait)
        if isinstance(error, known.InvalidToken):
            return ApiError("Telegram does not know this token; it may have been revoked", kind="token")
        if isinstance(error, known.Conflict):
            text = "another program reads the updates of this bot, or it has a webhook (409)"
            return ApiError(text, kind="conflict")
        if isinstance(error, known.Forbidden):
            return ApiError("the person has blocked the bot (403)", kind="blocked")
        if isinstance(error, known.ChatMigrated):
            return ApiError("the chat has another address now", kind="blocked")
        if isinstance(error, known.BadRequest):
            return ApiError("Telegram refused the request (400)", kind="refused")
        if isinstance(error, known.TimedOut):
            return ApiError("Telegram did not answer in time", kind="away")
        return ApiError(f"Telegram cannot be reached ({type(error).__name__})", kind="away")


def _connections(make: Callable[..., T], most: int) -> T:
    return make(
        connection_pool_size=most,
        connect_timeout=CONNECT,
        read_timeout=ANSWER,
        write_timeout=ANSWER,
        pool_timeout=ANSWER,
    )


def client_of(token: str) -> Client:
    """The client for this token, made once for each process."""
    return _client(os.getpid(), str(settings.RONDO_TELEGRAM_URL), token)


@lru_cache(maxsize=MOST_CLIENTS)
def _client(_process: int, _server: str, token: str) -> Client:
    return Client(token)


def wait_for(call: Coroutine[Any, Any, T], seconds: float = CONNECT + ANSWER) -> T:
    """Run a call on the event loop and wait for it from another thread, for at most `seconds`. ApiError."""
    running = process.submit(call)
    try:
        return running.result(seconds)
    except (TimeoutError, CancelledError):
        running.cancel()
        raise ApiError("Telegram did not answer in time", kind="away") from None
