"""What the planning model is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from agent_core import prompts
from agent_core.execution import Execution, Observation, PlanStep
from agent_core.planner.plan import MOST_STEPS
from agent_core.types import ToolSpec

_LONGEST_ARGUMENTS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Resume:
    """A reply to a question: both exactly as they were said."""

    question: str
    reply: str


def plan_message(
    execution: Execution, *, tools: Iterable[ToolSpec], memory: str, resume: Resume | None, words: str = ""
) -> str:
    """Ask for a plan."""
    given = {
        "most_steps": MOST_STEPS,
        "tools": _tools(tools),
        "memory": prompts.inside_block(memory.strip()) or "(nothing)",
        "live": _live(execution),
        "work": _work(execution),
        "resume": _resume(resume),
        "request": words or execution.request,
        "said": _said(execution, but=resume.reply if resume else ""),
    }
    return prompts.render("planner.plan", given).text


def revise_message(execution: Execution, *, tools: Iterable[ToolSpec]) -> str:
    """Ask how the plan goes on."""
    given = {
        "why": execution.revise,
        "most_steps": MOST_STEPS,
        "goal": execution.goal or execution.request,
        "said": _said(execution),
        "tools": _tools(tools),
        "steps": "\n".join(_step(step) for step in execution.steps) or "(none)",
        "live": _live(execution),
        "work": _work(execution),
    }
    return prompts.render("planner.revise", given).text


def reason_message(execution: Execution, step: PlanStep) -> str:
    """Ask for a thought."""
    given = {
        "goal": execution.goal or execution.request,
        "said": _said(execution),
        "instruction": step.instruction or step.title or "What follows from what is known?",
        "live": _live(execution),
        "work": _work(execution),
    }
    return prompts.render("planner.reason", given).text


def respond_message(execution: Execution, *, instruction: str, memory: str) -> str:
    """Ask for the final answer."""
    given = {
        "request": execution.request,
        "said": _said(execution),
        "instruction": instruction.strip() or "What the request asks for.",
        "memory": prompts.inside_block(memory.strip()) or "(nothing)",
        "live": _live(execution),
        "work": _work(execution),
    }
    return prompts.render("planner.respond", given).text


def _tools(tools: Iterable[ToolSpec]) -> str:
    lines = [
        f"- {tool.name} ({tool.effect}): {' '.join(tool.description.split())}\n"
        f"  arguments: {json.dumps(tool.parameters, ensure_ascii=False, sort_keys=True)}"
        for tool in tools
    ]
    return "\n".join(lines) or "(none)"


def _live(execution: Execution) -> str:
    seen = [each for each in execution.observations if each.kind.startswith("live:")]
    return _shown(seen) or "(nothing was read)"


def _work(execution: Execution) -> str:
    seen = [
        each for each in execution.observations if not _is_said(each) and not each.kind.startswith("live:")
    ]
    return _shown(seen) or "(nothing yet)"


def _said(execution: Execution, but: str = "") -> str:
    """What the person wrote beside the request: words of theirs, not material."""
    said = [each for each in execution.observations if _is_said(each) and each.text != but]
    return f"\n\n# The person also wrote\n\n{_shown(said)}" if said else ""


def _is_said(observation: Observation) -> bool:
    return observation.kind in {"reply", "message"}


def _shown(observations: Iterable[Observation]) -> str:
    return "\n".join(
        f"- {each.kind}{f' (step {each.step})' if each.step else ''}: {_indented(each.text)}"
        for each in observations
    )


def _indented(text: str) -> str:
    """A continuation cannot be taken for the next item, nor for the end of the block."""
    return prompts.inside_block("\n    ".join(text.strip().splitlines()))


def _step(step: PlanStep) -> str:
    arguments = json.dumps(step.arguments, ensure_ascii=False)[:_LONGEST_ARGUMENTS] if step.tool else ""
    what = f"{step.tool} {arguments}".strip() or step.question or step.instruction
    about = " ".join(part for part in (step.title, what) if part)
    return f"- {step.id} [{step.status}] {step.type}: {prompts.inside_block(about)}"


def _resume(resume: Resume | None) -> str:
    if resume is None:
        return ""
    return (
        "\n\n# Resume\n\nYou asked the person and they replied. The reply belongs to the question; go on from it.\n\n"
        f"Question: {resume.question}\nReply: {resume.reply}"
    )
