"""Read rows: of a queryset, of a statement, or as a model's instance from the columns of a statement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, models

from sessions_app.exceptions import NotFound

M = TypeVar("M", bound=models.Model)


def get_or_none(rows: models.QuerySet[M]) -> M | None:
    """Return the row of a unique key, or None.

    `first()` would order by the primary key. If part of the unique key is common, PostgreSQL may then walk the primary
    key until it finds the row.
    """
    return next(iter(rows.order_by()), None)


def existing(rows: models.QuerySet[M]) -> M:
    """Return the row of a unique key. NotFound, which names the model."""
    found = get_or_none(rows)
    if found is None:
        raise NotFound(f"there is no such {rows.model._meta.verbose_name}")
    return found


def fetch(statement: str, parameters: Any = None) -> list[Any]:
    """Execute SQL on Django's connection and return its rows; none for a statement that returns nothing."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def instance_of(model: type[M], values: Sequence[Any]) -> M:
    """Return an instance from the values of all its columns, in the order of its fields. JSON columns are texts."""
    names, json_at = _fields(model)
    given = list(values)
    for n in json_at:
        if given[n] is not None:
            given[n] = json.loads(given[n])
    return model.from_db(DEFAULT_DB_ALIAS, names, given)


def instances_of(model: type[M], rows: Sequence[Any]) -> list[M]:
    """Return an instance of each named tuple: first the columns of the model, then its further attributes."""
    columns = len(model._meta.concrete_fields)
    found = [instance_of(model, row[:columns]) for row in rows]
    for instance, row in zip(found, rows, strict=True):
        vars(instance).update(zip(row._fields[columns:], row[columns:], strict=True))
    return found


@cache
def _fields(model: type[models.Model]) -> tuple[list[str], list[int]]:
    fields = model._meta.concrete_fields
    return [field.attname for field in fields], [
        n for n, field in enumerate(fields) if isinstance(field, models.JSONField)
    ]
