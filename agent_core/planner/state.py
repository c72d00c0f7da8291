"""Shows an execution to the planning model, as JSON, so that no text in it can look like another part of it."""

from __future__ import annotations

import json
from typing import Any, Final

from agent_core.execution import FINDINGS, Execution, Observation, PlanStep
from agent_core.llm import tokens
from agent_core.turn import budget
from agent_core.turn.consent import without_id

LONGEST: Final = 60_000  # characters of all results shown; the oldest ones are left out
LEFT_OUT: Final = "(no longer shown: too old)"
_LONGEST_ARGUMENTS = 4000


def in_json(execution: Execution) -> str:
    """Return status, steps with results, questions with replies, and the person's messages as JSON."""
    step = execution.next_step()
    shown = {
        "status": str(execution.status),
        "goal": execution.goal,
        "plan": execution.plans,
        "current_step": execution.current_step if step is None else step.id,
        "steps": _steps(execution),
        "questions": questions_asked(execution),
        "messages": _texts(execution, "message"),
        "notes": _texts(execution, "note"),
        "last_error": execution.last_error,
    }
    lines = [f"{_json(name)}: {_block(value)}" for name, value in shown.items() if value not in ("", 0, [])]
    return "{\n" + ",\n".join(lines) + "\n}"


def questions_asked(execution: Execution) -> list[dict[str, Any]]:
    """Return the questions in order, each with its reply or None."""
    asked: list[dict[str, Any]] = []
    for each in execution.observations:
        if each.kind == "question":
            asked.append({"question": without_id(each.text), "reply": None})
        elif each.kind == "reply":
            if not asked or asked[-1]["reply"] is not None:
                asked.append({"question": None, "reply": None})
            asked[-1]["reply"] = each.text
    return asked


def _steps(execution: Execution) -> list[dict[str, Any]]:
    found = _results(execution)
    return [_step(step, found.get(step.id)) for step in execution.steps]


def _step(step: PlanStep, found: Observation | None) -> dict[str, Any]:
    arguments = step.arguments
    if step.tool and len(json.dumps(arguments, ensure_ascii=False)) > _LONGEST_ARGUMENTS:
        arguments = {"(too long)": json.dumps(arguments, ensure_ascii=False)[:_LONGEST_ARGUMENTS]}
    given: dict[str, Any] = {
        "id": step.id,
        "type": str(step.type),
        "status": str(step.status),
        "title": step.title,
        "tool": step.tool,
        "arguments": arguments if step.tool else {},
        "instruction": step.instruction,
        "question": without_id(step.question),
    }
    if found is not None:
        given["error" if found.kind == "error" else "result"] = found.text
    return {name: value for name, value in given.items() if value not in ("", {})}


def _results(execution: Execution) -> dict[str, Observation]:
    """The observation of each step. Beyond the bound, the oldest are replaced by a note."""
    most = budget.limit() // 2 or LONGEST
    left, room = LONGEST, most
    shown: dict[str, Observation] = {}
    for each in reversed(execution.observations):
        if each.kind in FINDINGS and each.step not in shown:
            left -= len(each.text)
            room -= tokens.of_text(each.text)
            text = each.text if min(left, room) >= 0 else LEFT_OUT
            if not shown:  # the newest is always shown, at least in part
                text = budget.clipped(each.text, most)
            shown[each.step] = Observation(kind=each.kind, text=text, step=each.step)
    return shown


def _texts(execution: Execution, kind: str) -> list[str]:
    return [each.text for each in execution.observations if each.kind == kind]


def _block(value: Any) -> str:
    """A list with one item per line; other values on one line."""
    if not isinstance(value, list):
        return _json(value)
    return "[\n " + ",\n ".join(map(_json, value)) + "\n]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
