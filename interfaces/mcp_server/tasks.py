"""The Tasks extension (SEP-2663): `ask` returns a task, whose id is that of the turn with its session.

The SDK has no types of this extension yet, so they are here, on its base types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.conf import settings
from mcp_types import (
    CallToolResult,
    ElicitResult,
    InputRequests,
    InputResponses,
    RequestParams,
    Result,
    TextContent,
)
from pydantic import Field

from agent_core.text.formats import utc_text
from agent_core.types import with_note
from interfaces.mcp_server.progress import Progress
from interfaces.mcp_server.results import AskResult

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MS = 1_000
DAY_MS = 24 * 3600 * 1000
LONGEST_HANDLE = 64  # characters
MOST_RESPONSES = 20
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Task(Result):
    """A task. `resultType` is `task` where it is created, `complete` where it is read."""

    result_type: Literal["task", "complete"]
    task_id: str
    status: Status
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int = POLL_MS
    input_requests: InputRequests | None = None
    result: dict[str, Any] | None = None

    def on_wire(self) -> dict[str, Any]:
        """Return the task as JSON, without empty fields, except the time to live, which may be null."""
        return {"ttlMs": self.ttl_ms} | self.model_dump(by_alias=True, mode="json", exclude_none=True)


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: Annotated[str, Field(max_length=LONGEST_HANDLE)]


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: Annotated[InputResponses, Field(max_length=MOST_RESPONSES)]


def task_of(found: Progress, *, created: bool = False) -> dict[str, Any]:
    """The task of a request, with its result or the question that waits.

    The extension reserves `failed` for errors of JSON-RPC: a turn that failed is a result with `isError`.
    """
    status = _status(found.state)
    first, last = found.first, found.last
    updated = last.finished_at or last.started_at or last.queued_at
    days = settings.RONDO_KEEP_TURNS_DAYS
    task = Task(
        result_type="task" if created else "complete",
        task_id=found.handle,
        status=status,
        status_message=last.error or None,
        created_at=utc_text(first.queued_at),
        last_updated_at=utc_text(updated),
        ttl_ms=days * DAY_MS if days else None,
    )
    if not created and status == "input_required":
        task.input_requests = {found.question_key: found.request()}
    if not created and status == "completed":
        task.result = result_of(found.result()).model_dump(by_alias=True, mode="json", exclude_none=True)
    return task.on_wire()


def _status(state: str) -> Status:
    ended: dict[str, Status] = {"succeeded": "completed", "failed": "completed", "cancelled": "cancelled"}
    return ended.get(state) or ("input_required" if state == "input_required" else "working")


def result_of(given: AskResult) -> CallToolResult:
    """The result of a tool that returns the state of a request."""
    text = with_note(given.answer or given.error or "", given.ended_by or "")
    if given.state == "working":
        text = f"The agent is still working. Read the answer with get_answer and turn {given.turn}."
    elif given.question is not None:
        how = (
            "A person must answer it: in Rondo's pages, or in a client that asks people (elicitation)."
            if given.question.consent
            else f"Answer it with answer_question, turn {given.turn} and question {given.question.id!r}."
        )
        text = f"{given.question.text}\n\n{how}"
    elif given.state == "failed":
        text = given.error or "The turn failed."
    elif given.state == "cancelled":
        text = given.error or "The turn was cancelled."
    return CallToolResult(
        content=[TextContent(text=text or "Finished with no output.")],
        structured_content=given.model_dump(mode="json"),
        is_error=given.state == "failed",
    )


def responses_of(given: InputResponses | None) -> dict[str, ElicitResult]:
    """The answers to questions among the responses."""
    found = given or {}
    return {key: each for key, each in list(found.items())[:MOST_RESPONSES] if isinstance(each, ElicitResult)}
