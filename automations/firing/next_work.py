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


# a subquery for the first rows only: a join would be planned as a scan of all jobs
_is_inline = (
    sa.select(_clock.c.inline).where(_clock.c.job_id == _run.c.job_id).correlate(_run).scalar_subquery()
)

_waits = sa.and_(
    _message.c.status == sa.literal_column(f"'{MessageStatus.PENDING}'"), _message.c.taken_at.is_(None)
)


def _first(column: Any, *which: Any) -> Any:
    """The smallest value. ORDER BY uses the partial index of `which`; EXISTS would scan the table to find nothing."""
    one: Any = sa.literal_column("1")  # no parameter, so that a kept plan knows it
    return sa.select(column).where(*which).order_by(column).limit(one).scalar_subquery()


def _coming(column: Any, *which: Any) -> Any:
    return _first(column, column > _NOW, *which)


def _is_due(column: Any, *which: Any) -> Any:
    return _first(column, column <= _NOW, *which).is_not(None)


_next = sa.func.least(  # ignores NULL
    _coming(_clock.c.next_run_at, ~_clock.c.inline),
    _coming(_clock.c.next_run_at, _clock.c.inline),
    _coming(_run.c.not_before),
    _coming(_message.c.send_at, _waits),
)
_seconds: Any = sa.cast(sa.func.extract("epoch", _next - sa.func.now()), sa.Double())
LOOK = Statement(
    sa.select(
        _is_due(_clock.c.next_run_at, ~_clock.c.inline).label("slots"),
        _is_due(_run.c.not_before, ~_is_inline).label("attempts"),
        sa.or_(
            _is_due(_clock.c.next_run_at, _clock.c.inline),
            _is_due(_run.c.not_before, _is_inline),
        ).label("inline"),
        _is_due(_message.c.send_at, _waits).label("messages"),
        sa.func.coalesce(_seconds, FAR).label("wait"),
    ),
    prepared=True,
)


def next_work() -> NextWork:
    """Read what is due now and the time until more is due."""
    [row] = LOOK.all()
    return NextWork(**row._asdict())
