"""Tasks that a program can do: no model is asked (rule 5.5). When one fails the model gets it, with a warning."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import structlog

from automations.zone_files import load_zone
from sessions_app.models import Turn

log = structlog.get_logger(__name__)

TASKS_KEY = "tasks"  # in the metadata of a heartbeat's turn: the routines that it is for
TIME_REMINDER = "time_reminder"


def due_line(tasks: Iterable[dict[str, Any]]) -> str:
    """What a turn with these tasks is called where it waits."""
    return ("Due: " + ", ".join(task["title"] for task in tasks))[:2000]


def said(turn: Turn) -> str | None:
    """A JSON list with what each task of the turn gives; None when a model is needed."""
    if not turn.metadata.get("deterministic"):
        return None
    try:
        given = [
            DOES[task["task_type"]](task) | {"id": task["id"], "run": task["run"]}
            for task in turn.metadata[TASKS_KEY]
        ]
    except Exception:
        log.warning("deterministic_task_failed", turn=turn.pk, exc_info=True)
        turn.metadata |= {
            "deterministic": False,
            "warning": " A program that does them by itself has failed.",
        }
        return None
    return json.dumps(given, ensure_ascii=False)


def _time(task: dict[str, Any]) -> dict[str, Any]:
    now = datetime.now(UTC).astimezone(load_zone(task["timezone"]))
    return {
        "task_type": TIME_REMINDER,
        "now_iso": now.isoformat(timespec="seconds"),
        "timezone": task["timezone"],
        "display": f"{task['title']}: it is {now.strftime('%Y-%m-%d %H:%M:%S')} ({task['timezone']}).",
    }


DOES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {TIME_REMINDER: _time}
