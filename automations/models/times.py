"""Instants that a row may hold."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import models
from django.db.models import Q

FIRST_INSTANT, LAST_INSTANT = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def readable(name: str, *columns: str) -> models.CheckConstraint:
    """Only instants that Python can hold: PostgreSQL has infinities, and years that no driver reads."""
    within = {f"{column}__range": (FIRST_INSTANT, LAST_INSTANT) for column in columns}
    return models.CheckConstraint(condition=Q(**within), name=name)
