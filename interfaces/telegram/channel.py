"""The channel `telegram`: answers go to the private chats that are connected to the session's agent."""

from __future__ import annotations

import re
import threading

from sessions_app.channels.base import BadAddress, Parcel
from sessions_app.models import TelegramChat

NAME = "telegram"
CHAT = re.compile(r"[1-9][0-9]{0,15}")


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
        """Send it, with buttons if it asks for a yes. Returns the number of its last part."""
        from interfaces.telegram.sending import send_parts  # late: this module is loaded by every command

        return send_parts(parcel)

    def receive_until(self, ended: threading.Event, stopping: threading.Event, tick: float) -> None:
        """Poll the updates of the bots that this process takes care of."""
        from interfaces.telegram import polling  # late: this module is loaded by every command

        polling.run_until(ended, stopping, tick)


def _chat(agent_id: int, address: str) -> TelegramChat | None:
    return TelegramChat.objects.filter(bot=agent_id, chat_id=int(address)).select_related("bot").first()
