"""The tool `next_turn`: continue a background job in another turn of its session (rule 6.3)."""

from __future__ import annotations

from typing import Any

from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from automations.turn_kinds.isolated import MOST_TURNS, count_turns, queue_next_turn
from sessions_app.models import Turn, TurnKind, TurnState
from sessions_app.turns.tool_calls import ToolContext

LONGEST = 20_000  # characters
DESCRIPTION = """\
Goes on with this job in a further turn of the same session: it knows all that was said here. Use it when the job is too
much for one turn; the result that the person gets is the answer of the last turn. Needs task: what is to be done next.
"""


def request_next_turn(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Queue the next turn. ToolFailed with a text for the model."""
    task = arguments.get("task")
    if not isinstance(task, str) or not task.strip() or "\x00" in task or len(task) > LONGEST:
        raise ToolFailed(f"task must say what is to be done next, in at most {LONGEST} characters")
    turn = context.turn
    waiting = Turn.objects.filter(session=context.session, state=TurnState.QUEUED, origin_run=turn.origin_run)
    if waiting.exists():
        raise ToolFailed("the next turn is already queued; end this one with a short answer")
    if count_turns(turn) >= MOST_TURNS:
        raise ToolFailed(f"a job has at most {MOST_TURNS} turns; give the result now")
    queue_next_turn(turn, task, has_read=context.has_read)
    return "The next turn follows this one. End this turn with a short note of what was done."


NEXT_TURN = Tool(
    name="next_turn",
    description=DESCRIPTION,
    parameters={
        "type": "object",
        "properties": {"task": {"type": "string", "description": "what is to be done next"}},
        "required": ["task"],
    },
    effect=Effect.READ,  # the turn that follows may do no more than this one
    transactional=True,
    run=request_next_turn,
    offered=lambda context: context.turn.kind == TurnKind.JOB,
)
