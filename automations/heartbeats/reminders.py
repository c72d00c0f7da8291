"""Tasks that are done without a model (rule 5.5). If one fails, the model gets the tasks, with a warning."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from agent_core.exceptions import Stale
from automations.models.run import TASKS_KEY
from automations.schedules.zone_files import load_zone
from sessions_app.models import Turn

log = structlog.get_logger(__name__)
TIME_REMINDER = "time_reminder"


def answer_without_model(turn: Turn) -> str | None:
    """A JSON list with each task's result; None when the turn needs a model. A failure is stored. Stale."""
    if not turn.metadata.get("deterministic"):
        return None
    try:
        given = [
            MODEL_FREE_TASKS[task["task_type"]](task) | {"id": task["id"], "run": task["run"]}
            for task in turn.metadata[TASKS_KEY]
        ]
    except Exception:
        log.exception("deterministic_task_failed", turn=turn.pk)
        failed = {"deterministic": False, "warning": " A program that does them by itself has failed."}
        if not Turn.objects.ask_model(turn, failed):
            raise Stale from None
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


MODEL_FREE_TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {TIME_REMINDER: _time}
