"""Caps in tokens and US dollars: how they are given and stored, and the periods for which they count.

`{"run": {"tokens": 20000, "usd": "0.50"}, "day": {…}, "month": {…}}`: each key is optional. A run is a slot with all
its attempts, or one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent_core.spending import MICRO, Budget, usd_text
from sessions_app.exceptions import BadInput
from sessions_app.models import Spending
from sessions_app.models.spending import REACHED

RUN, DAY, MONTH = PERIODS = ("run", "day", "month")
SCOPES = ("agent", "automation", "connection", "user")
MOST_TOKENS = 10**12
MOST_USD = 1_000_000
WORDS = {RUN: "a run", DAY: "a day", MONTH: "a month"}


def merge_limits(stored: Mapping[str, Any], given: object) -> dict[str, Any]:
    """Return the stored caps with the given ones merged in; null removes one. BadInput."""
    if not isinstance(given, Mapping):
        raise _bad(f"limits must be an object; known: {', '.join(PERIODS)}")
    merged: dict[str, Any] = {period: dict(cap) for period, cap in stored.items()}
    for period, cap in given.items():
        if period not in PERIODS:
            raise _bad(f"limits has no period {str(period)[:60]!r}; known: {', '.join(PERIODS)}")
        if cap is not None and not isinstance(cap, Mapping):
            raise _bad(f"limits.{period} must be an object with tokens or usd, or null")
        old = {} if cap is None else merged.get(period, {}) | _checked(period, cap)
        merged[period] = {name: value for name, value in old.items() if value is not None}
    return {period: merged[period] for period in PERIODS if merged.get(period)}


def replacing(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `merge_limits` needs to replace the stored caps by the given ones."""
    none = {"tokens": None, "usd": None}
    whole = {period: none | cap if isinstance(cap, dict) else cap for period, cap in given.items()}
    return dict.fromkeys(stored) | whole


def _checked(period: str, cap: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in cap.items():
        if name not in ("tokens", "usd"):
            raise _bad(f"limits.{period} has no {str(name)[:60]!r}; known: tokens, usd")
        checked[name] = value
        if value is None:
            continue
        if name == "usd":
            checked[name] = decimal_text(f"limits.{period}.usd", value)
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
            raise _bad(f"limits.{period}.tokens must be a whole number from 0 to {MOST_TOKENS}")
    return checked


def decimal_text(name: str, value: object, code: str = "bad_limits") -> str:
    """Return an amount of US dollars as it is stored, such as `0.50`. BadInput."""
    number = None
    if isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) <= 40:
        try:
            number = Decimal(str(value).strip())
        except InvalidOperation:
            number = None
    if number is None or not number.is_finite() or not 0 <= number <= MOST_USD:
        raise BadInput(f"{name} must be US dollars from 0 to {MOST_USD}, such as '0.50'", code=code)
    if number != round(number, 6):
        raise BadInput(f"{name} must have at most six decimal places", code=code)
    text = f"{number:.6f}".rstrip("0")
    return f"{number:.2f}" if len(text.partition(".")[2]) < 2 else text


def _bad(text: str) -> BadInput:
    return BadInput(text, code="bad_limits")


def cap_rows(budgets: Iterable[Budget], run: str, now: datetime) -> list[dict[str, Any]]:
    """Return the caps that apply to a call at this time, as `rondo_reserve` takes them."""
    found = []
    for budget in budgets:
        for period, cap in budget.limits.items():
            begin, ends_at = period_of(period, budget.zone, now)
            found.append(
                {
                    "key": f"{budget.scope}:{budget.subject}:{period}:{begin or run}",
                    "tokens": cap.get("tokens"),
                    "micro_usd": micro_of(cap.get("usd")),
                    "ends_at": ends_at and ends_at.isoformat(),
                    "scope": budget.scope,
                    "subject": budget.subject,
                    "name": budget.name,
                    "period": period,
                    "zone": budget.zone,
                    "is_private": budget.is_private,
                }
            )
    return found


def micro_of(usd: str | None) -> int | None:
    """Return micro-dollars."""
    return None if usd is None else int(Decimal(usd) * MICRO)


def period_of(period: str, zone: str, now: datetime) -> tuple[str, datetime | None]:
    """Return the name of the current day or month in a zone, and its end in UTC; of a run neither."""
    if period == RUN:
        return "", None
    try:
        clock = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        clock = ZoneInfo("UTC")
    today = now.astimezone(clock).date()
    if period == DAY:
        return today.isoformat(), _midnight(today + timedelta(days=1), clock)
    following = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
    return f"{today:%Y-%m}", _midnight(following, clock)


def _midnight(day: Any, clock: ZoneInfo) -> datetime:
    return datetime.combine(day, time(0), clock).astimezone(UTC)


def shown_limits(budgets: Iterable[Budget]) -> list[dict[str, Any]]:
    """Return each budget's caps; those of days and months with what is spent and when they begin anew. One query."""
    now, of = datetime.now(UTC), list(budgets)
    rows = {row["key"]: row for budget in of for row in cap_rows([budget], "", now) if row["ends_at"]}
    spent = {row.key: row for row in Spending.objects.filter(pk__in=rows)} if rows else {}
    shown: list[dict[str, Any]] = []
    for budget in of:
        periods: dict[str, Any] = {}
        for row in cap_rows([budget], "", now):
            periods[row["period"]] = dict(budget.limits[row["period"]])
            if row["ends_at"]:
                so_far = spent.get(row["key"]) or Spending()
                used = {"tokens": so_far.spent_tokens, "usd": usd_text(so_far.spent_micro_usd)}
                periods[row["period"]] |= {"spent": used, "resets_at": row["ends_at"].replace("+00:00", "Z")}
        shown.append(periods)
    return shown


def used_up(
    budgets: Iterable[Budget], at: datetime, *, is_priced: bool = True, refused_until: datetime | None = None
) -> list[dict[str, Any]]:
    """Return the rows of caps of which nothing is left and that begin anew after `at`. One query.

    `is_priced`: the calls cost money; others are not stopped by US dollars. `refused_until`: when the cap begins anew
    that refused the last call, so what is left of it is too little.
    """
    rows = {row["key"]: row for row in cap_rows(budgets, "", datetime.now(UTC)) if _ends(row) > at}
    spent = {row.key: row for row in Spending.objects.filter(pk__in=rows)} if rows else {}
    found = []
    for key, row in rows.items():
        so_far = spent.get(key) or Spending()
        is_spent = row["tokens"] is not None and so_far.spent_tokens >= row["tokens"]
        if is_priced and row["micro_usd"] is not None:
            is_spent |= so_far.spent_micro_usd >= row["micro_usd"]
        if is_spent or (so_far.told == REACHED and _ends(row) == refused_until):
            found.append(row)
    return found


def _ends(row: Mapping[str, Any]) -> datetime:
    """When a cap begins anew; that of a run at once."""
    return datetime.fromisoformat(row["ends_at"]) if row["ends_at"] else datetime.min.replace(tzinfo=UTC)


def budget_of(
    scope: str, subject: object, name: str, limits: Mapping[str, Any], **more: Any
) -> Budget | None:
    """Return a subject's budget; None without caps."""
    return Budget(scope=scope, subject=str(subject), name=name, limits=limits, **more) if limits else None


def words_of(cap: Mapping[str, Any], tokens: int, micro_usd: int) -> str:
    """Say what of a cap is spent, such as `$0.48 of $0.50 a day`."""
    of = [
        ("" if cap[name] is None else shown(used, cap[name]))
        for name, used, shown in (("micro_usd", micro_usd, _dollars), ("tokens", tokens, _tokens))
    ]
    return f"{' and '.join(filter(None, of))} {WORDS[cap['period']]}"


def _dollars(used: int, most: int) -> str:
    return f"${_short(used)} of ${_short(most)}"


def _short(micro: int) -> str:
    text = usd_text(micro).rstrip("0")
    return f"{Decimal(micro) / MICRO:.2f}" if len(text.partition(".")[2]) < 2 else text


def _tokens(used: int, most: int) -> str:
    return f"{used:,} of {most:,} tokens"


def limits_text(limits: Mapping[str, Any]) -> str:
    """Say which caps are set, such as `$0.50 a run, 20,000 tokens a day`; empty: none."""
    return ", ".join(
        f"{text} {WORDS[period]}"
        for period in PERIODS
        for cap in [limits.get(period, {})]
        for text in (
            f"${cap['usd']}" if "usd" in cap else "",
            f"{cap['tokens']:,} tokens" if "tokens" in cap else "",
        )
        if text
    )


def caps_in_words(budget: Budget) -> dict[str, str]:
    """Say of each period's cap what is spent and when it begins anew; of a run which caps are set. One query."""
    [periods] = shown_limits([budget])
    found = {}
    for period, cap in periods.items():
        found[period] = limits_text({period: cap})
        if "spent" in cap:
            row = {"period": period, "tokens": cap.get("tokens"), "micro_usd": micro_of(cap.get("usd"))}
            row |= {"ends_at": cap["resets_at"], "zone": budget.zone}
            used = words_of(row, cap["spent"]["tokens"], micro_of(cap["spent"]["usd"]) or 0)
            found[period] = f"{used} spent. {anew(row)}"
    return found


def anew(cap: Mapping[str, Any]) -> str:
    """Say when a cap begins anew, by its own clock."""
    if not cap["ends_at"]:
        return "It begins anew with the next run."
    at = datetime.fromisoformat(cap["ends_at"]).astimezone(ZoneInfo(cap["zone"]))
    return f"It begins anew on {at:%-d %b %Y, %H:%M} {cap['zone']}."
