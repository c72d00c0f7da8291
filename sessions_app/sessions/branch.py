"""Branch a session: a new one that begins with the history of another up to a message."""

from __future__ import annotations

from django.db import connection, transaction

from sessions_app import quotas
from sessions_app.exceptions import TooLarge
from sessions_app.models import Session
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
