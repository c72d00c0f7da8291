"""Preferences: a person's standing instructions to an agent. `/clear` does not change them."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from sessions_app.exceptions import BadInput, NotFound, RevisionConflict
from sessions_app.models import Agent, Preference

LONGEST = 4_000  # characters


def preference(agent: Agent, user_id: int) -> Preference:
    """Return the person's preferences. Those never written are empty, with revision 0."""
    found = Preference.objects.filter(agent=agent, user_id=user_id).first()
    return found or Preference(agent=agent, user_id=user_id, content="", revision=0)


def put_preference(agent: Agent, user_id: int, content: str, *, revision: int | None = None) -> Preference:
    """Replace the person's preferences. BadInput, NotFound, RevisionConflict."""
    if len(content) > LONGEST:
        raise BadInput(f"the preferences are longer than {LONGEST} characters", code="document_too_long")
    if "\x00" in content:
        raise BadInput("the preferences contain a NUL character", code="bad_document")
    try:
        with transaction.atomic():
            rows = Preference.objects.select_for_update(no_key=True)
            row = rows.filter(agent=agent, user_id=user_id).first()
            row = row or Preference(agent=agent, user_id=user_id, revision=0)
            if revision is not None and revision != row.revision:
                raise RevisionConflict
            row.content, row.revision = content, row.revision + 1
            row.save()
            return row
    except IntegrityError:
        if not Agent.objects.filter(pk=agent.pk).exists():
            raise NotFound("there is no such agent") from None
        raise RevisionConflict from None  # somebody else wrote the first ones just now
