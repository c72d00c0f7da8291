"""The channel `telegram`: answers go to the private chats that are connected to the session's agent.

An answer is sent in parts that Telegram accepts, at most 4,096 UTF-16 code units each, and with buttons if it asks a
question.
"""

from __future__ import annotations

import re
import threading
import time

from django.db import connection
from django.db.models.functions import Now

from interfaces.telegram import polling
from interfaces.telegram.updates import buttons_of
from sessions_app.channels.base import BadAddress, Parcel, Unsent
from sessions_app.exceptions import UnreadableSecret
from sessions_app.models import Session, TelegramChat
from sessions_app.telegram.bots import token_of
from sessions_app.telegram.client import MISSING, ApiError, Client, client_of, is_installed, wait_for

NAME = "telegram"
CHAT = re.compile(r"[1-9][0-9]{0,15}")
FINAL = frozenset({"blocked", "refused"})  # errors that another attempt would repeat
LONGEST = 4_096  # UTF-16 code units, as Telegram counts
SHORTEST = LONGEST // 2  # a part is not cut before this, so that a text has few parts
_PLACES = ("\n\n", "\n", ". ", "! ", "? ", "。", " ")  # where to cut, the best first


class Telegram:
    """Sends to a chat that the agent's bot has connected. The address is the chat's id, a number."""

    name = NAME

    def check(self, address: str) -> None:
        """Accept the form of a private chat's id. Whether it is connected is known when something is sent."""
        if not CHAT.fullmatch(address):
            text = f"{address[:40]!r} is not the id of a private chat of Telegram, such as 123456789"
            raise BadAddress(text)

    def check_for(self, agent_id: int, address: str) -> None:
        """Accept a chat that is connected to the agent."""
        if _chat(agent_id, address) is None:
            text = "this chat of Telegram is not connected to the agent; connect it on the agent's page"
            raise BadAddress(text)

    def trouble(self, agent_id: int, address: str) -> str:
        """Why nothing arrives in the chat: the bot is off, the person blocks it, Telegram refuses it."""
        chat = _chat(agent_id, address)
        if chat is None:
            return ""
        if not chat.bot.enabled:
            return "the agent's Telegram bot is switched off"
        if chat.blocked_at is not None:
            return "the person has blocked the bot"
        return chat.bot.last_error

    def place(self, address: str) -> str:  # noqa: ARG002 - all is sent to one server
        """The Bot API."""
        return NAME

    def send(self, parcel: Parcel) -> int | None:
        """Send the parts that were not sent in an earlier attempt, the last with buttons if it asks for a yes. Unsent.

        Returns the id of the last message.
        """
        deadline = time.monotonic() + parcel.seconds
        chat, client = _receiver(parcel)
        parts = split(parcel.shown_text)
        sent = chat.partial_count if chat.partial_key == parcel.key else 0
        turn = parcel.about.get("turn")
        buttons = buttons_of(turn) if isinstance(turn, int) else []
        message_id = None
        for number, part in enumerate(parts[sent:], sent + 1):
            is_last = number == len(parts)
            message_id = _send_part(client, chat, part, buttons if is_last else [], deadline)
            if not is_last:
                TelegramChat.objects.filter(pk=chat.pk).update(partial_key=parcel.key, partial_count=number)
        return message_id

    def receive_until(self, ended: threading.Event, stopping: threading.Event, tick: float) -> None:
        """Poll the updates of the bots that this process takes care of."""
        polling.run_until(ended, stopping, tick)


def _chat(agent_id: int, address: str) -> TelegramChat | None:
    return TelegramChat.objects.filter(bot=agent_id, chat_id=int(address)).select_related("bot").first()


def _receiver(parcel: Parcel) -> tuple[TelegramChat, Client]:
    """The chat, and the client of the bot that has connected it. Unsent."""
    agent = Session.objects.filter(pk=parcel.session_id).values("agent")
    address = int(parcel.address) if CHAT.fullmatch(parcel.address) else 0
    chat = TelegramChat.objects.filter(bot__in=agent, chat_id=address).select_related("bot").first()
    if chat is None:
        raise Unsent("this chat is not connected to the agent", final=True)
    if not chat.bot.enabled:
        raise Unsent("the agent's Telegram bot is switched off")
    if not is_installed():
        raise Unsent(MISSING)
    try:
        return chat, client_of(token_of(chat.bot))
    except UnreadableSecret:
        raise Unsent("the token of the Telegram bot cannot be read; enter it again") from None


def _send_part(
    client: Client, chat: TelegramChat, part: str, buttons: list[tuple[str, str]], deadline: float
) -> int | None:
    if not part.strip() and not buttons:
        return None  # Telegram refuses an empty message
    if not connection.in_atomic_block:
        connection.close()  # back to the pool, during the call
    left = deadline - time.monotonic()
    if left <= 0:
        raise Unsent("sending all parts took too long; the rest follows")
    try:
        return wait_for(client.send(chat.chat_id, part, buttons), left)
    except ApiError as error:
        if error.kind == "blocked":
            TelegramChat.objects.filter(pk=chat.pk).update(blocked_at=Now())
        raise Unsent(str(error), final=error.kind in FINAL, wait=error.wait) from None


def units(text: str) -> int:
    """The length of a text in UTF-16 code units."""
    return len(text) + sum(ord(character) > 0xFFFF for character in text)


def split(text: str, longest: int = LONGEST) -> list[str]:
    """Return the parts of a text. Joined they are the text again."""
    parts = []
    while units(text) > longest:
        head = _head(text, longest)
        cut = _cut(head, min(SHORTEST, longest // 2))
        parts.append(text[:cut])
        text = text[cut:]
    return [*parts, text]


def _head(text: str, longest: int) -> str:
    """The longest beginning of the text that fits."""
    used = 0
    for number, character in enumerate(text):
        used += 2 if ord(character) > 0xFFFF else 1
        if used > longest:
            return text[:number]
    return text


def _cut(head: str, shortest: int) -> int:
    """Where to end a part: after the last paragraph, line, sentence or word that is not too early."""
    for place in _PLACES:
        found = head.rfind(place)
        if found >= shortest:
            return found + len(place)
    return len(head)
