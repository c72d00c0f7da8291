"""Handles an update of Telegram: it becomes a message for a session, an answer to a question, or a connected chat.

An update is stored in the transaction of its effect, so that a repeated update has none. Buttons below a question that
takes yes or no name their question, so each counts for no other (rule 3.5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from agent_core.execution import Status
from sessions_app.exceptions import (
    NotFound,
    NotWaiting,
    OwnerInactive,
    QuestionTaken,
    SessionExists,
    SessionsError,
)
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import (
    Agent,
    ConsentQuestion,
    ExecutionState,
    Session,
    TelegramBot,
    TelegramChat,
    TelegramUpdate,
    Turn,
    TurnInput,
)
from sessions_app.questions.question_reads import question_after
from sessions_app.questions.questions import answer_consent, answer_question
from sessions_app.queue.receive import MessageInput, program_message, receive
from sessions_app.sessions.open import open_session
from sessions_app.telegram import bots

KEPT = timedelta(days=2)  # Telegram repeats updates for one day
MOST_FORGOTTEN = 100  # old updates that each new one removes
STRANGERS = Rate(limit=1, seconds=3_600)  # sentences to a chat that is not connected
ALL_STRANGERS = Rate(limit=30, seconds=60)  # of one bot
NOTES = Rate(limit=20, seconds=60)  # sentences to a connected chat that the agent did not write
LONGEST_NAME = 80

NOT_CONNECTED = "This chat is not connected. Open the page of your agent and follow the link under Telegram."
GROUPS = "I answer in private chats only."
UNSUPPORTED = "I can read text only, no pictures, voice messages, stickers or files. Please write it."
EDITED = "I do not see edits of earlier messages. Please send it as a new message."
NOT_YOURS = "Only the person of this chat can answer."
CONNECTED = "This chat is connected to the agent {name}. What you write here goes to it."
FORWARDED = "Forwarded message:\n\n{text}"
_START = re.compile(r"/start(?:@\w{1,64})?(?:\s+(\S{1,64}))?\s*")


class NotServed(Exception):
    """The bot is off or gone, or its owner is inactive: the update must wait at Telegram."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The reply to the person after the update was stored. With `press_id` it is shown at the pressed button.

    `message_id`: a message whose buttons are removed. `is_typing`: the chat shows that an answer is being written.
    """

    chat_id: int = 0
    text: str = ""
    press_id: str = ""
    message_id: int = 0
    is_typing: bool = False


@transaction.atomic
def handle(bot_id: int, update: Any) -> Reply | None:
    """Store the update and its effect, once. NotServed; NotFound if the session was deleted just now."""
    served = TelegramBot.objects.filter(pk=bot_id, enabled=True, agent__owner__is_active=True)
    bot = served.select_related("agent").first()
    if bot is None:
        raise NotServed
    if not _is_new(bot_id, update.update_id):
        return None
    if update.callback_query is not None:
        return _press(bot, update.update_id, update.callback_query)
    message = update.message or update.edited_message
    return None if message is None else _message(bot, update, message)


def _is_new(bot_id: int, update_id: int) -> bool:
    """Store the id; False if it was there. Of two at once the second waits for the first to commit."""
    _, is_new = TelegramUpdate.objects.get_or_create(bot_id=bot_id, update_id=update_id)
    old = TelegramUpdate.objects.filter(created_at__lt=Now() - KEPT).order_by("created_at")
    locked = old.select_for_update(skip_locked=True).values_list("pk", flat=True)[:MOST_FORGOTTEN]
    if ids := list(locked):
        TelegramUpdate.objects.filter(pk__in=ids).delete()
    return is_new


def _message(bot: TelegramBot, update: Any, message: Any) -> Reply | None:
    chat, sender = message.chat, message.from_user
    if chat.type != "private":
        return _to_stranger(bot, chat.id, GROUPS)
    if sender is None or sender.id != chat.id or sender.is_bot:
        return None
    connected = bots.connected_chat(bot.pk, chat.id)
    text = message.text or ""
    if update.message is not None and (start := _START.fullmatch(text)):
        return _start(bot, connected, chat.id, start[1] or "", sender.full_name)
    if connected is None:
        return _to_stranger(bot, chat.id, NOT_CONNECTED)
    if connected.blocked_at is not None:
        TelegramChat.objects.filter(pk=connected.pk).update(blocked_at=None)
    if update.message is None:
        return _note(bot, chat.id, EDITED)
    if not text.strip():
        return _note(bot, chat.id, UNSUPPORTED)
    return _receive(bot, update.update_id, message, text)


def _start(
    bot: TelegramBot, connected: TelegramChat | None, chat_id: int, code: str, name: str
) -> Reply | None:
    """`/start <code>` connects the chat. It is never a message: its code must not stand in a conversation."""
    welcome = CONNECTED.format(name=bot.agent.name)
    if connected is not None:
        return _note(bot, chat_id, welcome)
    if not code:
        return _to_stranger(bot, chat_id, NOT_CONNECTED)
    refusal = bots.redeem(bot.pk, chat_id, code, _one_line(name))
    if refusal:
        return _to_stranger(bot, chat_id, refusal)
    return Reply(chat_id=chat_id, text=welcome)


def _receive(bot: TelegramBot, update_id: int, message: Any, text: str) -> Reply | None:
    key = _key(bot, update_id)
    if message.forward_origin is not None or message.via_bot is not None:
        # somebody else's words: no consent, and no command
        given = program_message(FORWARDED.format(text=text), key)
    elif message.is_from_offline:  # it was written earlier, and Telegram sent it now
        given = program_message(text, key)
    else:
        given = MessageInput(content=text, about=_place(message), idempotency_key=key)
    try:
        receive(_session(bot.agent, message.chat.id).pk, given, bot.agent.owner_id)
    except (OwnerInactive, NotFound):
        raise
    except SessionsError as refusal:
        return _note(bot, message.chat.id, f"This message was not taken: {refusal}.")
    return Reply(chat_id=message.chat.id, is_typing=True)


def _place(message: Any) -> TurnInput:
    """The message's place in its chat, and that of the message which it replies to."""
    to = 0 if message.external_reply is not None else None
    if message.reply_to_message is not None:
        to = message.reply_to_message.message_id
    return TurnInput(number_at_channel=message.message_id, replies_to=to)


def _session(agent: Agent, chat_id: int) -> Session:
    """The session of the chat, opened with its first message."""
    key = f"telegram:{chat_id}"
    found = Session.objects.filter(agent=agent, key=key)
    if (session := found.first()) is not None:
        return session
    try:
        return open_session(agent, key=key)
    except SessionExists:  # a request at the same time opened it
        return found.get()


def _press(bot: TelegramBot, update_id: int, query: Any) -> Reply:
    chat_id = query.message.chat.id if query.message is not None else 0
    if query.from_user.id != chat_id or bots.connected_chat(bot.pk, chat_id) is None:
        return Reply(press_id=query.id, text=NOT_YOURS)
    text = press(bot.pk, str(query.data or ""), _key(bot, update_id))
    return Reply(press_id=query.id, text=text, chat_id=chat_id, message_id=query.message.message_id)


def _key(bot: TelegramBot, update_id: int) -> str:
    """The idempotency key of what an update causes. Two bots number their updates alike."""
    return f"telegram:{bot.telegram_id}:{update_id}"


def _to_stranger(bot: TelegramBot, chat_id: int, text: str) -> Reply | None:
    """A sentence to a chat that is not connected, within a rate limit. Strangers can make the bot do nothing else."""
    if take_allowance(f"telegram-stranger:{bot.pk}:{chat_id}:{text[:20]}", STRANGERS):
        return None
    if take_allowance(f"telegram-strangers:{bot.pk}", ALL_STRANGERS):
        return None
    return Reply(chat_id=chat_id, text=text)


def _note(bot: TelegramBot, chat_id: int, text: str) -> Reply | None:
    if take_allowance(f"telegram-note:{bot.pk}:{chat_id}", NOTES):
        return None
    return Reply(chat_id=chat_id, text=text)


def _one_line(name: str) -> str:
    return "".join(each for each in name if each.isprintable())[:LONGEST_NAME]


ANSWERED = "This question was answered already."
LONGEST_LABEL = 40  # characters
_DATA = re.compile(r"(yes|no):([0-9a-z]{1,16})")


def buttons_of(turn_id: int) -> list[tuple[str, str]]:
    """Return label and data of each button below the question that this turn asked.

    Empty if it asked nothing, or a question that is not answered by yes or no.
    """
    turn = Turn.objects.filter(pk=turn_id).first()
    asked = question_after(turn) if turn is not None else None
    if asked is None or not asked.id:
        return []
    if asked.calls:
        more = f" and {len(asked.calls) - 1} more" if len(asked.calls) > 1 else ""
        labels = (f"Allow {asked.calls[0]['name']}"[:LONGEST_LABEL] + more, "Refuse")
    elif _takes_yes_or_no(asked.execution):
        labels = ("Yes", "No")
    else:
        return []
    return [(label, f"{word}:{asked.id}") for label, word in zip(labels, ("yes", "no"), strict=True)]


def press(agent_id: int, data: str, key: str) -> str:
    """Answer the question that a button names, as the page's buttons do. Returns what to show to who pressed it.

    `key` is the press's own: a repeated one changes nothing.
    """
    pressed = _DATA.fullmatch(data)
    if pressed is None:
        return ANSWERED
    word, question_id = pressed.groups()
    try:
        _answer(agent_id, word, question_id, key)
    except (NotWaiting, QuestionTaken):
        asked = ConsentQuestion.objects.filter(pk=question_id, session__agent_id=agent_id).first()
        why = asked.why_closed if asked is not None else ""
        return f"This question is closed: {why}." if why else ANSWERED
    except SessionsError as refusal:
        return str(refusal)[:200]
    return "You answered: yes." if word == "yes" else "You answered: no."


def _answer(agent_id: int, word: str, question_id: str, key: str) -> None:
    asked = ConsentQuestion.objects.filter(pk=question_id, session__agent_id=agent_id).first()
    if asked is not None:
        answer_consent(asked, word, key)
        return
    waiting = ExecutionState.objects.filter(question_id=question_id, session__agent_id=agent_id)
    execution = waiting.order_by("-created_at").first()
    if execution is None:
        raise NotWaiting
    answer_question(execution, word, key, question_id)


def _takes_yes_or_no(execution_id: str) -> bool:
    rows = ExecutionState.objects.filter(pk=execution_id, status=Status.WAITING_CONFIRMATION)
    return rows.exists()
