"""Routines as lines of text in the answers of their tools."""

from __future__ import annotations

from automations.models import CronJob
from automations.routines.reads import Routine
from automations.routines.schedule_text import routine_schedule_text
from automations.schedules.describe import instant_text


def added_text(job: CronJob) -> str:
    """The answer for an added routine, with its first run."""
    first = instant_text(job.clock.next_run_at, job.timezone)
    return f"Added routine {job.pk} {job.name!r}: {schedule_text(job)}, {job.execution_mode}. First run: {first}."


def routine_line(routine: Routine) -> str:
    """One line of the list."""
    when = routine.schedule or "once"
    state = routine.state if routine.enabled else "disabled"
    following = instant_text(routine.next_run_at, routine.timezone)
    about = f": {' '.join(routine.description.split())[:200]}" if routine.description else ""
    return (
        f"- {routine.id} {routine.title!r}{about} ({when}, {routine.timezone}, {routine.execution_mode}, {state};"
        f" next run {following})"
    )


def schedule_text(job: CronJob) -> str:
    """The routine's schedule with its zone, or `once`."""
    text = routine_schedule_text(job)
    return "once" if text is None else f"{text} ({job.timezone})"
