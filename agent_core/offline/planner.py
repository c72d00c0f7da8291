"""The offline model as a planner: the parts of a request, joined by "then", are the steps of its plan.

| a part says | step |
|---|---|
| a sentence by which the offline model calls a tool | calls it |
| ask me X | asks "X?" and waits |
| think about X | thinks |
| anything else | answers, with what was found |
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.memory.task_state import without_source
from agent_core.offline.answers import answer
from agent_core.offline.facts import facts_of, held_facts
from agent_core.text import fence
from agent_core.tool_spec import ToolSpec
from agent_core.types import Entry, Role, ToolCall

_KEEPS: Final = "You keep the task state of a long conversation"
_TEXTS: Final = {"current_goal": "Goal", "active_flow": "Under way", "last_decision": "Decided"}
_BEGINS: Final = {"Your plan is done:": "Request", "You work off a plan,": "This step"}
_SECTION = re.compile(
    r"^# (?P<title>Request|Resume|This step|The person also wrote|What the answer must say)$", re.MULTILINE
)
_THEN = re.compile(r"[,;.]?\s{0,9}\b(?:and )?then\b\s*", re.IGNORECASE)
_FIRST = re.compile(r"^(?:please )?(?:first,? )?", re.IGNORECASE)
_ASK = re.compile(r"^ask me (?:(?P<confirm>whether|if) )?(?P<what>.+)$", re.IGNORECASE | re.DOTALL)
_THINK = re.compile(r"^think about (?P<what>.+)$", re.IGNORECASE | re.DOTALL)
_QUESTION = re.compile(r"^Question: (?P<question>.*)\nReply: (?P<reply>.*)", re.MULTILINE | re.DOTALL)
_SPOKEN = re.compile(r"^(\d+) \[[^\]]*\] person: (.*)")


def is_planner_call(call: ModelCall) -> bool:
    """Whether the call is from the planner or asks for a compression."""
    content = call.entries[-1].content if call.entries else ""
    if call.system_prompt.startswith(_KEEPS) or call.form is not None:
        return True
    # a person's message may begin like this too; it has no such headings
    needed = next((title for begin, title in _BEGINS.items() if content.startswith(begin)), None)
    return needed is not None and not call.tools and needed in _sections(content)


def planner_reply(call: ModelCall) -> ModelReply:
    """Reply with the task state, the plan, the revision, the thought or the answer."""
    if call.system_prompt.startswith(_KEEPS):
        return ModelReply(text=_task_state(call.entries[-1].content))
    message = next((each.content for each in reversed(call.entries) if _SECTION.search(each.content)), "")
    parts = {"Request": ""} | _sections(message)
    if call.form is not None and call.form.name == "make_plan":
        return _form("make_plan", {"goal": parts["Request"][:200], "steps": _plan(parts, call.tools)})
    if call.form is not None:
        return _form("revise_plan", _revision(message))
    if "This step" in parts:
        return ModelReply(text=f"Thought about: {parts['This step']}")
    lines = [f"Done: {parts['Request'][:200]}", *_found(message)]
    return ModelReply(text="\n".join(lines) + " (offline model)")


def _task_state(message: str) -> str:
    """The earlier task state with the facts that people stated in the messages."""
    lines = fence.without_fences(message).splitlines()

    def after(label: str) -> list[str]:
        return [line.removeprefix(f"{label}: ") for line in lines if line.startswith(f"{label}: ")]

    said = {name: "".join(after(label)[:1]) for name, label in _TEXTS.items()}
    spoken = {number: text for line in lines for number, text in _SPOKEN.findall(line)}
    where = {fact: int(number) for number, text in spoken.items() for fact in facts_of([text]).all()}
    current = facts_of(spoken.values(), held_facts("\n".join(lines))).all()
    kept = [fact for fact in after("Fact") if without_source(fact) in current]
    known = set(map(without_source, kept))
    new = [{"fact": fact, "message": where[fact]} for fact in current if fact not in known]
    return json.dumps(said | {"open_loops": after("Open"), "important_facts": [*kept, *new]})


def _sections(message: str) -> dict[str, str]:
    """The text under each known heading."""
    _, *pieces = _SECTION.split(message)
    return {title: text.strip() for title, text in zip(pieces[::2], pieces[1::2], strict=True)}


def _state(message: str) -> dict[str, Any]:
    """The execution that the message shows."""
    shown = [block.text for block in fence.blocks(message) if block.name == "execution"]
    try:
        state = json.loads(shown[0]) if shown else {}
    except ValueError:  # a block of that name that a person wrote
        state = {}
    return {"steps": [], "questions": [], "messages": []} | state


def _found(message: str) -> list[str]:
    """A line for each result, and for each message and reply of the person."""
    state = _state(message)
    found = [("found", step.get("result")) for step in state["steps"] if step["type"] == "tool"]
    found += [("failed", step.get("error")) for step in state["steps"]]
    found += [("you said", asked["reply"]) for asked in state["questions"]]
    found += [("you said", text) for text in state["messages"]]
    return [f"{how}: {' '.join(text.split())}" for how, text in found if text]


def _plan(parts: dict[str, str], tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
    steps = [_step(part, tools) for part in _THEN.split(parts["Request"]) if part.strip()]
    asked = _QUESTION.search(parts.get("Resume", ""))
    questions = [step.get("question") for step in steps]
    if asked and asked["question"] in questions:
        steps = steps[questions.index(asked["question"]) + 1 :]
    elif asked:
        steps = [step for step in steps if step["type"] == "respond"]
    if not steps or steps[-1]["type"] not in {"respond", "ask_user"}:
        steps.append({"type": "respond", "title": "answer"})
    return steps


def _step(part: str, tools: tuple[ToolSpec, ...]) -> dict[str, Any]:
    text = _FIRST.sub("", part.strip()).strip(" ,.")
    asks, thinks = _ASK.match(text), _THINK.match(text)
    if asks:
        question = asks["what"][:1].upper() + asks["what"][1:] + "?"
        return {"type": "ask_user", "title": "ask", "question": question, "confirm": bool(asks["confirm"])}
    if thinks:
        return {"type": "reason", "title": text, "instruction": thinks["what"]}
    said = answer(ModelCall(system_prompt="", entries=(Entry(role=Role.USER, content=text),), tools=tools), 0)
    if said.call is not None:
        return {"type": "tool", "title": text[:200], "tool": said.call.tool, "arguments": said.call.arguments}
    return {"type": "respond", "title": "answer", "instruction": text}


def _revision(message: str) -> dict[str, Any]:
    """Continue while steps are left. Finish otherwise, and after a failure or a no."""
    why = message.partition("\n")[0]
    has_more = any(step["status"] == "pending" for step in _state(message)["steps"])
    is_over = "failed" in why or "said no" in why or not has_more
    if is_over:
        return {"action": "finish", "instruction": "what was done and what was not"}
    return {"action": "continue"}


def _form(name: str, arguments: dict[str, Any]) -> ModelReply:
    return ModelReply(text="", calls=(ToolCall(id=f"offline-{name}", name=name, arguments=arguments),))
