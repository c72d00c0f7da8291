"""Query parameters: a view declares them and rejects all others; interfaces.http.schema.openapi documents them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from rest_framework.request import Request
from rest_framework.views import APIView

from interfaces.http.fields import moment_of
from sessions_app.exceptions import BadInput
from sessions_app.postgres.pages import LONGEST_COMPARED, LONGEST_TERM, MOST_SEARCHED

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
MOST_NAMED = 10  # wrong parameters that an error names
LONGEST_NAME = 60  # characters of a name in an error
LONGEST_VALUE = 500  # characters of a value: several long ones must fit into a request head, percent-encoded
FLAG = ("true", "false")
TIME, UUID = "date-time", "uuid"  # what the text of a parameter is, as OpenAPI names it
SEARCH = "search"


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A query parameter. `choices` are its only values; without any it takes a text of this format.

    `schema` describes a parameter that its reader checks, such as those of pagination.
    `lookup`: the queryset lookup of a filter, by default the parameter's name.
    """

    name: str
    description: str = ""
    choices: tuple[str, ...] = ()
    format: str = ""
    lookup: str = ""
    longest: int = LONGEST_VALUE
    schema: Mapping[str, Any] | None = None

    def problem(self, value: str) -> str:
        """The text that refuses the value; empty when the value is valid."""
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if self.schema is None and len(value) > self.longest:
            return f"must have at most {self.longest:,} characters"
        if self.format == TIME and moment_of(value) is None:
            return (
                "must be an ISO time with an offset, such as 2027-01-01T09:00:00Z (in an address, + is %2B)"
            )
        if self.format == UUID and not _UUID.fullmatch(value):
            return "must be a UUID"
        return "must not hold a NUL character" if "\x00" in value else ""

    def value(self, text: str) -> Any:
        """The value for a queryset."""
        if self.format == TIME:
            return moment_of(text)
        return text == "true" if self.choices == FLAG else text

    def to_openapi(self) -> dict[str, Any]:
        """Return the OpenAPI parameter object."""
        values: dict[str, Any] = {"type": "string", "enum": list(self.choices)}
        if not self.choices:
            limit = {"format": self.format} if self.format else {"maxLength": self.longest}
            values = {"type": "string", **limit}
        if self.choices == FLAG:
            values = {"type": "boolean"}
        about = {"description": self.description} if self.description else {}
        return {"in": "query", "name": self.name, "schema": dict(self.schema or values), **about}


def flag_parameter(name: str, description: str) -> Parameter:
    """A parameter that is `true` or `false`."""
    return Parameter(name=name, description=description, choices=FLAG)


SESSION = Parameter(
    name="session", description="The id of one of your sessions.", format=UUID, lookup="session_id"
)


def agent_parameter(lookup: str) -> Parameter:
    """`agent` of a list."""
    return Parameter(name="agent", description="The name of one of your agents.", longest=64, lookup=lookup)


def time_parameters(field: str, column: str = "") -> tuple[Parameter, Parameter]:
    """`since` and `until` of a list in the order of this field."""
    since, until = f"Only with `{field}` at this time or later.", f"Only with `{field}` before this time."
    column = column or field
    return (
        Parameter(name="since", description=since, format=TIME, lookup=f"{column}__gte"),
        Parameter(name="until", description=until, format=TIME, lookup=f"{column}__lt"),
    )


def search_parameter(what: str) -> Parameter:
    """`search` of a list."""
    return Parameter(
        name=SEARCH,
        description=f"Only with this text in {what}, in upper or lower case. Of your entries the newest"
        f" {MOST_SEARCHED:,} are searched, of each text the first {LONGEST_COMPARED:,} characters.",
        longest=LONGEST_TERM,
    )


def check_query(query: QueryDict, known: Iterable[Parameter]) -> None:
    """BadInput `bad_parameter` for a parameter that is unknown, repeated, or has a wrong value."""
    takes = {parameter.name: parameter for parameter in known}
    errors = {name: _problem(takes, name, query.getlist(name)) for name in query}
    errors = {name: problem for name, problem in errors.items() if problem}
    if not errors:
        return
    named = {name[:LONGEST_NAME]: [errors[name]] for name in sorted(errors)[:MOST_NAMED]}
    first, texts = next(iter(named.items()))
    raise BadInput(f"query parameter {first!r} {texts[0]}", code="bad_parameter", errors=named)


def _problem(takes: Mapping[str, Parameter], name: str, values: list[str]) -> str:
    if name not in takes:
        return f"is not known; this address takes {', '.join(sorted(takes)) or 'none'}"
    if len(values) > 1:
        return f"is given {len(values)} times; give it once"
    return takes[name].problem(values[0])


class ChecksQuery(APIView):
    """A view that rejects unknown query parameters. `takes`: its parameters by method."""

    takes: Mapping[str, tuple[Parameter, ...]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, then check the query. DRF answers 405 for an unsupported method. BadInput."""
        super().initial(request, *args, **kwargs)
        method = (request.method or "").lower()
        if method in self.http_method_names and hasattr(self, method):
            check_query(request.query_params, self.takes_by(method))

    def takes_by(self, method: str) -> tuple[Parameter, ...]:
        """The query parameters of a method; HEAD has those of GET."""
        return self.takes.get("get" if method == "head" else method, ())

    def parameter(self, name: str) -> str | None:
        """The value of a query parameter; None when it is not given."""
        return self.request.query_params.get(name)

    def is_true(self, name: str) -> bool:
        """Whether a query parameter is `true`."""
        return self.parameter(name) == "true"

    @property
    def term(self) -> str:
        """The term that a list is searched for; empty for no search."""
        return self.parameter(SEARCH) or ""

    def wanted(self) -> dict[str, Any]:
        """The given filters of a list as conditions of a queryset."""
        given = self.request.query_params
        filters = (each for each in self.takes["get"] if each.name != SEARCH and each.name in given)
        return {each.lookup or each.name: each.value(given[each.name]) for each in filters}
