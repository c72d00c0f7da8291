"""Walks of maintenance: retention of runs and of scheduled messages, and new time-zone data."""

from __future__ import annotations


def register_retention() -> None:
    """Register these walks with maintenance."""
    from automations.retention import messages, runs, zones  # late: SQLAlchemy is slow to load

    runs.register_run_retention()
    messages.register_message_retention()
    zones.register_zone_walk()
