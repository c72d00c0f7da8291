"""Read a single row of a queryset."""

from __future__ import annotations

from typing import TypeVar

from django.db import models

M = TypeVar("M", bound=models.Model)


def sole(rows: models.QuerySet[M]) -> M | None:
    """Return the row of a unique key, or None.

    `first()` would order by the primary key. If part of the unique key is common, PostgreSQL may then walk the primary
    key until it finds the row.
    """
    return next(iter(rows.order_by()), None)
