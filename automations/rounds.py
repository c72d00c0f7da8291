"""A round of firing: what is due as one batch, or row by row when the batch as a whole fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError

from sessions_app.models import Lane
from sessions_app.wake import Hint, send

log = structlog.get_logger(__name__)

HINTS_PER_AGENT = 20  # of one batch; the sweep and the runs themselves wake the rest


@dataclass(kw_only=True)
class Fired:
    """What one call did: how many due rows it took, how many turns it queued, the sessions to hint at."""

    claimed: int = 0
    queued: int = 0
    hints: list[Hint] = field(default_factory=list)

    def add(self, other: Fired) -> None:
        """Count another call's, too."""
        self.claimed += other.claimed
        self.queued += other.queued
        self.hints += other.hints


class NothingFires(Exception):
    """No due row could be fired: the fault is not the rows'. Nothing was changed."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """What is fired together: `batch` in one transaction, `one` of the `due` ids in one of its own.

    `set_aside` takes a row out of firing that fails by itself, with the reason. `own`: errors that are a row's own for
    sure, also where no other row went through.
    """

    name: str
    batch: Callable[[], Fired]
    due: Callable[[], Iterable[str]]
    one: Callable[[str], Fired]
    set_aside: Callable[[str, str], None]
    own: tuple[type[Exception], ...] = ()


def fire(given: Round) -> Fired:
    """Claim what is due and queue its turns; hints leave after the commit.

    A batch that fails as a whole is done again row by row, and a row that fails by itself is set aside.
    """
    fired = Fired()
    try:
        fired = given.batch()
    except (OperationalError, InterfaceError):
        raise  # the database is away: nothing was written, the next tick tries again
    except Exception:
        log.exception("batch_failed", of=given.name)
        _one_by_one(given, fired)
    finally:
        send(fired.hints)
    return fired


def _one_by_one(given: Round, total: Fired) -> None:
    """Row by row, counted in `total`. Only where another row was queued is any failure the row's own.

    Else it may be everybody's: a table that lacks a column, say, would set aside every row of the server. A row that
    is not to be run at all proves nothing: it writes no turn.
    """
    failed: dict[str, Exception] = {}
    for row_id in given.due():
        try:
            total.add(given.one(row_id))
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            log.exception("row_failed_to_fire", of=given.name, row=row_id)
            failed[row_id] = error
    own = {row_id: cause for row_id, cause in failed.items() if total.queued or isinstance(cause, given.own)}
    if failed and not own:
        log.error("nothing_fires", of=given.name, rows=len(failed))
        raise NothingFires(f"{len(failed)} due {given.name}, and none could be fired") from next(
            iter(failed.values())
        )
    for row_id, cause in own.items():
        given.set_aside(row_id, f"{type(cause).__name__}: {cause}")
        total.claimed += 1


def hints_of(queued: Sequence[Any]) -> list[Hint]:
    """The sessions of new turns, each once, bounded by agent."""
    per_agent: Counter[int] = Counter()
    hints: dict[Hint, None] = {}
    for turn in queued:
        per_agent[turn.agent_id] += 1
        if per_agent[turn.agent_id] <= HINTS_PER_AGENT:
            hints[Hint(session_id=turn.session_id, lane=Lane.AUTO)] = None
    return list(hints)
