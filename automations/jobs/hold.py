"""Hold back routines that a heartbeat registers until that heartbeat has ended (rule 5.6).

An earlier first run is delayed by longer than any heartbeat takes, and restored to its own time after the turn. If the
server dies in between, the routine runs after that delay: late, never lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from automations.jobs.clock import database_now, notify_beats
from automations.models import JobClock
from automations.schedules.schedule import whole_milliseconds
from sessions_app.models import Turn

LONGEST_TURN = timedelta(hours=1)


def hold_back(turn: Turn, routine_ids: Iterable[str]) -> None:
    """Delay runs that would start before the turn has ended, in the transaction that adds or changes the routines."""
    before = turn.input.held_back
    until = whole_milliseconds(database_now()) + LONGEST_TURN
    clocks = JobClock.objects.filter(pk__in=list(routine_ids), next_run_at__lt=until)
    held = {
        clock.pk: [clock.next_run_at.isoformat(), until.isoformat()]
        for clock in clocks
        if clock.next_run_at and clock.next_run_at.isoformat() != before.get(clock.pk, ("", ""))[1]
    }
    if held:
        clocks.filter(pk__in=held).update(next_run_at=until)
        Turn.objects.change_input(turn, held_back=before | held)


def is_held_back(turn: Turn, routine_id: str) -> bool:
    """Whether the turn holds this routine back because it registered it."""
    return routine_id in turn.input.held_back


def release_after_commit(turn: Turn) -> None:
    """After the turn's commit, restore the first run of each held routine, unless it was edited since.

    Not within the commit, which has locked the session: clocks are locked before sessions.
    """
    held = turn.input.held_back
    if held:
        transaction.on_commit(lambda: _release(held), robust=True)


def _release(held: dict[str, list[str]]) -> None:
    for routine_id, (first, until) in sorted(held.items()):
        JobClock.objects.filter(pk=routine_id, next_run_at=datetime.fromisoformat(until)).update(
            next_run_at=datetime.fromisoformat(first)
        )
    notify_beats()
