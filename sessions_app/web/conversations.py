"""The list of a user's conversations, the latest first, with unread marks, and the search in them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet

from sessions_app.models import ReadMark, Session, SessionState, SessionType
from sessions_app.single_line import one_line
from sessions_app.turns.session_reads import LISTED_SESSIONS

MOST = 60  # conversations in the list
SEARCHED = 200  # the latest conversations whose messages are searched
SEARCHED_MESSAGES = 200  # of each of them, the newest
LONGEST_QUERY = 100  # characters
LONGEST_PREVIEW = 90  # characters
_PEOPLE = (SessionType.PRIMARY, SessionType.SUB)
# `strpos` takes the text as it is: there is no pattern that somebody could write
_FIND = """
SELECT s.id, found.content
FROM (SELECT id, last_seq FROM sessions_app_session
      WHERE owner_id = %(owner)s AND type = ANY(%(types)s) AND state <> 'deleting'
      ORDER BY updated_at DESC LIMIT %(sessions)s) AS s
CROSS JOIN LATERAL (
  SELECT m.content FROM sessions_app_message AS m
  WHERE m.session_id = s.id AND m.seq > s.last_seq - %(messages)s AND m.role IN ('user', 'assistant')
    AND strpos(lower(left(m.content, 20000)), lower(%(query)s)) > 0
  ORDER BY m.seq DESC LIMIT 1) AS found
LIMIT %(most)s"""


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
    at: datetime


def conversations(user: User) -> list[Conversation]:
    """The latest conversations."""
    return _shown(user, list(_latest(user).values_list("pk", flat=True)[:MOST]))


def search(user: User, query: str) -> list[Conversation]:
    """The conversations with these words in their title or in one of their newest messages."""
    query = query.strip()[:LONGEST_QUERY].replace("\x00", "")
    if not query:
        return conversations(user)
    titled = list(_latest(user).filter(title__icontains=query).values_list("pk", flat=True)[:MOST])
    bounds = {"sessions": SEARCHED, "messages": SEARCHED_MESSAGES, "most": MOST}
    with connection.cursor() as cursor:
        cursor.execute(_FIND, bounds | {"owner": user.pk, "types": [*_PEOPLE], "query": query})
        found = dict(cursor.fetchall())
    ids = list(dict.fromkeys([*titled, *found]))[:MOST]
    return _shown(user, ids, {key: _around(text, query) for key, text in found.items()})


def mark_read(session_id: uuid.UUID, seq: int) -> None:
    """Store that the owner has seen the messages up to this one. Never less than before, nor more than there are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sessions_app_readmark AS r (session_id, seq)"
            " SELECT id, LEAST(last_seq, %(seq)s) FROM sessions_app_session WHERE id = %(session)s"
            " ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq WHERE r.seq < excluded.seq",
            {"session": session_id, "seq": seq},
        )


def _latest(user: User) -> QuerySet[Session]:
    rows = Session.objects.filter(owner_id=user.pk, type__in=_PEOPLE)
    return rows.exclude(state=SessionState.DELETING).order_by("-updated_at", "-id")


def _shown(
    user: User, ids: Sequence[uuid.UUID], texts: dict[uuid.UUID, str] | None = None
) -> list[Conversation]:
    rows = {row.pk: row for row in LISTED_SESSIONS.all(owner=user.pk, ids=list(ids))} if ids else {}
    targets = {row.target_id for row in rows.values()}
    read = dict(ReadMark.objects.filter(pk__in=targets).values_list("pk", "seq"))
    found = texts or {}
    return [_line(rows[each], read, found.get(each)) for each in ids if each in rows]


def _line(row: Any, read: dict[uuid.UUID, int], text: str | None) -> Conversation:
    is_primary = row.type == SessionType.PRIMARY
    words = one_line(row.last_words or "", LONGEST_PREVIEW)
    return Conversation(
        id=row.pk,
        title=row.title or (row.agent_name if is_primary else "New conversation"),
        agent=row.agent_name,
        preview=words if text is None else text,
        state=row.shown_state,
        is_primary=is_primary,
        is_unread=(row.shown_seq or 0) > read.get(row.target_id, 0),
        is_waiting=bool(row.waiting_plans or row.waiting_chats),
        at=row.updated_at,
    )


def _around(text: str, query: str) -> str:
    """The words around the first match."""
    at = max(text.lower().find(query.lower()) - 20, 0)
    return ("… " if at else "") + one_line(text[at : at + LONGEST_PREVIEW], LONGEST_PREVIEW)
