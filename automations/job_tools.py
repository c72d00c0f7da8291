"""The tool `next_turn`: how the agent of a background job goes on in a further turn of its session (rule 6.3)."""

from __future__ import annotations

from typing import Any

from agent_core import tools
from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from automations.isolated import MOST_TURNS, go_on, turns_so_far
from sessions_app.models import Turn, TurnKind, TurnState
from sessions_app.tools import ToolContext

LONGEST = 20_000  # characters
DESCRIPTION = """\
Goes on with this job in a further turn of the same session: it knows all that was said here. Use it when the job is too
much for one turn; the result that the person gets is the answer of the last turn. Needs task: what is to be done next.
"""


def run(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Queue the next turn; ToolFailed with a text for the model."""
    task = arguments.get("task")
    if not isinstance(task, str) or not task.strip() or "\x00" in task or len(task) > LONGEST:
        raise ToolFailed(f"task must say what is to be done next, in at most {LONGEST} characters")
    turn = context.turn
    waiting = Turn.objects.filter(session=context.session, state=TurnState.QUEUED, origin_run=turn.origin_run)
    if waiting.exists():
        raise ToolFailed("the next turn is asked for already; end this one with a short answer")
    if turns_so_far(turn) >= MOST_TURNS:
        raise ToolFailed(f"a job has at most {MOST_TURNS} turns; give the result now")
    go_on(turn, context.agent.pk, task)
    return "The next turn follows this one. End this turn with a short note of what was done."


def register() -> None:
    """Make the tool known; only a job's turn is told of it."""
    tools.register(
        Tool(
            name="next_turn",
            description=DESCRIPTION,
            parameters={
                "type": "object",
                "properties": {"task": {"type": "string", "description": "what is to be done next"}},
                "required": ["task"],
            },
            effect=Effect.WRITE,
            transactional=True,
            run=run,
            offered=lambda context: context.turn.kind == TurnKind.JOB,
        )
    )
