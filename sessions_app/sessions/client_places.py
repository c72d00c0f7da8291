"""Find the session in which a program's chat goes on: its own, a branch of it, or a new one."""

from __future__ import annotations

import secrets
from dataclasses import replace

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Exists, Max, OuterRef, QuerySet

from agent_core.types import Role
from sessions_app.exceptions import HistoryDiverged, SessionBusy
from sessions_app.models import Agent, ClientChat, ClientMessage, Message, Session, Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.reads import selectors
from sessions_app.sessions.branch import add_client_messages, branch_session
from sessions_app.sessions.client_answers import answer_of
from sessions_app.sessions.client_history import ClientHistory, hashed, messages_after
from sessions_app.sessions.open import open_session

MOST_ALIKE = 20  # newest messages with the same history that are told apart
ONE_SESSION = (
    "all chats of this token are one session, which has gone on since the message that yours follows; start a new"
    " chat, which goes on in that session"
)
UNIFIED = (
    "the agent has one conversation in all chats (unified mode), so it cannot be branched; go on at its end"
)
BUSY = "the message before this one is still being answered; wait for its answer"


def place(
    user: AbstractBaseUser,
    agent: Agent,
    given: ClientHistory,
    scope: QuerySet[ClientMessage],
    paths: list[str],
) -> tuple[ClientChat, int]:
    """The session that the message belongs to, which may be new, and the message's position in it."""
    known, row, is_end = _known(scope.select_related("chat__session__agent", "turn"), given, paths)
    chat = None if row is None else row.chat
    if row is not None and not is_end:
        if selectors.shown_id(user, row.chat_id) == row.chat_id:
            chat = _branch(row)
            known = known if chat is not None else 0
        elif known == len(given.said) - 1:
            raise HistoryDiverged(UNIFIED)
    if chat is None:
        name = hashed(given.key) if given.key else secrets.token_hex(16)
        chat = _new(open_session(agent), given.door, name)
    if selectors.shown_id(user, chat.pk) == chat.pk:  # else its messages are those of another session
        _store_unknown(chat, given, paths, known)
    return chat, _next_position(chat)


def _known(
    rows: QuerySet[ClientMessage], given: ClientHistory, paths: list[str]
) -> tuple[int, ClientMessage | None, bool]:
    """How many messages of the history are known, the last of them, and whether its session goes on after it."""
    count = len(given.said) - 1
    if not count:
        return 0, None, False
    row, is_end = _last_known(rows.filter(path=paths[count]), given)
    if row is None and given.key:
        row = _adopt(rows, given, paths) or _same_answer(rows, given)
        is_end = row is not None
    if row is not None:
        return count, row, is_end
    found = set(rows.filter(path__in=paths[1:count]).values_list("path", flat=True))
    count = max((n for n in range(1, count) if paths[n] in found), default=0)
    if not count:
        return 0, None, False
    return count, *_last_known(rows.filter(path=paths[count]), given)


def _last_known(before: QuerySet[ClientMessage], given: ClientHistory) -> tuple[ClientMessage | None, bool]:
    """The message with the history of these, and whether its session goes on after it."""
    newest = list(_unfollowed(before)[:2]) if given.key else _as_heard(_unfollowed(before), given.heard)
    is_end = len(newest) == 1 or bool(newest and given.key)
    return (newest[0] if newest else before.first()), is_end


def _same_answer(rows: QuerySet[ClientMessage], given: ClientHistory) -> ClientMessage | None:
    """The newest message of the chat, if the program has its answer: it left out or changed what it said before."""
    newest = rows.filter(chat__chat=hashed(given.key)).first()
    if newest is None or not given.before or given.before[-1][0] != Role.ASSISTANT:
        return None
    return newest if _was_answered(newest, given.before[-1][1]) else None


def _store_unknown(chat: ClientChat, given: ClientHistory, paths: list[str], known: int) -> None:
    """Add what follows the person's first `known` messages, and their answers, to the session. SessionBusy."""
    unknown = messages_after(given.before, known)
    if not unknown:
        return
    if Turn.objects.filter(session=chat.session_id, state__in=OPEN_STATES).exists():
        raise SessionBusy(BUSY)
    ends = add_client_messages(chat.session, unknown)
    made: list[ClientMessage] = []
    position = _next_position(chat)
    for (role, _), end in zip(unknown, ends, strict=True):
        if role == Role.USER:
            known += 1
            row = ClientMessage(chat=chat, position=position + len(made), path=paths[known], delivered=True)
            made.append(row)
        if made:
            made[-1].ends_at_seq = end
    ClientMessage.objects.bulk_create(made)


def _next_position(chat: ClientChat) -> int:
    last = chat.accepted.aggregate(last=Max("position"))["last"]
    return (last or 0) + 1


def place_in(
    only: Session, given: ClientHistory, scope: QuerySet[ClientMessage], paths: list[str]
) -> tuple[ClientChat, int]:
    """The chat of this session and the message's position in it. HistoryDiverged for an older part of the session.

    A history that is not known goes on at the end, as a new chat does.
    """
    if len(given.said) > 1:
        before = scope.filter(path=paths[-2])
        if before.exists() and not _unfollowed(before).exists():
            raise HistoryDiverged(ONE_SESSION)
    chat = ClientChat.objects.filter(session=only.pk).first()
    chat = chat or _new(only, given.door, hashed(given.key), told=only.last_seq)
    return chat, _next_position(chat)


def _adopt(rows: QuerySet[ClientMessage], given: ClientHistory, paths: list[str]) -> ClientMessage | None:
    """Give a chat that began without a key the key that it has by now, if there is just one with this history."""
    without = replace(given, key="").paths()
    newest = _as_heard(_unfollowed(rows.filter(path=without[-2])), given.heard)
    if len(newest) != 1:
        return None
    chat = newest[0].chat
    chat.chat = hashed(given.key)
    chat.number = _next_number(chat.agent_id, chat.door, chat.chat)
    chat.save(update_fields=["chat", "number"])
    for row in chat.accepted.all():
        ClientMessage.objects.filter(pk=row.pk).update(path=paths[row.position])
    return newest[0]


def _as_heard(rows: QuerySet[ClientMessage], heard: str) -> list[ClientMessage]:
    """Of several messages, the newest whose answers the program has; all of them if that does not tell them apart."""
    some = list(rows[:MOST_ALIKE])
    if len(some) < 2:
        return some
    return [row for row in some if _was_answered(row, heard)] or some


def _was_answered(row: ClientMessage, heard: str) -> bool:
    """Whether the program's copy of the answer is that of this message."""
    said = answer_of(row.turn_id).text if row.turn_id else ""
    return bool(said) and heard.strip().endswith(said)


def _unfollowed(rows: QuerySet[ClientMessage]) -> QuerySet[ClientMessage]:
    """Those that are the newest of their session."""
    later = ClientMessage.objects.filter(chat=OuterRef("chat"), position__gt=OuterRef("position"))
    return rows.exclude(Exists(later))


def _new(session: Session, door: str, name: str, told: int = 0) -> ClientChat:
    number = _next_number(session.agent_id, door, name)
    return ClientChat.objects.create(
        session=session,
        agent_id=session.agent_id,
        door=door,
        chat=name,
        number=number,
        told={str(session.pk): told},
    )


def _next_number(agent_id: int, door: str, name: str) -> int:
    used = ClientChat.objects.filter(agent=agent_id, door=door, chat=name)
    last = used.aggregate(last=Max("number"))["last"]
    return 0 if last is None else last + 1


def _branch(row: ClientMessage) -> ClientChat | None:
    """A new session with the history up to this message and its answer; None if that is not known any more.

    SessionBusy, TooLarge.
    """
    chat = row.chat
    kept = list(chat.accepted.filter(position__lte=row.position).select_related("turn").order_by("position"))
    ends = _ends(kept)
    if ends is None:
        return None
    session = branch_session(chat.session, ends[-1])
    branch = _new(session, chat.door, chat.chat, told=ends[-1])
    ClientMessage.objects.bulk_create(
        ClientMessage(
            chat=branch,
            position=each.position,
            path=each.path,
            turn=each.turn,
            ends_at_seq=end,
            delivered=each.delivered,
        )
        for each, end in zip(kept, ends, strict=True)
    )
    return branch


def _ends(rows: list[ClientMessage]) -> list[int] | None:
    """The last seq of each message's answer; of one that was cancelled before it began, that of the one before.

    None if one is too old to know. SessionBusy.
    """
    turns = [row.turn for row in rows if row.turn is not None]
    if any(turn.state in OPEN_STATES for turn in turns):
        raise SessionBusy(BUSY)
    said = Message.objects.filter(turn__in=turns, session=rows[0].chat_id).values("turn").order_by("turn")
    last = dict(said.annotate(last=Max("seq")).values_list("turn", "last"))
    ends: list[int] = []
    for row in rows:
        if row.ends_at_seq is None and row.turn is None:
            return None
        before = ends[-1] if ends else 0
        own = last.get(row.turn_id) if row.turn_id else None
        ends.append(row.ends_at_seq or own or before)
    return ends
