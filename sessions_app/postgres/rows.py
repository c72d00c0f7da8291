"""Read rows: of a queryset, of a statement, or as a model's instance from the columns of a statement.

And lock a name, or give the connection back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, models

from sessions_app.exceptions import NotFound, RevisionConflict

M = TypeVar("M", bound=models.Model)


def get_or_none(rows: models.QuerySet[M]) -> M | None:
    """Return the row of a unique key, or None.

    `first()` would order by the primary key. If part of the unique key is common, PostgreSQL may then walk the primary
    key until it finds the row.
    """
    return next(iter(rows.order_by()), None)


def existing(rows: models.QuerySet[M], missing: str = "", *, revision: int | None = None) -> M:
    """Return the row of a unique key. NotFound with the text `missing`, which by default names the model;
    RevisionConflict if `revision` is not the row's.
    """
    found = get_or_none(rows)
    if found is None:
        raise NotFound(missing or f"there is no such {rows.model._meta.verbose_name}")
    if revision is not None and revision != vars(found)["revision"]:
        raise RevisionConflict
    return found


def equals(column: str, text: str) -> models.Q:
    """Condition: a column has this text of a client. None has a NUL character, which the database would refuse."""
    return models.Q(pk__in=[]) if "\x00" in text else models.Q(**{column: text})


def fetch(statement: str, parameters: Any = None) -> list[Any]:
    """Execute SQL on Django's connection and return its rows; none for a statement that returns nothing."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def lock_until_commit(name: str) -> None:
    """Lock a name until the transaction ends: whoever waits for it sees what was stored under it."""
    fetch("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def release_connection() -> None:
    """Give the connection back to the pool, unless a transaction is open on it."""
    if not connection.in_atomic_block:
        connection.close()


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
