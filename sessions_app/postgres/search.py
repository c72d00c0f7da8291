"""Search for a text in the newest rows of a list. What it reads is bounded, whatever is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Left
from django.db.models.lookups import IContains

from sessions_app.postgres.in_time import InTime

LONGEST_TERM = 100  # characters
MOST_SEARCHED = 5_000  # newest rows that are compared
LONGEST_COMPARED = 5_000  # characters at the beginning of each column


def matching(rows: QuerySet[Any], wanted: Mapping[str, Any], found: Q, *, time: str) -> InTime[Any]:
    """Return the rows with these values of fields, in the order of `time`.

    `found` is a search: of the newest rows, those that fulfil it. An index must begin with what the rows are filtered
    by already, and continue with `time`.
    """
    searched = _newest(rows, time).filter(found) if found else rows
    return InTime(queryset=searched.filter(**wanted), time=time)


def _newest(rows: QuerySet[Any], time: str) -> QuerySet[Any]:
    """Return the newest rows. An index alone tells where they begin."""
    times = rows.order_by(f"-{time}").values_list(time, flat=True)
    oldest = list(times[MOST_SEARCHED - 1 : MOST_SEARCHED])
    return rows.filter(**{f"{time}__gte": oldest[0]}) if oldest else rows


def found_in(term: str, *columns: str) -> Q:
    """Condition: the beginning of one of the columns has the term, in upper or lower case. Empty without a term."""
    found = Q()
    for column in columns if term else ():
        found |= Q(IContains(Left(column, LONGEST_COMPARED), term))
    return found
