"""The usual forms of a recurrence rule in words."""

from __future__ import annotations

from automations.schedules.cron_words import DAYS, MONTHS, MOST_TIMES, listed, ordinal
from automations.schedules.rule_fields import RuleFields

_COUNTS = ("", "", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_UNITS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}
_SETS = {(0, 1, 2, 3, 4): "weekday (Mon\u2013Fri)", (5, 6): "day of a weekend", tuple(range(7)): "day"}


def rule_words(fields: RuleFields) -> str | None:
    """`every two weeks on Monday at 09:00`, …; None for an unusual form."""
    days = _days(fields)
    if days is None or len(fields.times) > MOST_TIMES:
        return None
    times = listed([f"{each // 60:02}:{each % 60:02}" for each in fields.times])
    return f"{days} at {times}{_end(fields)}"


def _end(fields: RuleFields) -> str:
    if "COUNT" in fields.parts:
        count = int(fields.parts["COUNT"])
        return f", {count} times" if count > 1 else ", once"
    return f" until {fields.end.day} {fields.end:%b %Y}" if "UNTIL" in fields.parts and fields.end else ""


def _days(fields: RuleFields) -> str | None:
    named = fields.parts.keys() - {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYHOUR", "BYMINUTE"}
    unit = _UNITS[fields.parts["FREQ"]]
    count = fields.interval
    every = f"every {unit}" if count == 1 else f"every {_COUNTS[count] if count <= 12 else count} {unit}s"
    match fields.parts["FREQ"]:
        case "DAILY":
            if named <= {"BYSETPOS"}:  # of the times
                return every
            return _weekly(fields, every) if named <= {"BYSETPOS", "BYDAY"} and count == 1 else None
        case "WEEKLY":
            return _weekly(fields, every) if named <= {"BYDAY"} else None
        case "MONTHLY":
            months = [MONTHS[each] for each in fields.by.get("bymonth", ())]
            days = _of_month(fields)
            in_months = f" in {listed(months)}" if months else ""
            return days and f"{every + ' ' if count > 1 else ''}{days} of the month{in_months}"
    return _yearly(fields, every)


def _weekly(fields: RuleFields, every: str) -> str:
    days = [each if isinstance(each, int) else each.weekday for each in fields.by["byweekday"]]
    names = [DAYS[1 + day] for day in sorted(set(days))]
    group = {5: "weekdays", 2: "weekends"}.get(len(names)) if tuple(sorted(set(days))) in _SETS else None
    if fields.interval > 1:
        return f"{every} on {group or listed(names)}"
    return f"on {group}" if group else f"every {listed(names)}"


def _yearly(fields: RuleFields, every: str) -> str | None:
    months = fields.by.get("bymonth", ())
    days = _of_month(fields)
    if days is None or not months or ("bysetpos" in fields.by and len(months) > 1):
        return None
    return f"{every} {days} of {listed([MONTHS[each] for each in months])}"


def _of_month(fields: RuleFields) -> str | None:
    """`on the last Friday`, `on the 1st and 15th`, `on the last weekday …`."""
    by = fields.by
    match sorted(by.keys() - {"bymonth"}):
        case ["bymonthday"]:
            days = sorted(by["bymonthday"], key=lambda day: (day < 0, day))
            named = [_nth(each, "day") if each < 0 else ordinal(each) for each in days]
        case ["byweekday"] if fields.parts["BYDAY"][0] not in "MTWFS":  # days with numbers
            named = [_nth(each.n, DAYS[1 + each.weekday]) for each in by["byweekday"]]
        case ["bysetpos", "byweekday"] if fields.parts["BYDAY"][0] in "MTWFS" and len(by["bysetpos"]) == 1:
            week = tuple(sorted({each.weekday for each in by["byweekday"]}))
            what = DAYS[1 + week[0]] if len(week) == 1 else _SETS.get(week)
            if what is None:
                return None
            named = [_nth(by["bysetpos"][0], what)]
        case _:
            return None
    return f"on the {listed(named)}" if len(named) <= MOST_TIMES else None


def _nth(number: int, what: str) -> str:
    """`1st Friday`, `last Friday`, `2nd last Friday`."""
    if number > 0:
        return f"{ordinal(number)} {what}"
    return f"last {what}" if number == -1 else f"{ordinal(-number)} last {what}"
