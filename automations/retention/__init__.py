"""Retention of runs and of scheduled messages."""

from __future__ import annotations


def register_retention() -> None:
    """Register these rules with maintenance."""
    from automations.retention import messages, runs  # late: SQLAlchemy is slow to load

    runs.register_run_retention()
    messages.register_message_retention()
