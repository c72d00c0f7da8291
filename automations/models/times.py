"""A CHECK for timestamps that Python can read."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models
from django.db.models import Q

FIRST_INSTANT, LAST_INSTANT = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def readable(name: str, *columns: str) -> models.CheckConstraint:
    """Limit the columns to instants that Python can hold; PostgreSQL also has infinity and later years."""
    within = {f"{column}__range": (FIRST_INSTANT, LAST_INSTANT) for column in columns}
    return models.CheckConstraint(condition=Q(**within), name=name)
