"""The tools of scheduled messages: schedule, list and cancel a fixed text in a private chat (rule 8.1).

Each error text begins with its code and says what to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from django.db import DataError, IntegrityError

from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from automations.models import ScheduledMessage
from automations.scheduled_messages import (
    LONGEST_TEXT,
    MOST_WAITING,
    MessageToSchedule,
    cancel_message,
    cancellable_messages,
    is_private,
    local_iso,
    must_be_private,
    schedule_message,
)
from sessions_app.exceptions import SessionsError
from sessions_app.tools.clock import HINT
from sessions_app.turns.tool_calls import ToolContext

LONGEST_CALL = 200  # characters of a call's id
SCHEDULE = f"""\
Scheduled messages: sends a text to the person of this private chat later, once. You write it now, word for word as it
will be sent, whatever is said until then; no model looks at it again. For what repeats, or has to be looked up, worked
out or worded at that time, use cron.
{HINT}
"""
CANCEL = "Cancels a scheduled message that was not sent yet. To change one, cancel it and schedule another."
LIST = "Lists the scheduled messages of this private chat that wait to be sent."
PARAMETERS: dict[str, dict[str, Any]] = {
    "schedule_private_message": {
        "type": "object",
        "properties": {
            "send_at": {
                "type": "string",
                "description": "when: an ISO time such as 2027-01-01T09:00:00; without offset in the agent's zone",
            },
            "message_text": {"type": "string", "description": "the text, as the person will read it"},
            "replace_existing": {
                "type": "boolean",
                "description": "cancel all that still waits in this chat, and send this instead; default: false",
            },
        },
        "required": ["send_at", "message_text"],
    },
    "list_scheduled_private_messages": {"type": "object", "properties": {}},
    "cancel_scheduled_private_message": {
        "type": "object",
        "properties": {
            "task_id": {"type": "string", "description": "the id that scheduling and listing give"}
        },
        "required": ["task_id"],
    },
}
CURES: dict[str, str] = {
    "not_private": "There is no private chat with a person here; say it in your answer instead.",
    "empty_text": "message_text must be the text that will be sent.",
    "text_too_long": f"Shorten message_text to {LONGEST_TEXT} characters.",
    "too_many_scheduled_messages": "Cancel one first, or set replace_existing.",
}
CODES = {"too_many_scheduled_messages": "too_many", "conflict": "storage_error"}


def _with_code(do: Callable[[ToolContext, dict[str, Any]], str]) -> Callable[[Any, dict[str, Any]], str]:
    """Wrap a tool's function: errors become texts for the model, with the code first."""

    def run(context: ToolContext, arguments: dict[str, Any]) -> str:
        try:
            return do(context, arguments)
        except SessionsError as error:
            cure = f". {CURES[error.code]}" if error.code in CURES else ""
            raise ToolFailed(f"{CODES.get(error.code, error.code)}: {error}{cure}") from error
        except (DataError, IntegrityError) as error:
            raise ToolFailed(
                "storage_error: the message could not be stored; nothing was scheduled"
            ) from error

    return run


@_with_code
def schedule(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Schedule a message; a repeated call returns the same message."""
    _only_known("schedule_private_message", arguments)
    replaces = arguments.get("replace_existing", False)
    if not isinstance(replaces, bool):
        raise ToolFailed("bad_input: replace_existing must be true or false")
    made = schedule_message(
        MessageToSchedule(
            session_id=context.session.pk,
            send_at=arguments.get("send_at"),
            message_text=arguments.get("message_text"),
            replace_existing=replaces,
            turn_id=context.turn.pk,
            tool_call_id=_call_key(context.call_id),
        )
    )
    shown = _shown(made.message, context) | {
        "session_id": str(made.message.session_id),
        "replace_existing": made.message.replace_existing,
        "cancelled_task_ids": list(made.cancelled_ids),
    }
    return json.dumps(shown, ensure_ascii=False)


@_with_code
def show(context: ToolContext, arguments: dict[str, Any]) -> str:
    """List the messages that wait in this chat, the next one first, as JSON."""
    _only_known("list_scheduled_private_messages", arguments)
    must_be_private(context.session)
    rows = cancellable_messages(context.session.pk).order_by("send_at", "pk")
    waiting = [_shown(row, context) for row in rows[:MOST_WAITING]]
    return json.dumps({"scheduled_messages": waiting}, ensure_ascii=False)


@_with_code
def cancel(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Cancel a message of this chat."""
    _only_known("cancel_scheduled_private_message", arguments)
    must_be_private(context.session)
    task_id = arguments.get("task_id")
    if not isinstance(task_id, str) or "\x00" in task_id:
        raise ToolFailed("not_found: task_id must be an id that list_scheduled_private_messages shows")
    row = cancel_message(task_id, session_id=context.session.pk, tool_call_id=_call_key(context.call_id))
    return json.dumps(_shown(row, context) | {"status": row.status}, ensure_ascii=False)


def _call_key(call_id: str) -> str:
    """The call's id, at most as long as its column; a hash keeps long ids distinct."""
    if len(call_id) <= LONGEST_CALL:
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="replace")).hexdigest()
    return call_id[: LONGEST_CALL - len(digest)] + digest


def _shown(row: ScheduledMessage, context: ToolContext) -> dict[str, Any]:
    return {
        "task_id": row.pk,
        "send_at": local_iso(row.send_at, context.agent.timezone),
        "message_text": row.message_text,
    }


def _only_known(name: str, arguments: dict[str, Any]) -> None:
    unknown = sorted(arguments.keys() - PARAMETERS[name]["properties"].keys())
    if unknown:
        known = ", ".join(PARAMETERS[name]["properties"]) or "none"
        raise ToolFailed(f"bad_input: unknown parameter {unknown[0]!r}; the parameters are: {known}")


MESSAGE_TOOLS = [
    Tool(
        name=name,
        description=description,
        parameters=PARAMETERS[name],
        effect=effect,
        transactional=effect is Effect.WRITE,
        run=run,
        offered=lambda context: is_private(context.session),
    )
    for name, description, effect, run in (
        ("schedule_private_message", SCHEDULE, Effect.WRITE, schedule),
        ("list_scheduled_private_messages", LIST, Effect.READ, show),
        ("cancel_scheduled_private_message", CANCEL, Effect.WRITE, cancel),
    )
]
