"""Fire a batch of due rows in one transaction; when the batch fails as a whole, fire its rows one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from django.db import InterfaceError, OperationalError

from sessions_app.hints import Hint

MOST_ALONE = 100  # rows fired one by one in one call

log = structlog.get_logger(__name__)


@dataclass(kw_only=True)
class Fired:
    """The result of one call: due rows claimed, turns queued, hints sent; whether the rows were fired one by one.

    `again_at`: when another row will be due (monotonic); in the past if one is. None: it is not known.
    """

    claimed: int = 0
    queued: int = 0
    hints: list[Hint] = field(default_factory=list)
    one_by_one: bool = False
    again_at: float | None = None

    def add(self, other: Fired) -> None:
        """Add another call's result."""
        self.claimed += other.claimed
        self.queued += other.queued
        self.hints += other.hints


class NothingFires(Exception):
    """None of the due rows could be fired, so the cause is not in the rows. Nothing was changed."""


def fire_batch(
    name: str,
    limit: int,
    *,
    fire: Callable[[int, str | None], Fired],
    due_ids: Callable[[int], list[str]],
    set_aside: Callable[[str, str], None],
    row_errors: tuple[type[Exception], ...] = (),
) -> Fired:
    """Fire up to `limit` due rows in one transaction, or the first of them one by one when that fails. NothingFires.

    `fire` claims and fires so many rows, or only the row with this id. `set_aside` takes a row out of firing, with
    the reason. `row_errors`: errors that are always the fault of the row that raises them.
    """
    try:
        return fire(limit, None)
    except (OperationalError, InterfaceError):
        raise  # the database is away: nothing was written, the next tick tries again
    except Exception:
        log.exception("batch_failed", of=name)
    return _fire_one_by_one(name, due_ids(min(limit, MOST_ALONE)), fire, set_aside, row_errors)


def _fire_one_by_one(
    name: str,
    due: list[str],
    fire: Callable[[int, str | None], Fired],
    set_aside: Callable[[str, str], None],
    row_errors: tuple[type[Exception], ...],
) -> Fired:
    """Fire each row in its own transaction, and set aside the rows that fail through their own fault.

    A failure is the row's own when another row was queued, or when it is one of `row_errors`. Otherwise the cause may
    be common to all rows, such as a missing column, and setting aside would switch off every row of the server. A row
    that is skipped by a decision proves nothing, because it inserts no turn.
    """
    total, failed = Fired(one_by_one=True), dict[str, Exception]()
    for row_id in due:
        try:
            total.add(fire(1, row_id))
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            log.exception("row_failed_to_fire", of=name, row=row_id)
            failed[row_id] = error
    faults = {
        row_id: cause for row_id, cause in failed.items() if total.queued or isinstance(cause, row_errors)
    }
    if failed and not faults:
        log.error("nothing_fires", of=name, rows=len(failed))
        cause = next(iter(failed.values()))
        raise NothingFires(f"none of {len(failed)} due {name} could be fired") from cause
    for row_id, cause in faults.items():
        set_aside(row_id, f"{type(cause).__name__}: {cause}")
        total.claimed += 1
    return total
