"""Reads when the offline model is to do something, in any order of a sentence's words, and says what it leaves out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from agent_core.types import JSON, ToolCall

CLOCK: Final = ToolCall(id="", name="current_time", arguments={})  # asked first where a time depends on now
MESSAGE: Final = "schedule_private_message"
LONGEST: Final = 2_000  # characters of a sentence that is read
UNCLEAR: Final = 'I did not understand when. Write "help" to see which sentences I understand.'
REMINDS: Final = re.compile(r"(?is)^remind me (?:(?:to|about|of|that) )?(?P<what>.+)$")

_COUNTS = "one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
_NUMBERS = {word: n for n, word in enumerate(_COUNTS, 1)}
_NUMBERS |= {"a": 1, "an": 1, "other": 2, "fifteen": 15, "twenty": 20, "thirty": 30}
_N = rf"\d{{1,9}}|{'|'.join(_NUMBERS)}"
_NUMBERS["second"] = 2  # in "every second day" alone
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_UNIT = rf"(?P<unit>{'|'.join(_SECONDS)})s?"
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_DAY = "|".join(_DAYS)
_CRON = {day: str(n) for n, day in enumerate(_DAYS)} | {"weekday": "1-5", "weekend": "6,0"}
_PLACES = {"first": "#1", "second": "#2", "third": "#3", "fourth": "#4"}  # in a month
_PARTS = {"morning": 9, "afternoon": 15, "evening": 20}  # the hours that are taken when none is named
_PART = rf"(?: (?P<part>{'|'.join(_PARTS)}))?"
_ON = rf"(?:{'|'.join(_CRON)}|day|{'|'.join(_PARTS)})"
_MANY = rf"(?:{'|'.join(_CRON)})s"
_AND = r"(?:, (?:and )?| and )"
_EVERY = "(?:every|each)"
_MONTH = rf"(?:of|in) (?:{_EVERY}|the) month"
_REPEATED = (
    rf"(?:on |{_EVERY} )?(?:the )?(?P<place>{'|'.join(_PLACES)}|last) (?P<of_month>{_DAY}|day) {_MONTH}",
    rf"(?:on )?the (?P<date>\d\d?)(?:st|nd|rd|th) {_MONTH}",
    rf"{_EVERY} (?P<place>last) (?P<of_month>{_DAY})",
    rf"{_EVERY} (?P<on>{_ON}(?:{_AND}{_ON})*){_PART}|(?:on )?(?P<many>{_MANY}(?:{_AND}{_MANY})*)|(?P<daily>daily)",
    rf"{_EVERY} (?:(?P<count>{_N}|second(?= (?:minute|hour|day|week))) )?(?!second \w+day){_UNIT}",
)
_ONCE = (
    rf"(?:in|after) (?P<soon>{_N}) {_UNIT}",
    rf"(?P<day>tomorrow|today|this(?= (?:{'|'.join(_PARTS)}))){_PART}",
    rf"(?:on|next|this) (?P<weekday>{_DAY}){_PART}",
    r"on (?P<day>\d{4}-\d\d-\d\d)",
    r"(?P<clock>)(?=at \d)",
)
_AT = r"(?:on |at )?(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)"
_FORMS: Final = tuple(re.compile(rf"(?i)\b(?:{form})\b") for form in (_AT, *_REPEATED, *_ONCE))
_TIME = (
    rf"(?:(?:at|around) (?P<hour>\d\d?|{'|'.join(_COUNTS)})(?::(?P<minute>\d\d))?(?: ?(?P<half>[ap]m))?"
    r"|(?P<hour2>\d\d?)(?::(?P<minute2>\d\d)(?: ?(?P<half2>[ap]m))?| ?(?P<half3>[ap]m)))(?!\w|:\d)"
    r"(?: in (?P<zone>UTC|GMT|[A-Za-z_]+/[A-Za-z_/+-]+))?"
)
_AFTER = re.compile(rf"(?i)^,? ?{_TIME}")
_BEFORE = re.compile(rf"(?i)(?:^|[ ,]+){_TIME}[, ]*$")
_ANYWHERE = re.compile(rf"(?i)(?:^|[ ,]+)(?=at ){_TIME}")
_END = r"(?=[,:]|\.$| (?:remind|tell|ask|send) me| at \d| to\b|$)"
_MONTH_NAMES = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*"
_LEFT = re.compile(  # right after the form
    rf"(?i)^,? ?(?P<left>(?:and )?(?:at (?:\d[\d:]*|(?:{_N})\b)(?: ?[ap]m)?|on (?:{_DAY})s?)|and \d[\d:]*(?: ?[ap]m)?"
    r"|(?:and (?:on|every)|until|till|starting|from|between|during|for the next|if|when|as long|only|but"
    rf"|on (?:the )?\d|on {_MONTH_NAMES}|in \d|in {_MONTH_NAMES}\b).*?{_END})"
)
_EXCEPT = re.compile(
    rf"(?i),? ?\b(?P<left>(?:except|excluding|unless|but not|other than|apart from)\b.*?){_END}"
)
_ASKED = re.compile(r"(?i)(?:^|\b(?:remind|tell|ask|send|wake) me)[, ]*$")
_GOES_ON = re.compile(r"(?i)^(?:[.!]*$|[,:]| to\b)")
_NO_REQUEST = re.compile(
    r"(?i)^(?:what|which|who|when|where|how|why|is|are|do|does|did|my|our|it|i|we|he|she|remember"
    r"|the (?!first|second|third|fourth|last|\d))\b"
)
# beside a time that comes once, or in a sentence without a time that is understood
_OTHER_TIME = re.compile(
    r"(?i)\b(?:every|each|daily|weekly|monthly|yearly|tomorrow|tonight|twice|next \w+|on (?:the )?\d\d?"
    rf"|{_MONTH_NAMES} \d)\b"
)
_POLITE = re.compile(r"(?i)^(?:(?:hi|hey|hello|please|can you|could you|would you|will you),? )+")
_LINK = re.compile(r"(?i)^(?:please |to )+")
_SPELT: Final = {
    rf"\bhalf past ({_N})\b": r"\1:30",
    rf"\bquarter past ({_N})\b": r"\1:15",
    r"\bhalf an hour\b|\bhalf hour\b": "30 minutes",
    r"\btonight\b": "this evening",
    r"\b(?:at )?noon\b": "at 12:00",
    r"\b(?:at )?midnight\b": "at 0:00",
    r" o.clock\b": "",
    r"\b([ap])\.m\.": r"\1m",
    r"\b(?:work|working |business )day": "weekday",
    r"\b(every|each) single ": r"\1 ",
}


@dataclass(kw_only=True, slots=True)
class _Found:
    """A form in a sentence, and what is left of the sentence around it."""

    form: dict[str, str | None]
    before: str
    after: str
    time: dict[str, str | None]
    left: list[str]


def plan(text: str, now: datetime | None, offered: Collection[str]) -> tuple[ToolCall | None, str]:
    """The call that a sentence asks for, and what is said beside it; neither: it asks for nothing at a time."""
    if len(text) > LONGEST:
        return None, ""
    sentence = _POLITE.sub("", " ".join(text.split()).rstrip(" .!?"))
    for pattern, plain in _SPELT.items():
        sentence = re.sub(rf"(?i){pattern}", plain, sentence)
    found = None if _NO_REQUEST.match(sentence) else _find(sentence)
    if found is None:
        return None, ""
    task = _LINK.sub("", f"{found.before} {found.after}".strip(" ,:;.")).strip()
    if not task:
        return None, UNCLEAR if found.left else "Say what is to be done, too."
    try:
        return _planned(found, " ".join(task.split()), now, offered)
    except (ValueError, OverflowError, KeyError, OSError):  # no such time, date or zone
        return None, UNCLEAR


def sounds_like_one(text: str) -> bool:
    """Whether a sentence for which there is no plan asks for something at a time all the same."""
    asks = _POLITE.sub("", text[:LONGEST].strip())
    return not _NO_REQUEST.match(asks) and bool(REMINDS.match(asks) or _OTHER_TIME.search(asks))


def _find(sentence: str) -> _Found | None:
    for form in _FORMS:
        for match in form.finditer(sentence):
            found = _Found(
                form=match.groupdict(),
                before=sentence[: match.start()],
                after=sentence[match.end() :],
                time={},
                left=[],
            )
            _take_time(found)
            if _ASKED.search(found.before) or _GOES_ON.match(found.after):
                return found
    return None


def _take_time(found: _Found) -> None:
    """Move the time of day, and what is not understood, out of the text around the form."""
    takes_time = not any(found.form.get(name) for name in ("at", "unit"))
    for pattern, place in ((_AFTER, "after"), (_BEFORE, "before")):
        if takes_time and not found.time and (match := pattern.search(getattr(found, place))):
            _cut(found, place, match, "")
            found.time = match.groupdict()
    while match := _LEFT.match(found.after):
        _cut(found, "after", match, match["left"])
    for place in ("before", "after"):
        if match := _EXCEPT.search(getattr(found, place)):
            _cut(found, place, match, match["left"])
    places = [(place, m) for place in ("before", "after") for m in _ANYWHERE.finditer(getattr(found, place))]
    if takes_time and not found.time and len(places) == 1:
        [(place, match)] = places
        _cut(found, place, match, "")
        found.time = match.groupdict()


def _cut(found: _Found, place: str, match: re.Match[str], left: str) -> None:
    text = getattr(found, place)
    setattr(found, place, text[: match.start()] + text[match.end() :])
    found.left += [left.strip()] if left else []


def _planned(
    found: _Found, task: str, now: datetime | None, offered: Collection[str]
) -> tuple[ToolCall | None, str]:
    form = found.form
    left = f"I left out: {'; '.join(found.left)}." if found.left else ""
    arguments: JSON = {"action": "add", "message": task}
    if reminder := REMINDS.match(task):
        arguments["name"] = reminder["what"]
    if form.get("at"):
        return ToolCall(id="", name="cron", arguments=arguments | {"at": form["at"]}), left
    if form.get("unit") and not form.get("soon"):
        seconds = _number(form["count"] or "1") * _SECONDS[str(form["unit"]).lower()]
        return ToolCall(id="", name="cron", arguments=arguments | {"every_seconds": seconds}), left
    hour, minute, said = (0, 0, "") if form.get("soon") else _time_of(found)
    words = " ".join(filter(None, (said, left)))
    if "clock" not in form and "soon" not in form and "day" not in form and "weekday" not in form:
        zone = {"tz": found.time["zone"]} if found.time.get("zone") else {}
        when = {"cron_expr": f"{minute} {hour} {_cron_days(form)}"} | zone
        return ToolCall(id="", name="cron", arguments=arguments | when), words
    if found.left or _OTHER_TIME.search(task) or (not found.time and str(form.get("day")).lower() == "today"):
        return None, UNCLEAR  # of a date, say: any other time would be wrong
    if now is None:
        return CLOCK, ""
    at = _once(form, hour, minute, found.time.get("zone"), now)
    if reminder and MESSAGE in offered:
        sent = {"send_at": at, "message_text": f"Reminder: {reminder['what']}"}
        return ToolCall(id="", name=MESSAGE, arguments=sent), words
    return ToolCall(id="", name="cron", arguments=arguments | {"at": at}), words


def _number(text: str) -> int:
    return _NUMBERS.get(text.lower()) or int(text)


def _time_of(found: _Found) -> tuple[int, int, str]:
    """The hour and the minute, and what is said if none was named. ValueError."""
    part = str(found.form.get("part") or "").lower()
    named = [each for each in _PARTS if each in (part, str(found.form.get("on") or "").lower())]
    get = found.time.get
    if not found.time:
        hour = _PARTS[named[0]] if named else 9
        return hour, 0, f"You named no time of day, so I took {hour}:00."
    hour, half = _number(get("hour") or get("hour2") or ""), get("half") or get("half2") or get("half3") or ""
    if half:
        hour = hour % 12 + 12 * (half.lower() == "pm")
    elif hour < 12 and named and named[0] != "morning":
        hour += 12
    minute = int(get("minute") or get("minute2") or 0)
    time(hour, minute)  # ValueError
    return hour, minute, ""


def _cron_days(form: Mapping[str, str | None]) -> str:
    """The last three fields of a cron expression."""
    if date := form.get("date"):
        return f"{int(date)} * *"
    if place := form.get("place"):
        day = str(form["of_month"]).lower()
        if day == "day":
            return "L * *" if place.lower() == "last" else "1 * *"
        return (
            f"* * L{_CRON[day]}" if place.lower() == "last" else f"* * {_CRON[day]}{_PLACES[place.lower()]}"
        )
    named = re.findall(r"\b(?!and\b)[a-z]+", (form.get("on") or form.get("many") or "day").lower())
    if len(named) > 1 and not set(named) <= _CRON.keys() | {f"{day}s" for day in _CRON}:
        raise ValueError  # such as morning and evening
    days = [_CRON.get(each.rstrip("s"), "*") for each in named]
    return f"* * {','.join(days)}"


def _once(form: Mapping[str, Any], hour: int, minute: int, zone: str | None, now: datetime) -> str:
    """The instant as an ISO time: without offset on the clock of `now`. ValueError, OverflowError, KeyError."""
    wall = now.replace(tzinfo=None)
    if form.get("soon"):
        unit = form["unit"].lower()
        length = timedelta(seconds=_number(form["soon"]) * _SECONDS[unit])
        # days are those of the calendar, also when the clocks change
        return ((wall if unit in ("day", "week") else now) + length).isoformat(timespec="seconds")
    if zone:
        wall = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    day, at = str(form.get("day") or "").lower(), wall.replace(hour=hour, minute=minute, second=0)
    if day[:1].isdigit():
        at = datetime.combine(datetime.fromisoformat(day), at.time())
    elif weekday := form.get("weekday"):
        days = (_DAYS.index(weekday.lower()) - 1 - wall.weekday()) % 7
        at += timedelta(days=days or 7 * (at <= wall))
    elif day == "tomorrow" or (not day and at <= wall):
        at += timedelta(days=1)
    return (at.replace(tzinfo=ZoneInfo(zone)) if zone else at).isoformat(timespec="seconds")
