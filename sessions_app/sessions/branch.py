"""Branch a session, and add messages that a program brings: a history that is not the session's own."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection, transaction

from sessions_app.exceptions import TooLarge
from sessions_app.limits import quotas
from sessions_app.models import Message, Session
from sessions_app.models.message import BY_CLIENT
from sessions_app.queue.receive import LONGEST_MESSAGE
from sessions_app.sessions.open import open_session

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
    with connection.cursor() as cursor:
        cursor.execute(_COPY, [branch.pk, source.pk, up_to_seq])
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
