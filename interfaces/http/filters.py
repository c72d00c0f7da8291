"""Query parameters by which lists are filtered, and what they ask of a queryset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interfaces.http.fields import moment_of
from interfaces.http.query import FLAG, Format, Parameter
from sessions_app.postgres.search import LONGEST_COMPARED, LONGEST_TERM, MOST_SEARCHED

LONGEST_AGENT = 64  # characters of an agent's name
AGENT = Parameter(name="agent", description="The name of one of your agents.", longest=LONGEST_AGENT)
SESSION = Parameter(name="session", description="The id of one of your sessions.", format=Format.UUID)
SEARCH = "search"


def times(field: str) -> tuple[Parameter, Parameter]:
    """`since` and `until` of a list in the order of this field."""
    return (
        Parameter(
            name="since", description=f"Only with `{field}` at this time or later.", format=Format.TIME
        ),
        Parameter(name="until", description=f"Only with `{field}` before this time.", format=Format.TIME),
    )


def search_in(what: str) -> Parameter:
    """`search` of a list."""
    return Parameter(
        name=SEARCH,
        description=f"Only with this text in {what}, in upper or lower case. Of your entries the newest"
        f" {MOST_SEARCHED:,} are searched, of each text the first {LONGEST_COMPARED:,} characters.",
        longest=LONGEST_TERM,
    )


def wanted(
    query: Mapping[str, str], takes: tuple[Parameter, ...], lookups: Mapping[str, str]
) -> dict[str, Any]:
    """The given parameters as conditions of a queryset. `lookups`: the condition of each parameter."""
    known = {parameter.name: parameter for parameter in takes}
    return {
        lookup: _value(known[name], query[name])
        for name, lookup in lookups.items()
        if query.get(name) is not None
    }


def _value(parameter: Parameter, text: str) -> Any:
    if parameter.format is Format.TIME:
        return moment_of(text)
    return text == "true" if parameter.choices == FLAG else text
