"""The usual forms of a cron expression in words."""

from __future__ import annotations

import re

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAY_NAMES = {name[:3].upper(): number for number, name in enumerate(DAYS[:7])}
_MONTH_NAMES = {name[:3].upper(): number for number, name in enumerate(MONTHS) if name}
MOST_TIMES = 6  # longer lists have no words


def cron_words(expr: str) -> str | None:
    """`every day at 09:00`, `every 5 minutes on weekdays`, …; None for an unusual form. `expr`: from `read_expr`."""
    minute, hour, day, month, weekday = expr.replace("?", "*").split()
    days, months = _days(day, weekday), _months(month)
    if days is None or months is None:
        return None
    fixed = _times(minute, hour)
    if fixed is not None:
        return f"{days or 'every day'} at {fixed}{months}"
    often = _often(minute, hour)
    return None if often is None else f"{often}{' ' if days else ''}{days}{months}"


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"


def _numbers(field: str, names: dict[str, int] | None = None) -> list[int] | None:
    """The members of a plain list, or None."""
    numbers = [int(part) if part.isdigit() else (names or {}).get(part) for part in field.split(",")]
    return None if None in numbers else [number for number in numbers if number is not None]


def _range(field: str, names: dict[str, int] | None = None) -> tuple[int, int] | None:
    """The ends of one plain range, or None."""
    low, dash, high = field.partition("-")
    ends = _numbers(f"{low},{high}", names) if dash and "," not in field else None
    return (ends[0], ends[1]) if ends else None


def _step(field: str) -> int | None:
    """The n of `*/n`; 1 for `*`."""
    if field == "*":
        return 1
    match = re.fullmatch(r"\*/([0-9]+)", field)
    return int(match[1]) if match else None


def _times(minute: str, hour: str) -> str | None:
    """`09:00`, `09:00 and 17:30`: one or a few fixed times of day."""
    minutes, hours = _numbers(minute), _numbers(hour)
    if minutes is None or hours is None or len(minutes) * len(hours) > MOST_TIMES:
        return None
    times = sorted({(h, m) for h in hours for m in minutes})
    return listed([f"{h:02}:{m:02}" for h, m in times])


def _often(minute: str, hour: str) -> str | None:
    """A time that repeats within a day: `every 5 minutes`, `at minute 0 of every 2nd hour`."""
    hours = _hours(hour)
    if hours is None:
        return None
    step = _step(minute)
    if step is not None and (step == 60 or 60 % step):
        return None
    ends = _range(hour)
    if step is not None:
        rhythm = "every minute" if step == 1 else f"every {step} minutes"
        span = f" from {ends[0]:02}:00 to {ends[1]:02}:59" if ends else f" of {hours}"
        return rhythm if hour == "*" else rhythm + span
    minutes = _numbers(minute)
    if minutes is None or len(minutes) > MOST_TIMES:
        return None
    if minutes == [0] and (hour == "*" or ends):
        return f"every hour from {ends[0]:02}:00 to {ends[1]:02}:00" if ends else "every hour"
    named = listed([str(number) for number in sorted(set(minutes))])
    return f"at minute{'s' if len(set(minutes)) > 1 else ''} {named} of {hours}"


def _hours(hour: str) -> str | None:
    step = _step(hour)
    if step is not None:
        if step == 24 or 24 % step:
            return None
        return "every hour" if step == 1 else f"every {ordinal(step)} hour"
    ends = _range(hour)
    if ends is not None:
        return f"every hour from {ends[0]:02} to {ends[1]:02}"
    numbers = _numbers(hour)
    if numbers is None or len(numbers) > MOST_TIMES:
        return None
    named = listed([f"{number:02}" for number in sorted(set(numbers))])
    return f"hour{'s' if len(set(numbers)) > 1 else ''} {named}"


def _months(month: str) -> str | None:
    if month == "*":
        return ""
    ends = _range(month, _MONTH_NAMES)
    if ends is not None:
        return f", {MONTHS[ends[0]]} to {MONTHS[ends[1]]}"
    numbers = _numbers(month, _MONTH_NAMES)
    return None if numbers is None else f" in {listed([MONTHS[number] for number in sorted(set(numbers))])}"


def _days(day: str, weekday: str) -> str | None:
    """Empty for every day; None for an unusual form. When both fields are given, cron joins them by OR."""
    if weekday == "*":
        return "" if day == "*" else _month_days(day)
    if day == "*":
        return _weekdays(weekday)
    if day.startswith("*") or weekday.startswith("*"):
        return None  # joined by AND
    parts = [_month_days(day), _weekdays(weekday)]
    return None if None in parts else " and ".join(part for part in parts if part)


def _month_days(day: str) -> str | None:
    if day == "L":
        return "on the last day of the month"
    nearest = re.fullmatch(r"W?([0-9]+)W?", day)
    if nearest and "W" in day:
        return f"on the weekday nearest to the {ordinal(int(nearest[1]))} of the month"
    ends = _range(day)
    if ends is not None:
        return f"from the {ordinal(ends[0])} to the {ordinal(ends[1])} of the month"
    numbers = _numbers(day)
    if numbers is None or len(numbers) > MOST_TIMES:
        return None
    return f"on the {listed([ordinal(number) for number in sorted(set(numbers))])} of the month"


def _weekdays(weekday: str) -> str | None:
    special = re.fullmatch(r"L([0-7])", weekday)
    if special:
        return f"on the last {DAYS[int(special[1])]} of the month"
    nth = re.fullmatch(r"([0-7]|[A-Z]{3})#([1-5])", weekday)
    if nth:
        number = int(nth[1]) if nth[1].isdigit() else _DAY_NAMES[nth[1]]
        return f"on the {ordinal(int(nth[2]))} {DAYS[number]} of the month"
    ends = _range(weekday, _DAY_NAMES)
    if ends is not None:
        return "on weekdays" if ends == (1, 5) else f"{DAYS[ends[0]]} to {DAYS[ends[1]]}"
    numbers = _numbers(weekday, _DAY_NAMES)
    if numbers is None:
        return None
    names = sorted({number % 7 for number in numbers}, key=lambda number: (number - 1) % 7)
    if names in ([6, 0], [1, 2, 3, 4, 5]):
        return "on weekends" if names == [6, 0] else "on weekdays"
    return f"every {listed([DAYS[number] for number in names])}"
