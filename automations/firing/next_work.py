"""What is due now and when more will be due, in one statement, so that a tick skips steps without work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from automations.models import JobClock, MessageStatus, RunRecord, ScheduledMessage
from sessions_app.postgres.statements import Statement, table

_clock, _run, _message = table(JobClock), table(RunRecord), table(ScheduledMessage)
_NOW = sa.select(sa.func.now()).scalar_subquery()
FAR = 1e9  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class NextWork:
    """Whether slots, retries, inline routines or messages are due. `wait`: seconds until more will be due."""

    slots: bool
    attempts: bool
    inline: bool
    messages: bool
    wait: float

    @property
    def due(self) -> bool:
        """Whether beat has something to queue. Inline routines are queued separately."""
        return self.slots or self.attempts or self.messages

    @property
    def only_slots(self) -> bool:
        """Whether nothing else is due."""
        return self.slots and not (self.attempts or self.inline or self.messages)


# a subquery for the first rows only: a join would be planned as a scan of all jobs
_is_inline = (
    sa.select(_clock.c.inline).where(_clock.c.job_id == _run.c.job_id).correlate(_run).scalar_subquery()
)

_waits = sa.and_(
    _message.c.status == sa.literal_column(f"'{MessageStatus.PENDING}'"), _message.c.taken_at.is_(None)
)


def earliest(column: Any, *which: Any) -> Any:
    """The smallest value. ORDER BY uses the partial index of `which`; EXISTS would scan the table to find nothing."""
    one: Any = sa.literal_column("1")  # no parameter, so that a kept plan knows it
    return sa.select(column).where(*which).order_by(column).limit(one).scalar_subquery()


def seconds_until(time: Any) -> Any:
    """Seconds from the transaction's time to another; FAR if that is null."""
    seconds: Any = sa.cast(sa.func.extract("epoch", time - sa.func.now()), sa.Double())
    return sa.func.coalesce(seconds, sa.cast(sa.literal_column(str(FAR)), sa.Double()))


def _first(column: Any, *which: Any) -> Any:
    """The earliest value that is not due yet."""
    return earliest(column, column > _NOW, *which)


def _any(column: Any, *which: Any) -> Any:
    return earliest(column, column <= _NOW, *which).is_not(None)


_next = sa.func.least(  # ignores NULL
    _first(_clock.c.next_run_at, ~_clock.c.inline),
    _first(_clock.c.next_run_at, _clock.c.inline),
    _first(_run.c.not_before),
    _first(_message.c.send_at, _waits),
)
LOOK = Statement(
    sa.select(
        _any(_clock.c.next_run_at, ~_clock.c.inline).label("slots"),
        _any(_run.c.not_before, ~_is_inline).label("attempts"),
        sa.or_(
            _any(_clock.c.next_run_at, _clock.c.inline),
            _any(_run.c.not_before, _is_inline),
        ).label("inline"),
        _any(_message.c.send_at, _waits).label("messages"),
        seconds_until(_next).label("wait"),
    ),
    prepared=True,
)


def next_work() -> NextWork:
    """Read what is due now and the time until more is due."""
    [row] = LOOK.all()
    return NextWork(**row._asdict())
