"""The verdict on whether a person is told of a reply, read from the judging model's answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

NO_REASON: Final = "No reason was given."
_LONGEST_REASON = 300
_LONGEST_READ = 20_000
_MOST_OBJECTS = 50
_WORDS: Final[dict[object, bool]] = {"yes": True, "true": True, "no": False, "false": False}
_PLAIN = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether a person is told of a reply, and why, in one line of at most 300 characters."""

    notify: bool
    reason: str


def read_verdict(text: str) -> Verdict | None:
    """Read a judge's answer: a JSON object with `notify`, or plain yes or no. None if it is neither."""
    for found in json_objects(text[:_LONGEST_READ]):
        notify = _as_bool(found.get("notify"))
        if notify is not None:
            return Verdict(notify=notify, reason=_one_line(found.get("reason")))
    plain = _PLAIN.match(text)
    if plain:
        rest = text[plain.end() :].strip(" .,:;-\u2013\u2014*`\n")
        return Verdict(notify=plain[1].lower() == "yes", reason=_one_line(rest))
    return None


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects anywhere in a text, at most 50."""
    decoder = json.JSONDecoder()
    for number, brace in enumerate(re.finditer(r"\{", text)):
        if number == _MOST_OBJECTS:
            return
        try:
            found, _end = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        yield found


def _as_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def _one_line(reason: object) -> str:
    line = " ".join(reason.split())[:_LONGEST_REASON] if isinstance(reason, str) else ""
    return line or NO_REASON
