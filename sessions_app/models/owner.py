"""The owner in rows that lists over all of a user's sessions are read by: found by an index, without the sessions."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

NOBODY = 0  # what a row is inserted with; a trigger of the migration replaces it by the owner


def owner_column() -> models.BigIntegerField[Any, Any]:
    """The id of the user, who never changes. No foreign key: it follows from another column of the row."""
    return models.BigIntegerField(db_default=NOBODY, editable=False, help_text="The user that it belongs to.")


def has_owner(name: str, unless: Q | None = None) -> models.CheckConstraint:
    """Constraint: the row has an owner, or is one of those in `unless`."""
    is_set = Q(owner_id__gt=NOBODY)
    return models.CheckConstraint(condition=is_set if unless is None else is_set | unless, name=name)
