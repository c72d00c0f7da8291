"""Replaces words such as "tomorrow", "next Monday" and 下周一 by dates, counted from the day on which they were said.

"next Friday" is the Friday of the next week (weeks begin on Monday), as 下周五 is; "last Friday" is the latest one that
is past. Without "next", "this", "last" or 下, 本, 上 a weekday stays as it is: it may be said of every week.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Final

_DAYS: Final = {
    word: days
    for days, words in {
        -3: ("大前天",),
        -2: ("the day before yesterday", "day before yesterday", "前天"),
        -1: ("yesterday", "last night", "昨天", "昨日", "昨晚"),
        0: (
            *("today", "tonight", "this morning", "this afternoon", "this evening"),
            *("今天", "今日", "今晚", "今早"),
        ),
        1: ("tomorrow", "明天", "明日", "明晚", "明早"),
        2: ("the day after tomorrow", "day after tomorrow", "后天"),
        3: ("大后天",),
    }.items()
    for word in words
}
_PARTS: Final = {
    "tonight": " evening",
    "last night": " evening",
    "晚": "晚上",
    "早": "早上",
    **{f"this {part}": f" {part}" for part in ("morning", "afternoon", "evening")},
}
_YEARS: Final = {"明年": 1, "后年": 2, "今年": 0, "去年": -1, "前年": -2}
_NUMBERS: Final = {
    word: number
    for number, words in enumerate(
        (
            *(("a", "one", "一"), ("two", "两", "二"), ("three", "三"), ("four", "四"), ("five", "五")),
            *(("six", "六"), ("seven", "七"), ("eight", "八"), ("nine", "九"), ("ten", "十")),
        ),
        start=1,
    )
    for word in words
}
_WHICH: Final = {
    "this": 0,
    "next": 1,
    "coming": 1,
    "last": -1,
    "past": -1,
    "这": 0,
    "本": 0,
    "下": 1,
    "上": -1,
}
_WEEKDAYS: Final = "mon tues wednes thurs fri satur sun".split()  # noqa: SIM905
_SATURDAY: Final = 5
_LONGEST_CLAUSE: Final = 200  # characters
_WEEKDAYS_CHINESE: Final = "一二三四五六日"

# Chinese words that only look like days: 目前天气, 以后天天, 过去年代, 以前年轻; not 可以后天, 所以前天
_IS_DAY: Final = (
    "(?!(?<=如)今|(?<![可所]以)(?:(?<=[以目之从日此])前|(?<=[以之今午饭产])后)|(?<=[表证声])明|(?<=[过失])去"
    "|后天[性免]|.年[轻龄代纪])"
)
_IS_PERIOD: Final = "(?<![早晚马网线路身一])"  # 晚上月亮, 看一下周一
# a duration, or one of several: "over the past year", "her last year of school"
_IS_NEXT: Final = "".join(rf"(?<!\b{word} )" for word in "the her his my your our their its".split())  # noqa: SIM905

# without one of these, "in 3 days" may be a duration: "she ran 100 km in 3 days"
_COMES: Final = re.compile(
    r"(?:^|[.,;:!?] |\b(?:is|are|due|starts?|begins?|ends?|comes?|leaves?|arrives?|moves?|fly|flies|expires?) )$"
    r"|(?:\bwill\b|'ll\b|(?:\b(?:am|is|are)|'[ms]|'re) \w+ing\b)[^.,;:!?]*$",
    re.IGNORECASE,
)
# not after the name of an event: 手术3天后
_IS_FROM_NOW: Final = "(?:(?<![\u3400-\u9fff])|(?<=[我你您他她它们在将要会说就约]))"

_NUMBER: Final = r"\d{1,3}|a|one|two|three|four|five|six|seven|eight|nine|ten"
_NUMBER_CHINESE: Final = "[0-9]{1,3}|[一两二三四五六七八九十]"
_WEEKDAY: Final = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_RELATIVE: Final = re.compile(
    rf"\b(?P<day>{'|'.join(sorted((day for day in _DAYS if day.isascii()), key=len, reverse=True))})\b"
    rf"|{_IS_DAY}(?P<day2>{'|'.join(sorted((day for day in _DAYS if not day.isascii()), key=len, reverse=True))})"
    rf"|\b(?P<weekday>{_WEEKDAY})(?: of)? (?P<week>this|next|last) week\b"
    rf"|\b(?P<week2>this|next|last) week(?: on|'s)? (?P<weekday2>{_WEEKDAY})\b"
    rf"|(?:(?:the )?(?=\w+ weekend)|{_IS_NEXT}|(?=\w+ {_WEEKDAY}))\b(?P<which>this|next|coming|last|past)"
    rf" (?P<what>{_WEEKDAY}|week(?:end)?|month|year)\b(?! of\b)"
    rf"|{_IS_PERIOD}(?P<which2>下下|上上|[这本下上])(?:个|一个)?(?:周|星期|礼拜)(?P<weekday3>[一二三四五六日天]?)"
    r"(?![围边刊]|期(?![末中]))"
    rf"|{_IS_PERIOD}(?P<which3>下下|上上|[这本下上])个?月(?![亮季经饼光球])"
    rf"|{_IS_DAY}(?P<year>[明后今去前]年)"
    rf"|\b(?P<in>in )?(?P<number>{_NUMBER}) (?P<unit>day|week|month|year)s?\b(?P<way> ago| from now| from today)?"
    rf"|{_IS_FROM_NOW}(?P<number2>{_NUMBER_CHINESE})(?P<unit2>天|周|个星期|个月|年)(?P<way2>之?后|以后|之?前|以前)",
    re.IGNORECASE,
)
_DATE: Final = re.compile(r"\d{4}(?:-\d\d)*")
_DateOf = Callable[[date], str]


def named_days(text: str, on: date) -> tuple[date, frozenset[str]]:
    """Return the day of a message and the dates of its relative days, as `with_dates` takes them."""
    found = map(_read, _RELATIVE.finditer(text))
    return on, frozenset(_date(date_of(on)) for date_of in found if date_of is not None)


def with_dates(text: str, on: date, said: Sequence[tuple[date, frozenset[str]]] = ()) -> str:
    """Replace relative days by dates. They are counted from the day of the last message in `said` that names the same
    day, else from `on`.
    """

    def replaced(found: re.Match[str]) -> str:
        date_of = _read(found)
        if date_of is None:
            return found[0]
        days = (day for day, named in reversed(said) if _date(date_of(day)) in named)
        return date_of(next(days, on))

    return _RELATIVE.sub(replaced, text)


def _date(text: str) -> str:
    found = _DATE.search(text)
    return found[0] if found else text


def _read(found: re.Match[str]) -> _DateOf | None:
    """How the date is counted from the day on which it was said. None: the text names no date."""
    group = {name: value.lower() for name, value in found.groupdict().items() if value}
    if day := group.get("day") or group.get("day2"):
        part = _PARTS.get(day) or _PARTS.get(day[-1], "")
        return lambda on: f"{on + timedelta(days=_DAYS[day])}{part}"
    if weekday := group.get("weekday") or group.get("weekday2"):
        weeks = _WHICH[group.get("week") or group["week2"]]
        return lambda on: f"{_in_week(on, weeks, _WEEKDAYS.index(weekday[:-3]))}"
    if which := group.get("which"):
        return _of_period(which, group["what"])
    if which := group.get("which2"):
        weeks = _WHICH[which[0]] * len(which)
        number = _WEEKDAYS_CHINESE.find(group.get("weekday3", "").replace("天", "日"))
        if not group.get("weekday3"):
            return lambda on: f"{_in_week(on, weeks, 0)}那周"
        return lambda on: f"{_in_week(on, weeks, number)}"
    if which := group.get("which3"):
        months = _WHICH[which[0]] * len(which)
        return lambda on: _month(on, months)
    if year := group.get("year"):
        return lambda on: f"{on.year + _YEARS[year]}年"
    return _counted(found.string[: found.start()], group)


def _of_period(which: str, what: str) -> _DateOf:
    number = _WHICH[which]
    match what:
        case "weekend" if which != "coming":
            return lambda on: f"the weekend of {_in_week(on, number, _SATURDAY)}"
        case "week":
            return lambda on: f"the week of {_in_week(on, number, 0)}"
        case "month":
            return lambda on: _month(on, number)
        case "year":
            return lambda on: str(on.year + number)
    weekday = _SATURDAY if what == "weekend" else _WEEKDAYS.index(what[:-3])
    if which in ("this", "next"):
        return lambda on: f"{_in_week(on, number, weekday)}"
    if which == "coming":
        named = "the weekend of " if what == "weekend" else ""
        return lambda on: f"{named}{on + timedelta(days=(weekday - on.weekday() - 1) % 7 + 1)}"
    return lambda on: f"{on - timedelta(days=(on.weekday() - weekday - 1) % 7 + 1)}"


def _counted(before: str, group: dict[str, str]) -> _DateOf | None:
    """Days and weeks before or after. "in 3 days" may be a duration, unless the words before it say what comes."""
    way = group.get("way") or group.get("way2", "")
    if not (way or ("in" in group and _COMES.search(before[-_LONGEST_CLAUSE:]))):
        return None
    number = group.get("number") or group["number2"]
    count = int(number) if number.isdecimal() else _NUMBERS[number]
    count *= -1 if way == " ago" or "前" in way else 1
    match group.get("unit") or group["unit2"]:
        case "month" | "个月":
            return lambda on: _month(on, count)
        case "year" | "年":
            return lambda on: f"{on.year + count}"
        case unit:
            days = count * (1 if unit in ("day", "天") else 7)
            return lambda on: f"{on + timedelta(days=days)}"


def _in_week(on: date, weeks: int, weekday: int) -> date:
    return on + timedelta(days=7 * weeks + weekday - on.weekday())


def _month(on: date, months: int) -> str:
    years, month = divmod(on.month - 1 + months, 12)
    return f"{on.year + years}-{month + 1:02}"
