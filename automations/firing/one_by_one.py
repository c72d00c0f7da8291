"""Fire a batch of due rows in one transaction. When it fails as a whole, its rows are fired one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction

from automations.firing.insert_runs import announce_turns
from sessions_app.hints import Hint

AWAY = (
    OperationalError,
    InterfaceError,
)  # the database is away: nothing was written, the next tick tries again

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Fired:
    """The result of one batch: due rows claimed, turns queued, hints sent."""

    claimed: int = 0
    queued: int = 0
    hints: list[Hint] = field(default_factory=list)


class NothingFires(Exception):
    """Some rows could be neither fired nor set aside; they stay due."""


def fire_batch(
    name: str,
    claim: Callable[[], Sequence[Any]],
    *,
    fire: Callable[[Sequence[Any]], list[Any]],
    set_aside: Callable[[Any, str], None],
    row_errors: tuple[type[Exception], ...] = (),
) -> Fired:
    """Claim due rows, fire them and announce their turns. NothingFires.

    `fire` returns what `announce_turns` takes. `set_aside` takes a row out of firing, with the reason. `row_errors`:
    errors that are always the fault of the row that raises them. Other failures are the row's own if another row was
    queued. Otherwise the cause may be common to all rows, such as a missing column, and setting aside would switch off
    every row of the server. A row that is skipped by a decision proves nothing, because it inserts no turn.
    """
    failed: list[tuple[Any, Exception]] = []
    with transaction.atomic():
        rows = claim()
        if not rows:
            return Fired()
        try:
            queued = _fire_safely(fire, rows)
        except AWAY:
            raise
        except Exception:
            log.exception("batch_failed", of=name)
            queued, failed = _fire_one_by_one(name, fire, rows)
        faults = [each for each in failed if queued or isinstance(each[1], row_errors)]
        gone = sum(_is_set_aside(name, set_aside, row, error) for row, error in faults)
    hints = announce_turns(queued)
    if gone < len(faults) or (failed and not faults):
        raise NothingFires(f"{len(failed) - gone} due {name} could not be fired") from failed[0][1]
    return Fired(claimed=len(rows), queued=len(queued), hints=hints)


def _fire_safely(fire: Callable[[Sequence[Any]], list[Any]], rows: Sequence[Any]) -> list[Any]:
    """Fire rows in a savepoint. Deferred constraints are checked here, so that no row fails the COMMIT of all."""
    with transaction.atomic():
        queued = fire(rows)
        connection.check_constraints()
    return queued


def _fire_one_by_one(
    name: str, fire: Callable[[Sequence[Any]], list[Any]], rows: Sequence[Any]
) -> tuple[list[Any], list[tuple[Any, Exception]]]:
    """Fire each row in a savepoint of its own. Returns the turns that were queued, and the rows that failed."""
    queued: list[Any] = []
    failed: list[tuple[Any, Exception]] = []
    for row in rows:
        try:
            queued += _fire_safely(fire, [row])
        except AWAY:
            raise
        except Exception as error:
            log.exception("row_failed_to_fire", of=name, row=row.pk)
            failed.append((row, error))
    return queued, failed


def _is_set_aside(name: str, set_aside: Callable[[Any, str], None], row: Any, cause: Exception) -> bool:
    """Set a row aside. Returns False when this fails as well: the row stays due, and the others are fired."""
    try:
        with transaction.atomic():
            set_aside(row, f"{type(cause).__name__}: {cause}")
            connection.check_constraints()
    except AWAY:
        raise
    except Exception:
        log.exception("row_not_set_aside", of=name, row=row.pk)
        return False
    return True
