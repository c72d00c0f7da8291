"""The answer to a program's chat: the outcome of a turn, after what automations have said since the last answer."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet

from sessions_app.models import ClientChat, ClientMessage, Message, Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.reads import selectors
from sessions_app.tokens import reach

MOST_NEWS = 20  # automations' answers that one answer begins with; the rest comes with the next
MOST_BRANCHES_READ = 20  # newest sessions of a chat that are asked for such answers


@dataclass(frozen=True, kw_only=True)
class ClientAnswer:
    """The outcome of a turn so far. `text`: the answer, of a failed turn the part until then; `error`: why, for people.

    `asks_consent`: it ends with a question that only a page or our own API takes a yes to.
    """

    state: str
    text: str
    usage: dict[str, Any]
    error: str = ""
    error_code: str = ""
    ended_by: str = ""
    asks_consent: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state not in OPEN_STATES

    @property
    def succeeded(self) -> bool:
        return self.state == TurnState.SUCCEEDED


def answer_of(turn_id: int) -> ClientAnswer:
    """The outcome of a turn; `cancelled` for one that was deleted meanwhile."""
    turn = Turn.objects.filter(pk=turn_id).first()
    if turn is None:
        return ClientAnswer(state=TurnState.CANCELLED, text="", usage={}, error="The session was deleted.")
    said: list[Message] = []
    if turn.state not in OPEN_STATES:
        said = list(Message.objects.filter(turn=turn, role="assistant").order_by("seq"))
    if turn.state != TurnState.SUCCEEDED:  # its closure is the error
        said = [each for each in said if "closure" not in each.metadata]
    return ClientAnswer(
        state=turn.state,
        text="\n\n".join(each.content.strip() for each in said if each.content.strip()),
        usage=turn.usage,
        error=turn.error,
        error_code=turn.error_code,
        ended_by=turn.ended_by,
        asks_consent=any("consent_question" in each.metadata for each in said),
    )


def mark_delivered(message_id: int) -> None:
    """Mark the answer as sent: the same history, sent again, then asks for another answer."""
    ClientMessage.objects.filter(pk=message_id).update(delivered=True)


def mark_news_told(message_id: int) -> None:
    """Mark the automations' messages before the answer as sent."""
    ClientMessage.objects.filter(pk=message_id).update(news_told=True)


def collect_news(user: AbstractBaseUser, chat: ClientChat) -> list[int]:
    """Return the ids of the automations' messages that the program was not told yet, and count them as told."""
    of_chat = ClientChat.objects.filter(
        reach.in_sessions(user), agent=chat.agent_id, door=chat.door, chat=chat.chat
    )
    found = _untold(of_chat)
    for row in of_chat.order_by("-number")[:MOST_BRANCHES_READ]:
        ids = {row.session_id} | ({selectors.shown_id(user, row.session_id)} if row.pk == chat.pk else set())
        told = dict(row.told)
        for session_id in ids:
            told[str(session_id)] = _read_news(session_id, told.get(str(session_id)), found)
        if told != row.told:
            row.told = told
            row.save(update_fields=["told"])
    return found


def _untold(chats: QuerySet[ClientChat]) -> list[int]:
    """Take the messages that belonged to an answer which failed before they were sent."""
    rows = ClientMessage.objects.filter(chat__in=chats, news_told=False).exclude(news=[])
    found: list[int] = []
    for row in rows.exclude(turn__state__in=OPEN_STATES).order_by("pk"):
        found += row.news
        row.news = []
        row.save(update_fields=["news"])
    return found


def _read_news(session_id: uuid.UUID, after: int | None, found: list[int]) -> int:
    """Add the session's new messages to `found`. Returns the last seq that was read. Without `after` none is new."""
    last = Session.objects.values_list("last_seq", flat=True).get(pk=session_id)
    if after is None:
        return last
    room = max(0, MOST_NEWS - len(found))
    said = Message.objects.filter(
        session=session_id, seq__gt=after, seq__lte=last, role="assistant", metadata__has_key="source"
    )
    rows = list(said.exclude(content="").order_by("seq").values_list("pk", "seq")[: room + 1])
    found += [pk for pk, _ in rows[:room]]
    if len(rows) <= room:
        return last
    return rows[room - 1][1] if room else after


def news_of(row: ClientMessage) -> list[Message]:
    """The automations' messages that the answer begins with, the oldest first."""
    return list(Message.objects.filter(pk__in=row.news).order_by("created_at", "seq"))
