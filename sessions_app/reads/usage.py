"""What a user's turns used and cost, summed from the rows of turns that are still kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    Count,
    DecimalField,
    F,
    Max,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, NullIf, StrIndex, Substr, TruncDate
from django.db.models.lookups import IsNull

from agent_core.spending import MICRO
from sessions_app.connections.prices import NO_COST, Cost, Used, costs_of
from sessions_app.exceptions import BadInput
from sessions_app.models import Turn
from sessions_app.models.turn_input import AUTOMATION_NAME, SHARED_RUNS
from sessions_app.tokens.reach import in_sessions

MOST_RESULTS = 1_000
_PREFIX_END = StrIndex("model", Value(":")) - 1
_RUN_END = StrIndex("origin_run", Value(":")) - 1
_TEXT = CharField()
SHARED = "shared"  # in place of an automation: turns that several of an agent's routines share
_IS_SHARED = Q(**{f"{SHARED_RUNS}__isnull": False})
# by what usage is summed: the key of a turn, and its name. A turn without a key is left out
_KEYS: dict[str, tuple[Any, Any]] = {
    "agent": (F("session__agent__name"), F("session__agent__name")),
    "automation": (
        Case(When(_IS_SHARED, then=Value(SHARED)), default=Substr("origin_run", 1, _RUN_END)),
        KT(AUTOMATION_NAME),
    ),
    "session": (Cast("session_id", _TEXT), Coalesce(NullIf("session__title", Value("")), "session__key")),
    "connection": (Substr("model", 1, _PREFIX_END), Substr("model", 1, _PREFIX_END)),
    "model": (F("model"), F("model")),
    "all": (Value("all"), Value("all")),
    "day": (Cast(TruncDate("queued_at", tzinfo=UTC), _TEXT), Cast(TruncDate("queued_at", tzinfo=UTC), _TEXT)),
}
_NEEDED = {"automation": Q(origin_run__contains=":") | _IS_SHARED, "connection": Q(model__contains=":")}
BY = tuple(each for each in _KEYS if each != "all")
MOST_COUNTED = 5_000  # turns of one sum
MOST_SUMMED = 50_000  # turns of a period
SPAN = timedelta(days=30)
LONGEST_SPAN = timedelta(days=366)


@dataclass(frozen=True, kw_only=True)
class UsageRow:
    """The usage of one agent, automation, session, connection, model or day (UTC)."""

    key: str = "all"
    name: str = ""
    turns: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Cost = NO_COST

    @property
    def tokens(self) -> int:
        """Tokens read and written."""
        return self.input_tokens + self.output_tokens

    @property
    def usd(self) -> str:
        """US dollars of what has a price."""
        return f"{self.cost.dollars:.6f}"

    @property
    def words(self) -> str:
        """Such as `12 calls, 6,612 tokens read, 199 written, $0.42`."""
        tokens = f"{self.input_tokens:,} tokens read, {self.output_tokens:,} written"
        return f"{self.calls:,} call{'s' * (self.calls != 1)}, {tokens}, {self.cost}"

    @property
    def unpriced_tokens(self) -> int:
        """Tokens of models without a price."""
        return self.cost.unpriced_tokens


@dataclass(frozen=True, kw_only=True)
class UsageSums:
    """The usage of a period. `complete`: all its turns are summed, not only the newest MOST_SUMMED."""

    by: str
    since: datetime
    until: datetime
    complete: bool
    results: list[UsageRow]


def usage_of(
    user: AbstractBaseUser, by: str, since: datetime | None = None, until: datetime | None = None
) -> UsageSums:
    """Sum what a user's turns used, by default in the last 30 days. BadInput.

    At most MOST_RESULTS results: days in their order, else those with the most tokens first.
    """
    until = until or datetime.now(UTC)
    if since is None:
        since = until - min(SPAN, until - datetime.min.replace(tzinfo=UTC))
    if not timedelta(0) <= until - since <= LONGEST_SPAN:
        raise BadInput(f"since must be at most {LONGEST_SPAN.days} days before until", code="bad_since")
    own = Turn.objects.filter(in_sessions(user), owner_id=user.pk, queued_at__gte=since, queued_at__lt=until)
    # the newest turn of those that are too many; a range of time is read along an index, a list of keys is not
    older = own.order_by("-queued_at").values_list("queued_at", flat=True)[MOST_SUMMED : MOST_SUMMED + 1]
    too_old = next(iter(older), None)
    newest = own if too_old is None else own.filter(queued_at__gt=too_old)
    rows = sorted(summed(newest, by), key=lambda row: row.key)
    if by != "day":
        rows.sort(key=lambda row: -row.tokens)
    return UsageSums(by=by, since=since, until=until, complete=too_old is None, results=rows[:MOST_RESULTS])


def total_of(turns: QuerySet[Turn], span: timedelta = SPAN) -> UsageRow:
    """Sum the newest MOST_COUNTED of these turns, as far as they are of the last 30 days or another span."""
    recent = turns.filter(queued_at__gte=datetime.now(UTC) - span).order_by("-pk")[:MOST_COUNTED]
    return next(summed(Turn.objects.filter(pk__in=recent.values("pk")), "all"), UsageRow())


def summed(turns: QuerySet[Turn], by: str) -> Iterator[UsageRow]:
    """Sum these turns by one of BY, with one query for the turns and one for the prices of old ones."""
    key, name = _KEYS[by]
    found = (
        turns.order_by()
        .filter(_NEEDED.get(by, Q()), usage__has_key="requests")
        .annotate(by_key=key, is_old=IsNull(KT("usage__usd"), True))
        .values("by_key", "owner_id", "model", "is_old")
        .annotate(
            name=Max(name),
            turns=Count("pk"),
            calls=Sum(Cast(KT("usage__requests"), BigIntegerField())),
            read=Sum(Cast(KT("usage__input_tokens"), BigIntegerField())),
            written=Sum(Cast(KT("usage__output_tokens"), BigIntegerField())),
            usd=Sum(Cast(KT("usage__usd"), DecimalField(max_digits=20, decimal_places=6))),
        )
    )
    groups: dict[str, list[Any]] = {}
    for row in found:
        groups.setdefault(row["by_key"], []).append(row)
    costs = costs_of([_used(row) for row in rows] for rows in groups.values())
    for (one, rows), cost in zip(groups.items(), costs, strict=True):
        sums = {each: sum(row[each] or 0 for row in rows) for each in ("turns", "calls", "read", "written")}
        yield UsageRow(
            key=one,
            name=max(row["name"] or "" for row in rows) or one,
            turns=sums["turns"],
            calls=sums["calls"],
            input_tokens=sums["read"],
            output_tokens=sums["written"],
            cost=cost,
        )


def _used(row: dict[str, Any]) -> Used:
    return Used(
        owner_id=row["owner_id"],
        model=row["model"],
        input_tokens=row["read"] or 0,
        output_tokens=row["written"] or 0,
        micro_usd=int((row["usd"] or Decimal(0)) * MICRO),
    )
