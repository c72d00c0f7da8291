"""What a check of `manage.py doctor` and /readyz finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

NAMED = 5  # things that a finding lists


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a check. `cure` is one line; every finding that is not ok has one.

    `seen` False: the check could not see whether it is ok.
    """

    ok: bool
    detail: str
    cure: str = ""
    seen: bool = True

    @property
    def state(self) -> str:
        """`ok`, `wrong` or `unknown`."""
        return "wrong" if not self.ok else "ok" if self.seen else "unknown"

    @property
    def words(self) -> str:
        """The detail and the cure on one line."""
        return f"{self.detail}; {self.cure}" if self.cure else self.detail


Check = Callable[[], Finding]


def passed(detail: str) -> Finding:
    """A finding that is ok."""
    return Finding(ok=True, detail=detail)


def failed(detail: str, cure: str) -> Finding:
    """A finding that is not ok."""
    return Finding(ok=False, detail=detail, cure=cure)


def unknown(detail: str, cure: str = "") -> Finding:
    """A warning: the check cannot see whether it is ok."""
    return Finding(ok=True, detail=detail, cure=cure, seen=False)


def failed_if_any(problem: str, named: Iterable[Any], count: int, cure: str) -> Finding:
    """A problem that concerns `count` things, of which the first are named; ok without any."""
    return failed(f"{problem}: {some_named(named, count)}", cure) if count else passed("no problems found")


def some_named(things: Iterable[Any], count: int) -> str:
    """`a, b and 3 more`."""
    shown = [str(thing) for thing in things][:NAMED]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
