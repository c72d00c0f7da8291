"""Builds the messages for the planning model. The execution is shown as JSON, so that no text in it can look like
another part of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_core import prompts
from agent_core.execution import FINDINGS, Execution, Observation, PlanStep
from agent_core.llm import tokens
from agent_core.planner.plan import MOST_STEPS
from agent_core.text import fence
from agent_core.text.formats import indented
from agent_core.tool_spec import Effect
from agent_core.turn import request_size
from agent_core.turn.consent import without_id

if TYPE_CHECKING:
    from agent_core.planner.work import PlanRequest

LONGEST: Final = 60_000  # characters of all results shown; the oldest ones are left out
LEFT_OUT: Final = "(no longer shown: too old)"
_LONGEST_ARGUMENTS = 4000


def in_json(execution: Execution) -> str:
    """Return status, steps with results, questions with replies, and the person's messages as JSON."""
    step, found = execution.next_step(), _results(execution)
    shown = {
        "status": str(execution.status),
        "goal": execution.goal,
        "plan": execution.plans,
        "current_step": execution.current_step if step is None else step.id,
        "steps": [_step(each, found.get(each.id)) for each in execution.steps],
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
    most = request_size.limit() // 2 or LONGEST
    left, room = LONGEST, most
    shown: dict[str, Observation] = {}
    for each in reversed(execution.observations):
        if each.kind in FINDINGS and each.step not in shown:
            left -= len(each.text)
            room -= tokens.of_text(each.text)
            text = each.text if min(left, room) >= 0 else LEFT_OUT
            if not shown:  # the newest is always shown, at least in part
                text = request_size.clipped(each.text, most)
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


HEARD: Final = "The person of this conversation reads your questions and can answer them."
UNHEARD: Final = (
    "Nobody can answer in this turn. Plan no ask_user step: where something is unclear, choose what is safe, and say in"
    " the answer what you chose. A call that needs the person's consent is refused, and the person is told that you"
    " asked for it."
)
_EFFECTS: Final = {
    Effect.READ: "Only read, so look as often as you need",
    Effect.WRITE: "Change something of this agent; the plan is looked at again after each",
    Effect.DANGEROUS: "Delete something, or reach the network",
}
ASKED: Final = "some or all of their calls need the person's consent, which the server asks for by itself"
REFUSED: Final = (
    "some or all of their calls are refused in this turn, and the person is told that you asked for it"
)
FREE: Final = "your owner allows them without asking"
BY_SERVER: Final = (
    "Do not ask for consent to a tool's call: the server asks by itself, naming the call, where one needs it."
)
BY_NOBODY: Final = "Do not ask for consent to a tool's call: in this turn nobody can give it."


@dataclass(frozen=True, kw_only=True, slots=True)
class Resume:
    """A reply to a question, both word for word."""

    question: str
    reply: str


def plan_message(execution: Execution, request: PlanRequest) -> str:
    """Return the message that asks for a plan."""
    given = _common(execution, request) | _of_form(request)
    given |= {
        "consent": BY_SERVER if request.may_ask_consent else BY_NOBODY,
        "resume": _resume(request.resume),
    }
    return prompts.render_prompt("planner.plan", given).text


def revise_message(execution: Execution, request: PlanRequest) -> str:
    """Return the message that asks how the plan continues."""
    given = _common(execution, request) | _of_form(request) | {"why": execution.revise}
    return prompts.render_prompt("planner.revise", given).text


def reason_message(execution: Execution, request: PlanRequest, step: PlanStep) -> str:
    """Return the message that asks for a thought."""
    instruction = step.instruction or step.title or "What follows from what is known?"
    return prompts.render_prompt(
        "planner.reason", _common(execution, request) | {"instruction": instruction}
    ).text


def respond_message(execution: Execution, request: PlanRequest, instruction: str) -> str:
    """Return the message that asks for the final answer."""
    told = instruction.strip() or "What the request asks for."
    return prompts.render_prompt("planner.respond", _common(execution, request) | {"instruction": told}).text


def _common(execution: Execution, request: PlanRequest) -> dict[str, str]:
    """The variables that all prompts have."""
    return {
        "request": request.words or execution.request,
        "now": request.clock(),
        "memory": fence.fenced("task state", request.memory.strip() or "(nothing)"),
        "live": fence.fenced("live", _live(execution) or "(nothing was read)"),
        "updates": _updates(execution),
        "execution": fence.fenced("execution", in_json(execution)),
        "said": _said(execution),
    }


def _of_form(request: PlanRequest) -> dict[str, str]:
    """The variables of the prompts that ask for steps."""
    rules = HEARD if request.is_heard else UNHEARD
    return {"most_steps": str(MOST_STEPS), "tools": _tools(request), "rules": rules}


def _tools(request: PlanRequest) -> str:
    """The names of the tools by effect and consent. The form contains their descriptions."""
    asked = ASKED if request.may_ask_consent else REFUSED
    kinds: dict[str, list[str]] = {}
    for effect, words in _EFFECTS.items():
        for tool in request.turn.offered:
            if tool.effect is effect:
                needs = (asked if tool.asks else FREE) if effect is Effect.DANGEROUS else ""
                kinds.setdefault(f"{words}; {needs}" if needs else words, []).append(tool.name)
    lines = [f"- {words}: {', '.join(names)}." for words, names in kinds.items()]
    return "\n".join(lines) or "There are no tools in this turn."


def _updates(execution: Execution) -> str:
    """The background updates, which the answer must tell the person."""
    told = "\n".join(_texts(execution, "update"))
    if not told:
        return ""
    return (
        "\n\n# What happened in the background\n\nThe person was not told yet: the answer tells what matters of it,"
        " before all else. A question need not; the server puts it before one."
        f"\n\n{fence.fenced('updates', told)}"
    )


def _said(execution: Execution) -> str:
    """The messages that the person wrote after the request. They are not fenced, because they are instructions."""
    lines = "\n".join(f"- {indented(text)}" for text in _texts(execution, "message"))
    return f"\n\n# The person also wrote\n\n{lines}" if lines else ""


def _live(execution: Execution) -> str:
    known = (each for each in execution.observations if each.kind.startswith("live:"))
    return "\n".join(f"- {each.kind}: {indented(each.text)}" for each in known)


def _resume(resume: Resume | None) -> str:
    if resume is None:
        return ""
    return (
        "\n\n# Resume\n\nYou asked the person and they replied. The reply belongs to the question; go on from it.\n\n"
        f"Question: {indented(without_id(resume.question))}\nReply: {resume.reply}"
    )
