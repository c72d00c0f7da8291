"""Caps in tokens and US dollars: how they are given and stored, and the periods for which they count.

`{"run": {"tokens": 20000, "usd": "0.50"}, "day": {…}, "month": {…}}`: each key is optional. A run is a slot with all
its attempts, or one message.

Where a new cap goes: a period into `PERIODS`, `WORDS` and `period_of`, the forms that name the three
(`interfaces/web/appointments/forms.py`, `templates/web/appointments/caps.html`), `CapsOut` of the API and the texts
that `git grep -iE "day (and|or) month"` finds; a subject into `SCOPES`, and into `budgets_of` and `register_caps` of
`agents/budgets.py`, with a column `limits`; a unit beside tokens and dollars into `_checked` and `cap_rows`, `Amount`
of `agent_core/spending.py`, `models/spending.py` and the functions of its migration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent_core.spending import MICRO, NOTHING, Amount, Budget, dollars_text, usd_text
from sessions_app.exceptions import BadInput
from sessions_app.models import Spending
from sessions_app.models.spending import REACHED

RUN, DAY, MONTH = PERIODS = ("run", "day", "month")
SCOPES = ("agent", "automation", "connection", "user")
AMOUNTS = ("tokens", "usd")
MOST_TOKENS = 10**12
MOST_USD = 1_000_000
WORDS = {RUN: "a run", DAY: "a day", MONTH: "a month"}
_FACT = ("scope", "subject", "period", "tokens", "micro_usd", "ends_at")
LONGEST_NAME = 60


def merge_caps(stored: Mapping[str, Any], given: object) -> dict[str, Any]:
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
    """Return what `merge_caps` needs to replace the stored caps by the given ones."""
    whole = {
        period: dict.fromkeys(AMOUNTS) | cap if isinstance(cap, dict) else cap
        for period, cap in given.items()
    }
    return dict.fromkeys(stored) | whole


def _checked(period: str, cap: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in cap.items():
        if name not in AMOUNTS:
            raise _bad(f"limits.{period} has no {str(name)[:60]!r}; known: tokens, usd")
        checked[name] = value
        if value is None:
            continue
        if name == "usd":
            checked[name] = _decimal_text(f"limits.{period}.usd", value)
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
            raise _bad(f"limits.{period}.tokens must be a whole number from 0 to {MOST_TOKENS}")
    return checked


def _decimal_text(name: str, value: object) -> str:
    """Return an amount of US dollars as it is stored, such as `0.50`. BadInput."""
    is_short = isinstance(value, str | int | float) and len(str(value)) <= 40
    try:
        number = Decimal(str(value).strip()) if is_short else Decimal("NaN")
    except InvalidOperation:  # as of a bool
        number = Decimal("NaN")
    if not number.is_finite() or not 0 <= number <= MOST_USD:
        raise _bad(f"{name} must be US dollars from 0 to {MOST_USD}, such as '0.50'")
    if number != round(number, 6):
        raise _bad(f"{name} must have at most six decimal places")
    return _trimmed(number)


def _trimmed(usd: Decimal) -> str:
    text = f"{usd:.6f}".rstrip("0")
    return f"{usd:.2f}" if len(text.partition(".")[2]) < 2 else text


def _bad(text: str) -> BadInput:
    return BadInput(text, code="bad_limits")


def cap_rows(budgets: Iterable[Budget], now: datetime, runs: Iterable[str] = ("",)) -> list[dict[str, Any]]:
    """Return the caps that apply to a call at this time, as `rondo_reserve` takes them.

    `runs`: those that the call is for. A cap of a run stands for each of them.
    """
    found = []
    for budget in budgets:
        for period, cap in budget.limits.items():
            begin, ends_at = period_of(period, budget.zone, now)
            found += [
                {
                    "key": f"{budget.scope}:{budget.subject}:{period}:{part}",
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
                for part in ([begin] if begin else runs)
            ]
    return found


def micro_of(usd: str | None) -> int | None:
    """Return micro-dollars."""
    return None if usd is None else int(Decimal(usd) * MICRO)


def period_of(period: str, zone: str, now: datetime) -> tuple[str, datetime | None]:
    """Return the day or month in a zone, such as `2026-11-28`, and its end in UTC; empty and None for a run."""
    if period == RUN:
        return "", None
    clock = _clock(zone)
    today = now.astimezone(clock).date()
    if period == DAY:
        return today.isoformat(), _midnight(today + timedelta(days=1), clock)
    if period == MONTH:
        following = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
        return f"{today:%Y-%m}", _midnight(following, clock)
    raise ValueError(period)


def _clock(zone: str) -> ZoneInfo:
    """The zone, or UTC if its data are gone."""
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _midnight(day: Any, clock: ZoneInfo) -> datetime:
    return datetime.combine(day, time(0), clock).astimezone(UTC)


def shown_caps(budgets: Iterable[Budget]) -> list[dict[str, Any]]:
    """Return each budget's caps; those of days and months with what is spent and when they begin anew. One query."""
    rows = [cap_rows([budget], datetime.now(UTC)) for budget in budgets]
    spent = _spent(row for each in rows for row in each if row["ends_at"])
    return [{row["period"]: _shown(row, spent) for row in each} for each in rows]


def _spent(rows: Iterable[Mapping[str, Any]]) -> defaultdict[str, Spending]:
    return defaultdict(Spending, Spending.objects.in_bulk([row["key"] for row in rows]))


def _shown(row: Mapping[str, Any], spent: Mapping[str, Spending]) -> dict[str, Any]:
    usd = row["micro_usd"]
    cap = {"tokens": row["tokens"], "usd": None if usd is None else _trimmed(Decimal(usd) / MICRO)}
    shown: dict[str, Any] = {name: most for name, most in cap.items() if most is not None}
    if row["ends_at"]:
        used = spent[row["key"]]
        shown["spent"] = {"tokens": used.spent_tokens, "usd": usd_text(used.spent_micro_usd)}
        shown["resets_at"] = row["ends_at"].replace("+00:00", "Z")
    return shown


def used_up(
    budgets: Iterable[Budget],
    at: datetime,
    *,
    is_priced: bool = True,
    refused_until: datetime | None = None,
    spent: Mapping[str, Spending] | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of caps of which too little is left and that begin anew after `at`. One query without `spent`.

    `is_spent` of a row: nothing is left.
    `is_priced`: the calls cost money; others are not stopped by US dollars. `refused_until`: when the cap begins anew
    that refused the last call, so what is left of it is too little.
    """
    rows = [row for row in cap_rows(budgets, datetime.now(UTC)) if _ends(row) > at]
    spent, found = _spent(rows) if spent is None else spent, []
    for row in rows:
        so_far = spent[row["key"]]
        is_spent = row["tokens"] is not None and so_far.spent_tokens >= row["tokens"]
        if is_priced and row["micro_usd"] is not None:
            is_spent |= so_far.spent_micro_usd >= row["micro_usd"]
        if is_spent or (so_far.told == REACHED and _ends(row) == refused_until):
            found.append(row | {"is_spent": is_spent})
    return found


def spent_of(budgets: Iterable[Budget]) -> Mapping[str, Spending]:
    """Return what is spent of these budgets in the days and months of now, by key. One query."""
    return _spent(row for row in cap_rows(budgets, datetime.now(UTC)) if row["ends_at"])


def _ends(row: Mapping[str, Any]) -> datetime:
    """When a cap begins anew; that of a run at once."""
    return datetime.fromisoformat(row["ends_at"]) if row["ends_at"] else datetime.min.replace(tzinfo=UTC)


def budget_of(scope: str, subject: object, limits: Mapping[str, Any], **more: Any) -> Budget:
    """Return a subject's budget, which may have no caps."""
    return Budget(scope=scope, subject=str(subject), limits=limits, **more)


def words_of(cap: Mapping[str, Any], tokens: int, micro_usd: int) -> str:
    """Say how much of a cap this is, such as `$0.48 of $0.50 a day`."""
    parts = []
    if cap["micro_usd"] is not None:
        parts.append(f"{_usd(micro_usd)} of {_usd(cap['micro_usd'])}")
    if cap["tokens"] is not None:
        parts.append(f"{tokens:,} of {cap['tokens']:,} tokens")
    return f"{' and '.join(parts)} {WORDS[cap['period']]}"


def _usd(micro: int) -> str:
    return f"${dollars_text(Decimal(micro) / MICRO)}"


def subject_of(cap: Mapping[str, Any]) -> str:
    """Say whose cap it is, such as `the agent demo`."""
    name = cap["name"][:LONGEST_NAME]
    return {"user": "your account", "automation": f'the automation "{name}"'}.get(
        cap["scope"], f"the {cap['scope']} {name}"
    )


def cap_text(
    cap: Mapping[str, Any], needs: Amount | None, spent: Amount | None = None, *, reply_of: str = ""
) -> str:
    """Say that a cap allows no further call: whose it is, what is left of it, what a call may need and what to do.

    `cap`: a row of `cap_rows`. `needs`: the most that a call can cost; None: not known. `reply_of`: a model, if that is
    its longest reply alone. `spent`: None: not to be told. Of a private cap no amounts are told.
    """
    begin = f"The cap of {subject_of(cap)}"
    if cap["is_private"]:
        return f"{begin} for {WORDS[cap['period']]} allows no further call. {_way_out(cap, None, None, '')}"
    if spent is None:
        whole = f"{_amounts(cap, cap['tokens'] or 0, cap['micro_usd'] or 0)} {WORDS[cap['period']]}"
        said = f"{begin}, {whole}, allows no further call"
    else:
        left = (max(0, (cap[name] or 0) - getattr(spent, name)) for name in ("tokens", "micro_usd"))
        said = f"{begin} allows no further call: {words_of(cap, *left)} are left"
    if needs is None:
        need = ""
    elif reply_of:
        kept = _amounts(cap, needs.tokens, needs.micro_usd)
        need = f"; a call may need more than {kept}, kept free for the longest reply of {reply_of} alone"
    else:
        kept = _amounts(cap, needs.tokens, needs.micro_usd)
        need = f"; the next call may need up to {kept}, kept free for what it reads and its longest reply"
    return f"{said}{need}. {_way_out(cap, needs, spent, reply_of)}"


def _way_out(cap: Mapping[str, Any], needs: Amount | None, spent: Amount | None, reply_of: str) -> str:
    """What a person can do; when the cap begins anew only if a call fits then."""
    raising = "have the operator raise it" if cap["is_private"] else "raise it"
    if needs is not None and _exceeds(cap, needs):  # nor does one fit when nothing is spent
        so_far: Amount | None = NOTHING
        begin, end = "", ', or shorten "Longest reply in tokens".'
    else:
        so_far, begin, end = spent, f"{anew(cap)} To go on before that, ", "."
    if needs is not None and so_far is not None:
        roomy = Amount(tokens=_with_room(needs.tokens), micro_usd=_with_room(needs.micro_usd))
        room = needs if reply_of else roomy
        to = _amounts(cap, so_far.tokens + room.tokens, so_far.micro_usd + room.micro_usd)
        raising += f" well above {to}" if reply_of else f" to {to} or more"
        end = f", as calls grow with the conversation{end}" if not reply_of and so_far is NOTHING else end
    said = f"{begin}{raising}{end}"
    return said[0].upper() + said[1:]


def _amounts(cap: Mapping[str, Any], tokens: int, micro_usd: int) -> str:
    """These amounts in the units that a cap has."""
    parts = [] if cap["micro_usd"] is None else [_usd(micro_usd)]
    parts += [] if cap["tokens"] is None else [f"{tokens:,} tokens"]
    return " and ".join(parts)


def too_small(rows: Iterable[Mapping[str, Any]], reply: Amount) -> Mapping[str, Any] | None:
    """The first of these rows of `cap_rows` that the longest reply of a model does not fit into; None: into all."""
    return next((row for row in rows if _exceeds(row, reply)), None)


def _exceeds(cap: Mapping[str, Any], needs: Amount) -> bool:
    """Whether a call does not fit into a cap of which nothing is spent."""
    return any(cap[name] is not None and getattr(needs, name) > cap[name] for name in ("tokens", "micro_usd"))


def caps_text(limits: Mapping[str, Any]) -> str:
    """Say which caps are set, such as `$0.50 a run, 20,000 tokens a day`; empty: none."""
    words = {"usd": "${}", "tokens": "{:,} tokens"}
    return ", ".join(
        f"{words[name].format(limits[period][name])} {WORDS[period]}"
        for period in PERIODS
        for name in words
        if name in limits.get(period, ())
    )


def caps_in_words(budget: Budget, *, is_partial: bool = False) -> dict[str, str]:
    """Say of each period's cap what is spent and when it begins anew; of a run which caps are set. One query.

    `is_partial`: the price of some calls is not known.
    """
    [periods] = shown_caps([budget])
    found = {}
    for period, cap in periods.items():
        found[period] = caps_text({period: cap})
        if "spent" in cap:
            row = {"period": period, "tokens": cap.get("tokens"), "micro_usd": micro_of(cap.get("usd"))}
            row |= {"ends_at": cap["resets_at"], "zone": budget.zone}
            used = words_of(row, cap["spent"]["tokens"], micro_of(cap["spent"]["usd"]) or 0)
            least = "At least " if is_partial and "usd" in cap else ""
            found[period] = f"{least}{used} spent. {anew(row)}"
    return found


def _with_room(amount: int) -> int:
    """Twice an amount, rounded up to two digits: what a call reads grows from one to the next."""
    step: int = 10 ** max(0, len(str(2 * amount)) - 2)
    return -(-2 * amount // step) * step


def refusal(cap: Mapping[str, Any], needs: Amount) -> dict[str, Any]:
    """Return what is stored of a cap that refused a call, and of what the call may have cost."""
    return {name: cap[name] for name in _FACT} | {
        "needs": {"tokens": needs.tokens, "micro_usd": needs.micro_usd}
    }


def needed(refused: Mapping[str, Any]) -> Amount:
    """Return what the call may have cost that was refused, from what `refusal` returned."""
    return Amount(**refused["needs"])


def fits_none(refused: Mapping[str, Any] | None) -> bool:
    """Whether such a call does not fit into the whole cap, by what `refusal` returned."""
    return refused is not None and _exceeds(refused, needed(refused))


def is_of(refused: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether this row of `cap_rows` is the cap that refused the call, with the same amounts."""
    return all(refused[name] == row[name] for name in _FACT if name != "ends_at")


def anew(cap: Mapping[str, Any]) -> str:
    """Say when a cap begins anew, in the zone of its budget."""
    if not cap["ends_at"]:
        return "It begins anew with each run and each message."
    clock = _clock(cap["zone"])
    at = datetime.fromisoformat(cap["ends_at"]).astimezone(clock)
    return f"It begins anew at {at:%Y-%m-%d %H:%M} ({clock})."
