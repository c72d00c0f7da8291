"""The dream: nightly, what sessions hold on to goes into MEMORY.md (rule 6.8). It never reads their history.

What a night was shown stands in step 0 of its turn: the revision of MEMORY.md, and of each task state. The commit
writes MEMORY.md against that revision and marks just those task states, so an edit in between wins and what came
meanwhile is taken up by the next night.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from agent_core import prompts
from agent_core.types import Ending, TurnResult
from automations.slot_kind import SlotKind
from automations.zone_files import load_zone
from sessions_app import memory
from sessions_app.agents import put_document
from sessions_app.exceptions import RevisionConflict
from sessions_app.kinds import Trigger, Unkept
from sessions_app.models import Agent, Document, TaskState, Turn, TurnKind, TurnStep

PROMPT = "dream.consolidate"
MEMORY = "MEMORY.md"
LONGEST_MEMORY = 40_000  # characters; a longer one, by a person's hand, may stay as long as it is
MOST_STATES = 50  # of one night; the rest waits for the next
LONGEST_STATE = 4_000  # characters of one task state
_FENCED = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


def has_news(agent_id: int) -> bool:
    """Whether any session holds on to what MEMORY.md has not taken in."""
    return memory.unconsolidated(agent_id).exists()


class DreamKind(SlotKind):
    """A night of an agent: no history and no tools, only what it is shown here."""

    name = TurnKind.SYSTEM
    alone = True
    plans = False

    def trigger(self, turn: Turn) -> Trigger:
        """MEMORY.md and the task states that are not in it yet, within bounds."""
        agent = Agent.objects.get(sessions=turn.session_id)
        document = Document.objects.filter(agent=agent, name=MEMORY).first()
        before = document.content.strip() if document else ""
        states = list(memory.unconsolidated(agent.pk).select_related("session")[:MOST_STATES])
        longest = max(LONGEST_MEMORY, len(before))
        prompt = prompts.render(
            PROMPT,
            {
                "memory": before or "(empty)",
                "conversations": "\n\n".join(shown_state(state) for state in states) or "(nothing)",
                "longest": longest,
                "now": datetime.now(UTC).astimezone(load_zone(agent.timezone)).isoformat(timespec="minutes"),
                "timezone": agent.timezone,
            },
        )
        count = f"{len(states)} conversation{'s' * (len(states) != 1)}"
        return Trigger(
            content=f"Dream: what {count} held on to, and {MEMORY}.",
            model_content=prompt.text,
            metadata={"system_event": "dream", "run_id": turn.origin_run, "prompt_ref": prompt.ref.to_json()},
            source={"kind": "system", "event": "dream", "run_id": turn.origin_run},
            template=prompt.to_json()
            | {
                "basis": {
                    "agent": agent.pk,
                    "revision": document.revision if document else 0,
                    "longest": longest,
                    "states": {str(state.pk): state.revision for state in states},
                }
            },
        )

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """The run's outcome and, of a success, MEMORY.md. Unkept when it was edited, or the answer is none."""
        super().closed(turn, result, closure)
        if result.ending is Ending.SUCCEEDED:
            _keep(_basis(turn), result.reply)


def _basis(turn: Turn) -> dict[str, Any]:
    step = TurnStep.objects.get(turn=turn, n=0)
    return step.data["trigger"]["template"]["basis"]  # type: ignore[no-any-return]


def _keep(basis: dict[str, Any], reply: str) -> None:
    text = _FENCED.sub(r"\1", reply.strip()).strip()
    if not text:
        raise Unkept("memory_empty", f"The model gave no text; {MEMORY} stays as it was.")
    if len(text) > basis["longest"]:
        reason = f"The model gave more than {basis['longest']} characters; {MEMORY} stays as it was."
        raise Unkept("memory_too_long", reason)
    try:
        put_document(basis["agent"], MEMORY, f"{text}\n", revision=basis["revision"])
    except RevisionConflict:
        reason = f"{MEMORY} was edited meanwhile; the edit stays, and the next night takes it up."
        raise Unkept("memory_changed", reason) from None
    memory.consolidated(basis["states"])


def shown_state(state: TaskState) -> str:
    """A task state as the model reads it: a heading, then one line for each thing."""
    changed = state.updated_at.date().isoformat()
    heading = f"## {_line(state.session.title or state.session.key)} (last changed {changed})"
    held = prompts.inside_block(memory.held(state).in_words())
    return f"{heading}\n{held}"[:LONGEST_STATE]


def _line(text: str) -> str:
    """On one line, so that no text can pass for another conversation's heading or for the end of the block."""
    return prompts.inside_block(" ".join(str(text).split()))
