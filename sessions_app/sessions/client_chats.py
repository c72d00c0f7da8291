"""Chats of programs that resend their whole history: each is a session, and our history is the truth.

The person's messages are compared with those that were accepted before, never the program's copies of answers. A
history that continues the newest message continues its session; one that leaves it earlier becomes a branch. Messages
that never came to us, such as refused ones and examples, are stored before the new one as the program's own.

All chats of a token that is limited to a session are that session: a new chat goes on there, and none becomes a branch.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, replace

from django.contrib.auth.models import AbstractBaseUser
from django.db import connection, transaction
from django.db.models import Exists, F, Func, Max, OuterRef, QuerySet, TextField, Value

from agent_core.images import Image
from agent_core.types import Role
from sessions_app import selectors
from sessions_app.exceptions import HistoryDiverged, IdempotencyMismatch, SessionBusy
from sessions_app.models import Agent, ClientChat, ClientMessage, Message, Session, Turn
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.sessions.branch import add_client_messages, branch_session
from sessions_app.sessions.client_answers import answer_of, take_news
from sessions_app.sessions.images import with_note
from sessions_app.sessions.open import open_session
from sessions_app.turns.receive import program_message, receive

MOST_ALIKE = 20  # messages with the same history and the same answer that are told apart
_SPACE = " \t\n\r\f\v"
ONE_SESSION = (
    "all chats of this token are one session, which has gone on since the message that yours follows; start a new"
    " chat, which goes on in that session"
)
UNIFIED = (
    "the agent has one conversation in all chats (unified mode), so it cannot be branched; go on at its end"
)
BUSY = "the message before this one is still being answered; wait for its answer"


@dataclass(frozen=True, kw_only=True)
class ClientHistory:
    """What a program sent. `said`: all messages of the person, the new one last, as they are compared; `text` and
    `images`: of the new one. `before`: roles and texts of all messages before it.

    `heard`: the program's copy of the answer before the new message, which only tells apart chats that began alike.
    `key`: the program's id of the chat, with its source; empty without one. `end_user`: an id of a person in the
    program. `repeats`: the program says that it sends the request again. `request_key`: the Idempotency-Key.
    """

    door: str
    said: tuple[str, ...]
    text: str
    images: tuple[Image, ...] = ()
    before: tuple[tuple[str, str], ...] = ()
    heard: str = ""
    key: str = ""
    end_user: str = ""
    repeats: bool = False
    request_key: str = ""

    def paths(self) -> list[str]:
        """The hash of the beginning, then one for each message with all before it."""
        found = [_hashed("chat", self.key) if self.key else _hashed("none", self.end_user)]
        for text in self.said:
            found.append(_hashed(found[-1], text))
        return found


@dataclass(frozen=True, kw_only=True)
class AcceptedMessage:
    """The message's row, and its turn: a new one, or that of the same message before (`repeated`)."""

    row: ClientMessage
    turn: Turn
    repeated: bool = False


def accept(user: AbstractBaseUser, agent: Agent, given: ClientHistory) -> AcceptedMessage:
    """Queue the last message in the chat's session, or find the turn that it has become before.

    HistoryDiverged, SessionBusy, IdempotencyMismatch, TooLarge, and what `receive` raises.
    """
    return retry_deadlocks(lambda: _accept(user, agent, given))


@transaction.atomic
def _accept(user: AbstractBaseUser, agent: Agent, given: ClientHistory) -> AcceptedMessage:
    scope = ClientMessage.objects.filter(chat__agent=agent, chat__door=given.door).order_by("-pk")
    of = [str(agent.pk), given.door]
    if (only := selectors.only_session(user)) is not None:
        given, scope, of = (
            replace(given, key=f"only:{only.pk}"),
            scope.filter(chat=only.pk),
            [*of, str(only.pk)],
        )
    paths = given.paths()
    _lock(f"{agent.pk} {given.door} {paths[0] if given.key else paths[1]}")
    request_key = _hashed(*of, given.request_key) if given.request_key else ""
    if (earlier := _earlier(scope, given, paths[-1], request_key)) is not None:
        return earlier
    if only is None:
        chat, position = _place(user, agent, given, scope, paths)
    else:
        chat, position = _place_in(only, given, scope, paths)
    message = replace(program_message(with_note(given.text, len(given.images))), images=given.images)
    news = take_news(user, chat)
    turn = receive(chat.session_id, message, agent.owner_id)
    row = ClientMessage.objects.create(
        chat=chat, position=position, path=paths[-1], request_key=request_key, turn=turn, news=news
    )
    return AcceptedMessage(row=row, turn=turn)


def _earlier(
    scope: QuerySet[ClientMessage], given: ClientHistory, path: str, request_key: str
) -> AcceptedMessage | None:
    """The same message, if it came before and its answer was not delivered. IdempotencyMismatch.

    In a chat without a key it counts only if the program says that it repeats: two chats may begin alike.
    """
    found = scope.filter(request_key=request_key).first() if request_key else None
    if found is not None and found.path != path:
        raise IdempotencyMismatch
    if found is None:
        latest = scope.filter(path=path).first()
        again = latest is not None and (given.repeats or (bool(given.key) and not latest.delivered))
        found = latest if again else None
    if found is None or found.turn is None:
        return None
    return AcceptedMessage(row=found, turn=found.turn, repeated=True)


def _place(
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
        name = _hashed(given.key) if given.key else secrets.token_hex(16)
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
    newest = rows.filter(chat__chat=_hashed(given.key)).first()
    if newest is None or not given.before or given.before[-1][0] != Role.ASSISTANT:
        return None
    return newest if _was_answered(newest, given.before[-1][1]) else None


def _store_unknown(chat: ClientChat, given: ClientHistory, paths: list[str], known: int) -> None:
    """Add what follows the person's first `known` messages, and their answers, to the session. SessionBusy."""
    unknown = _after(given.before, known)
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


def _after(before: tuple[tuple[str, str], ...], known: int) -> list[tuple[str, str]]:
    """The messages after the first `known` ones of the person and their answers."""
    found, said = [], 0
    for role, text in before:
        said += role == Role.USER
        if said > known or not known:
            found.append((role, text))
    return found


def _next_position(chat: ClientChat) -> int:
    last = chat.accepted.aggregate(last=Max("position"))["last"]
    return (last or 0) + 1


def _place_in(
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
    chat = chat or _new(only, given.door, _hashed(given.key), told=only.last_seq)
    return chat, _next_position(chat)


def _adopt(rows: QuerySet[ClientMessage], given: ClientHistory, paths: list[str]) -> ClientMessage | None:
    """Give a chat that began without a key the key that it has by now, if there is just one with this history."""
    without = replace(given, key="").paths()
    newest = _as_heard(_unfollowed(rows.filter(path=without[-2])), given.heard)
    if len(newest) != 1:
        return None
    chat = newest[0].chat
    chat.chat = _hashed(given.key)
    chat.number = _next_number(chat.agent_id, chat.door, chat.chat)
    chat.save(update_fields=["chat", "number"])
    for row in chat.accepted.all():
        ClientMessage.objects.filter(pk=row.pk).update(path=paths[row.position])
    return newest[0]


def _as_heard(rows: QuerySet[ClientMessage], heard: str) -> list[ClientMessage]:
    """Of several messages, those that the program has the answer of; two of all if that does not tell them apart.

    There may be any number of chats that began alike, so the database looks for the answer first.
    """
    some = list(rows[:2])
    if len(some) < 2:
        return some
    heard_text = heard.strip().replace("\x00", "")  # which the database cannot read, and no stored answer has
    said = Func(F("content"), Value(_SPACE), function="btrim", output_field=TextField())
    answers = Message.objects.filter(turn__in=rows.values("turn"), role="assistant").exclude(content="")
    heard_here = answers.annotate(heard=Value(heard_text, output_field=TextField())).filter(
        heard__endswith=said
    )
    likely = rows.filter(turn__in=heard_here.values("turn"))[:MOST_ALIKE]
    return [row for row in likely if _was_answered(row, heard)] or some


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


def chat_title(user: AbstractBaseUser, agent: Agent, door: str, key: str) -> str:
    """The title of the chat's newest session; empty if there is none, or without a key."""
    if (only := selectors.only_session(user)) is not None:
        return str(only.title)
    if not key:
        return ""
    rows = ClientChat.objects.filter(agent=agent, door=door, chat=_hashed(key)).order_by("-number")
    return rows.values_list("session__title", flat=True).first() or ""


def _lock(name: str) -> None:
    """Until COMMIT, so that of two requests for one chat the second sees what the first stored."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"client {name}"])


def _hashed(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
