"""Where a routine is done: within a heartbeat or in a session of its own (rule 6.4)."""

from __future__ import annotations

from automations.exceptions import BadJob
from automations.models import ExecutionMode

INLINE_TIMEOUT = 60  # seconds; whatever asks for more is not done within a heartbeat
INLINE_DESCRIPTION = 200  # characters; likewise


def check_pair(execution_mode: str, task_type: str) -> None:
    """What needs no model is done within a heartbeat's turn; a session of its own would ask one."""
    if task_type and execution_mode != ExecutionMode.INLINE:
        raise BadJob(
            f"{task_type} is done without a model: its execution_mode is inline", code="bad_task_type"
        )


def inferred_mode(timeout_seconds: int | None, description: str, task_type: str = "") -> str:
    """Where a routine is done when nobody says it (rule 6.4). Only a timeout that was given counts."""
    if task_type:
        return ExecutionMode.INLINE
    if timeout_seconds is not None and timeout_seconds > INLINE_TIMEOUT:
        return ExecutionMode.ISOLATED
    return ExecutionMode.ISOLATED if len(description) > INLINE_DESCRIPTION else ExecutionMode.INLINE
