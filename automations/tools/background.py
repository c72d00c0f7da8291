"""Tools of background sessions: repair a corrupted HEARTBEAT.md (rule 6.6), continue a job in another turn (6.3)."""

from __future__ import annotations

from typing import Any

from agent_core.exceptions import ToolFailed
from agent_core.tools import Effect, Tool
from automations.models import CronJob
from automations.routines.edit import agent_routines
from automations.routines.heartbeat_document import NAME, corruption_of
from automations.routines.repair import Repair, repair
from automations.runs import report
from automations.turn_kinds.isolated import MOST_TURNS, count_turns, queue_next_turn
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.models import Turn, TurnKind, TurnState
from sessions_app.turns.tool_calls import ToolContext

DESCRIPTION = """\
Repairs HEARTBEAT.md when it cannot be read: the given tasks take the place of its broken JSON block. Give every task
that the block names, as it was meant; what is new becomes a routine, and routines that you leave out stay as they are.
"""
ELSEWHERE = "HEARTBEAT.md is repaired in a heartbeat without tasks; a person can rewrite it in a conversation"
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "revision": {"type": "integer", "description": "the revision of HEARTBEAT.md that you were shown"},
        "tasks": {
            "type": "array",
            "items": {"type": "object"},
            "description": "the tasks with their fields as in the block: id, title, description, schedule, and so on",
        },
    },
    "required": ["revision", "tasks"],
}


def run_repair(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Repair the document. ToolFailed with a text for the model."""
    revision, tasks = arguments.get("revision"), arguments.get("tasks")
    if not _repairs(context):
        raise ToolFailed(ELSEWHERE)
    if not isinstance(revision, int) or isinstance(revision, bool) or not isinstance(tasks, list):
        raise ToolFailed("give revision, a whole number, and tasks, a list of objects")
    try:
        done = repair(context.agent.pk, revision, tasks)
    except RevisionConflict:
        raise ToolFailed("HEARTBEAT.md has changed meanwhile: read_document shows it as it is now") from None
    except SessionsError as error:
        raise ToolFailed(str(error)) from error
    # as the creator: new routines do not run before its turn has ended
    CronJob.objects.filter(pk__in=done.added).update(created_by_turn_id=context.turn.pk)
    words = _words(context, done)
    report.report_turn(context.turn, "heartbeat_repaired", words, about="repair")
    return f"{words} It is now at revision {done.revision}."


def _words(context: ToolContext, done: Repair) -> str:
    names = dict(agent_routines(context.agent.pk).values_list("pk", "name"))
    parts = [
        f"{what}: {', '.join(f'{names[each]!r} ({each})' for each in ids)}"
        for what, ids in (("added", done.added), ("changed", done.changed))
        if ids
    ]
    return f"HEARTBEAT.md could not be read and was repaired; {'; '.join(parts) or 'no routine was added or changed'}."


def _is_offered(context: ToolContext) -> bool:
    """Whether the document is corrupted and this is a heartbeat that is shown so."""
    text = context.documents.get(NAME, "")
    return _repairs(context) and corruption_of(text, context.agent, 0) is not None


def _repairs(context: ToolContext) -> bool:
    """Whether the turn is a heartbeat without tasks: only that is shown what is wrong with the document."""
    return context.turn.kind == TurnKind.HEARTBEAT and not context.turn.input.tasks


REPAIR_HEARTBEAT = Tool(
    name="repair_heartbeat",
    description=DESCRIPTION,
    parameters=PARAMETERS,
    effect=Effect.WRITE,
    transactional=True,
    run=run_repair,
    offered=_is_offered,
)


LONGEST_TASK = 20_000  # characters
CONTINUES = """\
Goes on with this job in a further turn of the same session: it knows all that was said here. Use it when the job is too
much for one turn; the result that the person gets is the answer of the last turn. Needs task: what is to be done next.
"""


def request_next_turn(context: ToolContext, arguments: dict[str, Any]) -> str:
    """Queue the next turn. ToolFailed with a text for the model."""
    task = arguments.get("task")
    if not isinstance(task, str) or not task.strip() or "\x00" in task or len(task) > LONGEST_TASK:
        raise ToolFailed(f"task must say what is to be done next, in at most {LONGEST_TASK} characters")
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
    description=CONTINUES,
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
