"""Find the session in which a program's chat goes on: its own, a branch of it, or a new one."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Exists, F, Func, Max, OuterRef, QuerySet, TextField, Value

from agent_core.types import Role
from sessions_app.exceptions import HistoryDiverged, SessionBusy, TooLarge
from sessions_app.limits import quotas
from sessions_app.memory.files import GivenFile
from sessions_app.models import Agent, ClientChat, ClientMessage, Message, Session, Turn
from sessions_app.models.message import BY_CLIENT
from sessions_app.models.turn import OPEN_STATES
from sessions_app.postgres.rows import fetch
from sessions_app.queue.receive import LONGEST_MESSAGE
from sessions_app.reads import selectors
from sessions_app.sessions.client_answers import answer_of
from sessions_app.sessions.open import open_session


@dataclass(frozen=True, kw_only=True)
class ClientHistory:
    """A history that a program sent. `said`: all messages of the person, the new one last, as they are compared; `text`
    and `images`: of the new one. `before`: roles and texts of all messages before it.

    `heard`: the program's copy of the answer before the new message, which only tells apart chats that began alike.
    `key`: the program's id of the chat, with its source; empty without one. `end_user`: an id of a person in the
    program. `repeats`: the program says that it sends the request again. `request_key`: the Idempotency-Key.
    """

    protocol: str
    said: tuple[str, ...]
    text: str
    images: tuple[GivenFile, ...] = ()
    before: tuple[tuple[str, str], ...] = ()
    heard: str = ""
    key: str = ""
    end_user: str = ""
    repeats: bool = False
    request_key: str = ""

    def paths(self) -> list[str]:
        """Return the hash of the empty history, then for each message the hash of the history up to it."""
        found = [hashed("chat", self.key) if self.key else hashed("none", self.end_user)]
        for text in self.said:
            found.append(hashed(found[-1], text))
        return found


def messages_after(before: tuple[tuple[str, str], ...], known: int) -> list[tuple[str, str]]:
    """Return the messages that follow the person's first `known` messages and their answers."""
    found, said = [], 0
    for role, text in before:
        said += role == Role.USER
        if said > known or not known:
            found.append((role, text))
    return found


def hashed(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


MOST_COPIED = 5_000  # messages

# a question for consent belongs to the session that asked it: in the copy it is only text
_COPY = """
INSERT INTO sessions_app_message (session_id, seq, role, content, model_content, parts, metadata, created_at)
SELECT %s, seq, role, content, model_content, parts, metadata - 'consent_question', created_at
FROM sessions_app_message WHERE session_id = %s AND seq <= %s
"""


@transaction.atomic
def branch_session(source: Session, up_to_seq: int) -> Session:
    """Open a web session of the same agent with copies of the messages up to this seq. TooLarge."""
    if up_to_seq > MOST_COPIED:
        raise TooLarge(f"a branch copies at most {MOST_COPIED:,} messages; start a new chat")
    branch = open_session(source.agent)
    fetch(_COPY, [branch.pk, source.pk, up_to_seq])
    branch.last_seq, branch.title, branch.stored_bytes = up_to_seq, source.title, source.stored_bytes
    branch.save(update_fields=["last_seq", "title", "stored_bytes"])
    quotas.count_stored(branch.owner_id, branch.stored_bytes)
    return branch


def add_client_messages(session: Session, said: Iterable[tuple[str, str]]) -> list[int]:
    """Add messages of these roles and texts to the end of a session, marked as the client's.

    Returns the seq that the session has after each; empty texts are left out.
    """
    locked = Session.objects.select_for_update(no_key=True).get(pk=session.pk)
    rows: list[Message] = []
    ends: list[int] = []
    for role, text in said:
        content = text[:LONGEST_MESSAGE].replace("\x00", "")
        if content.strip():
            seq = locked.last_seq + len(rows) + 1
            rows.append(
                Message(session=locked, seq=seq, role=role, content=content, metadata={BY_CLIENT: True})
            )
        ends.append(locked.last_seq + len(rows))
    Message.objects.bulk_create(rows)
    session.last_seq = locked.last_seq + len(rows)
    stored = sum(len(row.content.encode()) for row in rows)
    session.stored_bytes = locked.stored_bytes + stored
    Session.objects.filter(pk=session.pk).update(last_seq=session.last_seq, stored_bytes=session.stored_bytes)
    quotas.count_stored(session.owner_id, stored)
    return ends


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
        chat = _new(open_session(agent), given.protocol, name)
    if selectors.shown_id(user, chat.pk) == chat.pk:  # else its messages are those of another session
        _store_unknown(chat, given, paths, known)
    return chat, _next_position(chat)


def _known(
    rows: QuerySet[ClientMessage], given: ClientHistory, paths: list[str]
) -> tuple[int, ClientMessage | None, bool]:
    """Return how many messages of the history are known, the last of them, and whether it ends its session."""
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
    """Return the message with this history, and whether it ends its session."""
    newest = list(_unfollowed(before)[:2]) if given.key else _as_heard(_unfollowed(before), given.heard)
    is_end = len(newest) == 1 or bool(newest and given.key)
    return (newest[0] if newest else before.first()), is_end


def _same_answer(rows: QuerySet[ClientMessage], given: ClientHistory) -> ClientMessage | None:
    """Return the chat's newest message if the program has its answer, though it changed earlier messages."""
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
    chat = chat or _new(only, given.protocol, hashed(given.key), told=only.last_seq)
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
    """Return the messages whose answers the client has. If they are still ambiguous, return two of them.

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
    """Whether the client's copy of the answer is the answer to this message."""
    said = answer_of(row.turn_id).text if row.turn_id else ""
    return bool(said) and heard.strip().endswith(said)


def _unfollowed(rows: QuerySet[ClientMessage]) -> QuerySet[ClientMessage]:
    """Return the messages that are the newest of their session."""
    later = ClientMessage.objects.filter(chat=OuterRef("chat"), position__gt=OuterRef("position"))
    return rows.exclude(Exists(later))


def _new(session: Session, protocol: str, name: str, told: int = 0) -> ClientChat:
    number = _next_number(session.agent_id, protocol, name)
    return ClientChat.objects.create(
        session=session,
        agent_id=session.agent_id,
        door=protocol,
        chat=name,
        number=number,
        told={str(session.pk): told},
    )


def _next_number(agent_id: int, protocol: str, name: str) -> int:
    used = ClientChat.objects.filter(agent=agent_id, door=protocol, chat=name)
    last = used.aggregate(last=Max("number"))["last"]
    return 0 if last is None else last + 1


def _branch(row: ClientMessage) -> ClientChat | None:
    """Open a session with the history up to this message and its answer. None if the history is no longer known.

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
    """Return the last seq of each message's answer. A message cancelled before it began has the seq of the one before.

    None if the turn of a message was removed. SessionBusy.
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
