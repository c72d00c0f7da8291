"""The dream: a nightly turn that merges the sessions' task states into MEMORY.md (rule 6.8), without their history.

Step 0 of its turn stores the revisions of MEMORY.md and of each task state that the model was shown. The commit writes
MEMORY.md against that revision and marks only those task states. So an edit in between wins, and later task states are
left for the next night. An invalid answer is discarded; a valid one keeps the old text as an older revision.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from agent_core import prompts, strategies
from agent_core.llm import tokens
from agent_core.memory.task_state import restore_marks
from agent_core.text import fence, phrases
from agent_core.turn import request_size
from agent_core.types import NOTES, Ended, Ending, TurnResult
from automations.schedules.zone_files import load_zone
from automations.turn_kinds.slot import SlotKind
from sessions_app.agents.documents import put_document
from sessions_app.exceptions import RevisionConflict
from sessions_app.memory import task_state
from sessions_app.models import Document, Session, TaskState, Turn, TurnKind, TurnStep
from sessions_app.queue.kinds import CommitRefused, Trigger

PROMPT = "dream.consolidate"
MEMORY = "MEMORY.md"
LONGEST_MEMORY = 40_000  # characters; a longer text that a person wrote may keep its length
MOST_STATES = 50  # task states of one night; the others are left for the next
EMPTY = "(empty)"
LONGEST_STATE = 4_000  # characters of one task state
LONGEST_REMARK = 200  # characters
LEAST_KEPT = 0.5  # minimum length of the answer relative to MEMORY.md
_MARK = re.compile(r"\[\s*(?:registered|to be registered|已注册|待注册)[^\]\n]*\]", re.IGNORECASE)
_REFUSAL = re.compile(  # how an answer begins that refuses the task
    r"\W*(?:i['\u2019]?m (?:sorry|afraid|unable)|i (?:can['\u2019]t|cannot|won['\u2019]t)|i am (?:sorry|unable)"
    r"|(?:i )?apologi[sz]e|sorry\b|unfortunately\b|as an ai\b|(?:很)?抱歉|对不起|我(?:无法|不能))",
    re.IGNORECASE,
)
_NO_DOCUMENT = re.compile(  # an answer that only says that there is nothing
    r"\W*(?:(?:the )?(?:memory|memory\.md|document|file) (?:is |was |remains? |stays? )?)?"
    r"(?:(?:still |currently )?(?:empty|unchanged|the same)|n/?a|none|nothing|no)"
    r"(?: (?:new|further|relevant|other|changes?|updates?|additions?|information|facts?|news|content|memory|memories"
    r"|is|are|were|needed|required|necessary|made|here|yet|now|found"
    r"|to (?:add|change|merge|note|record|remember|report|save|store|update|consolidate|keep)))*\W*"
    r"|\W*(?:空|无|没有?(?:任何)?|无需|不需要)(?:变化|更改|更新|修改|改动|内容|新内容|新信息|记忆)?\W*",
    re.IGNORECASE,
)
_REMARK = re.compile(  # how an answer begins that may be a remark instead of a document
    r"\W*(?:(?:there (?:is|are|was|were)|(?:i|we) (?:have|had|found|see)|目前|现在|本次)[ ,]*)?"
    r"(?:no|not|nothing|none|null|nil|ok|okay|done|没有|没什么|暂无|无)(?![a-z])",
    re.IGNORECASE,
)
# these stand in remarks, too
_LABELS = (
    *(
        "memory",
        "memories",
        "document",
        "fact",
        "facts",
        "goal",
        "open",
        "decided",
        "last changed",
        "changed",
    ),
    *("changes", "conversation", "conversations", "empty"),
)
_TITLE = re.compile(r"^#+ *(?:the )?(?:memory|notes)\b.*$", re.IGNORECASE | re.MULTILINE)
_FENCED = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


def has_news(agent_id: int) -> bool:
    """Whether any session has a task state that is not merged into MEMORY.md yet."""
    return task_state.unconsolidated(agent_id).exists()


class DreamKind(SlotKind):
    """The dream's turn: without history and without tools."""

    name = TurnKind.SYSTEM
    trigger_only = True
    strategy = strategies.DREAM
    may_plan = False

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """MEMORY.md and as many unmerged task states as fit."""
        agent = session.agent
        document = Document.objects.filter(agent=agent, name=MEMORY).first()
        before = document.content.strip() if document else ""
        waiting = task_state.unconsolidated(agent.pk).select_related("session")[:MOST_STATES]
        states = _fitting(list(waiting), before)
        longest = max(LONGEST_MEMORY, len(before))
        prompt = prompts.render_prompt(
            PROMPT,
            {
                "memory": fence.fenced(MEMORY, before or EMPTY),
                "conversations": fence.fenced(
                    "conversations", "\n\n".join(map(shown_state, states)) or "(nothing)"
                ),
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
        """Store the run's outcome and, after a success, MEMORY.md. CommitRefused when it was edited or is invalid."""
        super().closed(turn, result, closure)
        if result.ending is Ending.SUCCEEDED:
            _keep(_template(turn), result)


def _fitting(waiting: list[TaskState], before: str) -> list[TaskState]:
    """The first task states that fit into a request together with MEMORY.md, at least one."""
    left = request_size.room(tokens.of_text(before))
    for number, state in enumerate(waiting):
        left -= tokens.of_text(shown_state(state))
        if left < 0 and number:
            return waiting[:number]
    return waiting


def _template(turn: Turn) -> dict[str, Any]:
    step = TurnStep.objects.get(turn=turn, n=0)
    return step.data["trigger"]["template"]  # type: ignore[no-any-return]


def _keep(shown: dict[str, Any], result: TurnResult) -> None:
    basis = shown["basis"]
    if result.ended_by is not None and result.ended_by is not Ended.STOP:
        raise CommitRefused("memory_cut", f"{NOTES[result.ended_by]} {MEMORY} is unchanged.")
    text = _FENCED.sub(r"\1", result.reply.strip()).strip()
    if _is_no_document(text, shown["variables"]):
        raise CommitRefused("memory_empty", f"The model returned no text; {MEMORY} is unchanged.")
    if len(text) > basis["longest"]:
        reason = f"The model returned more than {basis['longest']} characters; {MEMORY} is unchanged."
        raise CommitRefused("memory_too_long", reason)
    before = Document.objects.filter(agent_id=basis["agent"], name=MEMORY).first()
    if before is not None and before.revision == basis["revision"]:
        check_new_memory(text, before.content.strip())
    elif _REFUSAL.match(text):
        raise CommitRefused(*REFUSED)
    text = restore_marks(text, "{memory}\n{conversations}".format_map(shown["variables"]))
    try:
        put_document(basis["agent"], MEMORY, f"{text}\n", revision=basis["revision"])
    except RevisionConflict:
        reason = f"{MEMORY} was edited meanwhile; the edit is kept, and the next night continues from it."
        raise CommitRefused("memory_changed", reason) from None
    task_state.mark_consolidated(basis["states"])


def _is_no_document(text: str, given: dict[str, str]) -> bool:
    """Whether the answer has no text, or only says that there is nothing: it repeats no word of the given texts."""
    body = _TITLE.sub("", text).strip()
    if not body or _NO_DOCUMENT.fullmatch(body):
        return True
    if len(body) > LONGEST_REMARK or not _REMARK.match(body):
        return False
    known = "\n".join(fence.without_fences(given[name]) for name in ("memory", "conversations"))
    return not phrases.shares_words(body, known, _LABELS)


REFUSED = ("memory_refused", f"The model refused the task; {MEMORY} is unchanged.")


def check_new_memory(text: str, before: str) -> None:
    """CommitRefused unless the answer can replace MEMORY.md: no refusal, the same marks, at least half the length."""
    if _REFUSAL.match(text) and not _REFUSAL.match(before):
        raise CommitRefused(*REFUSED)
    had, has = ([" ".join(mark.lower().split()) for mark in _MARK.findall(each)] for each in (before, text))
    if not set(had) <= set(has) or len(has) > len(had):
        reason = f"The model changed marks such as [registered: …]; {MEMORY} is unchanged."
        raise CommitRefused("memory_marks", reason)
    if len(text) < len(before) * LEAST_KEPT:
        reason = f"The model left out more than half of the text; {MEMORY} is unchanged."
        raise CommitRefused("memory_shrank", reason)


def shown_state(state: TaskState) -> str:
    """A task state for the model: a heading, then one line for each item."""
    changed = state.updated_at.date().isoformat()
    heading = f"## {_line(state.session.title or state.session.key)} (last changed {changed})"
    return f"{heading}\n{task_state.task_state_of(state).as_text()}"[:LONGEST_STATE]


def _line(text: str) -> str:
    """The text on one line, so that it cannot imitate another conversation's heading."""
    return " ".join(str(text).split())
