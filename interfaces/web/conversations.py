"""The list of a user's conversations, the latest first, with unread marks, and the search in them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Left

from sessions_app.models import Message, ReadMark, Session, SessionState, SessionType
from sessions_app.reads.session_reads import shown_sessions
from sessions_app.single_line import one_line

MOST = 60  # conversations that the list has at first, and that each “more” adds
MOST_SHOWN = 600  # that a list has when it is loaded again
MOST_COUNTED = 1_000
SEARCHED = 200  # the latest conversations whose messages are searched
SEARCHED_MESSAGES = 200  # of each of them, the newest
LONGEST_SEARCHED = 20_000  # characters of each message
LONGEST_QUERY = 100  # characters
LONGEST_PREVIEW = 90  # characters
PEOPLE = (SessionType.PRIMARY, SessionType.SUB)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One line of the list. `state` is active, idle or archived; `is_waiting`: it has a question for the person."""

    id: uuid.UUID
    title: str
    agent: str
    preview: str
    state: str
    is_primary: bool
    is_unread: bool
    is_waiting: bool


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A part of the list. `before`: where the next part begins; empty: there is none.

    `left`: how many are there, at most MOST_COUNTED. `shown`: how many the list has with this part.
    """

    rows: list[Conversation]
    before: str = ""
    left: int = 0
    shown: int = 0

    @property
    def names_agents(self) -> bool:
        """Whether its lines are of several agents, so that each says whose it is."""
        return len({row.agent for row in self.rows}) > 1


def conversations(user: User, *, before: str = "", shown: int = 0) -> Listing:
    """The latest conversations, or those before a place in the list. ValueError for a malformed place.

    `shown` is the number of lines that the browser has. With `before`, the next lines are added to them. Without it, at
    least as many are loaded again, up to MOST_SHOWN.
    """
    most = MOST if before else min(max(shown, MOST), MOST_SHOWN)
    rows = latest(user)
    if before:
        at, key = _place(before)
        rows = rows.filter(Q(updated_at__lt=at) | Q(updated_at=at, pk__lt=key))
    found = list(rows.values_list("pk", "updated_at")[:most])
    left = rows[most : most + MOST_COUNTED].count() if len(found) == most else 0
    last = f"{found[-1][1].isoformat()}_{found[-1][0]}" if left else ""
    listed = _shown(user, [pk for pk, _ in found])
    return Listing(rows=listed, before=last, left=left, shown=len(found) + (shown if before else 0))


def _place(text: str) -> tuple[datetime, uuid.UUID]:
    at, _, key = text.partition("_")
    found = datetime.fromisoformat(at)
    if found.tzinfo is None or not found.year > 1:
        raise ValueError(text)
    return found, uuid.UUID(key)


def search(user: User, query: str) -> Listing:
    """The conversations with these words in their title or in one of their newest messages."""
    query = query.strip()[:LONGEST_QUERY].replace("\x00", "")
    if not query:
        return conversations(user)
    titled = latest(user).filter(title__icontains=query).values_list("pk", flat=True)[:MOST]
    newest = Message.objects.filter(
        session=OuterRef("pk"),
        seq__gt=OuterRef("last_seq") - SEARCHED_MESSAGES,
        role__in=["user", "assistant"],
    )
    said = newest.annotate(text=Left("content", LONGEST_SEARCHED)).filter(text__icontains=query)
    rows = latest(user).annotate(said=Subquery(said.order_by("-seq").values("text")[:1]))
    found = {key: text for key, text in rows.values_list("pk", "said")[:SEARCHED] if text}
    ids = list(dict.fromkeys([*titled, *found]))[:MOST]
    return Listing(rows=_shown(user, ids, {key: _around(text, query) for key, text in found.items()}))


def mark_read(session_id: uuid.UUID, seq: int) -> None:
    """Store that the owner has seen the messages up to this one. Never less than before, nor more than there are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sessions_app_readmark AS r (session_id, seq)"
            " SELECT id, LEAST(last_seq, %(seq)s) FROM sessions_app_session WHERE id = %(session)s"
            " ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq WHERE r.seq < excluded.seq",
            {"session": session_id, "seq": seq},
        )


def latest(user: User) -> QuerySet[Session]:
    """The user's conversations, the latest first."""
    rows = Session.objects.filter(owner_id=user.pk, type__in=PEOPLE)
    return rows.exclude(state=SessionState.DELETING).order_by("-updated_at", "-id")


def _shown(user: User, ids: list[uuid.UUID], texts: dict[uuid.UUID, str] | None = None) -> list[Conversation]:
    rows = {row.pk: row for row in shown_sessions(user.pk, ids)} if ids else {}
    targets = {row.target_id for row in rows.values()}
    read = dict(ReadMark.objects.filter(pk__in=targets).values_list("pk", "seq"))
    found = texts or {}
    return [_line(rows[each], read, found.get(each)) for each in ids if each in rows]


def _line(row: Any, read: dict[uuid.UUID, int], text: str | None) -> Conversation:
    return Conversation(
        id=row.pk,
        title=title_of(row),
        agent=row.agent_name,
        preview=one_line(row.last_words or "", LONGEST_PREVIEW) if text is None else text,
        state=row.shown_state,
        is_primary=row.type == SessionType.PRIMARY,
        is_unread=(row.shown_seq or 0) > read.get(row.target_id, 0),
        is_waiting=row.waiting_size > 0,
    )


def title_of(session: Any) -> str:
    """The title that people see."""
    is_primary = session.type == SessionType.PRIMARY
    return session.title or (session.agent_name if is_primary else "New conversation")


def _around(text: str, query: str) -> str:
    """The words around the first match."""
    at = max(text.lower().find(query.lower()) - 20, 0)
    return ("… " if at else "") + one_line(text[at : at + LONGEST_PREVIEW], LONGEST_PREVIEW)
