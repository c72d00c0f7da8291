"""The report of an import, job by job, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """The result for one job of the file."""

    IMPORTED = "imported"
    TAKEN_OVER = "taken over"
    NOT_STORED = "not stored"
    ALREADY_THERE = "already there"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One job of the file. `stored_id` is its id in the file, `id` its id here; `next_run_at` is an ISO time.

    `category` is bound, legacy or system. `note`: what differs from the file, or why the job was refused.
    """

    place: str
    outcome: Outcome
    stored_id: str = ""
    name: str = ""
    category: str | None = None
    id: str | None = None
    session_key: str | None = None
    schedule: str | None = None
    enabled: bool | None = None
    next_run_at: str | None = None
    note: str = ""

    def in_words(self) -> str:
        """The job in one line."""
        head = f"{self.place} {_one_line(self.stored_id)} {_one_line(self.name)!r}"
        if self.outcome is Outcome.REFUSED:
            return f"refused  {head}: {self.note}"
        parts = [f"{self.category or '-':<8} {head}: {self.outcome}"]
        if self.id is not None:
            parts.append(f"as {self.id}")
        if self.session_key:
            parts.append(f"in {self.session_key}")
        if self.schedule:
            parts.append(self.schedule)
        if self.enabled is not None:
            parts.append(f"next run {self.next_run_at or 'none'}" if self.enabled else "paused")
        return ", ".join(parts) + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All jobs of the file, in its order."""

    lines: tuple[Line, ...]
    dry_run: bool

    @property
    def totals(self) -> dict[str, int]:
        """How many jobs were imported, by category, and how many were not stored, refused or there already."""
        came = [line for line in self.lines if line.outcome in {Outcome.IMPORTED, Outcome.TAKEN_OVER}]
        counts = {kind: sum(line.category == kind for line in came) for kind in ("bound", "legacy", "system")}
        others = (Outcome.NOT_STORED, Outcome.REFUSED, Outcome.ALREADY_THERE)
        return counts | {
            outcome.replace(" ", "_"): sum(line.outcome is outcome for line in self.lines)
            for outcome in others
        }

    def in_words(self) -> Iterator[str]:
        """One line for each job, then the totals."""
        for line in self.lines:
            yield line.in_words()
        yield ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.totals.items()) + "."
        if self.dry_run:
            yield "A dry run: nothing was stored."

    def to_json(self) -> dict[str, Any]:
        """`{ok, dry_run, jobs, totals}`."""
        jobs = [asdict(line) for line in self.lines]
        return {"ok": True, "dry_run": self.dry_run, "jobs": jobs, "totals": self.totals}


def _one_line(text: str) -> str:
    """A text of the file without control characters, at most 60 characters."""
    printable = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return printable[:60]
