"""The offline model's answers to requests of the server: heartbeat, verdict, dream, compression, and plans.

The parts of a request, joined by "then", are the steps of its plan:

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
from agent_core.offline.schedules import CLOCK
from agent_core.offline.sentences import SUFFIX, answer, facts_of, held_facts
from agent_core.text import fence
from agent_core.text.json_values import json_objects
from agent_core.tool_spec import ToolSpec
from agent_core.types import JSON, Entry, Role, ToolCall

_DUE = re.compile(r"(?m)^- \[[^\]]+\] (?P<title>[^:\n]+)")
_NOTHING_NEW = re.compile(
    r"(?i)\b(?:nothing (?:new|to report|has changed|changed)|no (?:news|changes?)|all (?:is )?(?:well|quiet|normal))\b"
)
_HELD = re.compile(r"(?m)^(?:Fact|Decided|Open): (?P<line>.+)$")
_KEEPS: Final = "You keep the task state of a long conversation"
_TEXTS: Final = {"current_goal": "Goal", "active_flow": "Under way", "last_decision": "Decided"}
_SPOKEN = re.compile(r"^(\d+) \[[^\]]*\] person: (.*)")
_BEGINS: Final = {"Your plan is done:": "Request", "You work off a plan,": "This step"}
_SECTION = re.compile(
    r"(?m)^# (?P<title>Request|Resume|This step|The person also wrote|What the answer must say)$"
)
_THEN = re.compile(r"(?i)[,;.]?\s{0,9}\b(?:and )?then\b\s*")
_FIRST = re.compile(r"(?i)^(?:please )?(?:first,? )?")
_ASK = re.compile(r"(?is)^ask me (?:(?P<confirm>whether|if) )?(?P<what>.+)$")
_THINK = re.compile(r"(?is)^think about (?P<what>.+)$")
_QUESTION = re.compile(r"(?m)^Question: (?P<question>.*)\nReply: ")


def answer_duty(system_prompt: str, content: str) -> str | None:
    """Answer a request of the server. None: it is a message of a person or a task."""
    if asks_for_verdict(system_prompt):
        return _verdict(content)
    if system_prompt.startswith("You are the long-term memory of "):
        shown = {block.name: block.text for block in fence.blocks(content)}
        return _memory(shown.get("MEMORY.md", ""), shown.get("conversations", ""))
    if "answer exactly HEARTBEAT_OK" not in system_prompt:
        return None
    titles = [match["title"].strip() for match in _DUE.finditer(content.partition("## Due Tasks\n")[2])]
    return f"Done: {'; '.join(titles)}." if titles else "HEARTBEAT_OK"


def asks_for_verdict(system_prompt: str) -> bool:
    """Whether the prompt asks for a verdict on a reply (``turn/judge.py``)."""
    return system_prompt.startswith("You decide whether a person is told")


def _verdict(content: str) -> str:
    answers = [block.text for block in fence.blocks(content) if block.name == "answer"]
    quiet = _NOTHING_NEW.search(answers[-1] if answers else "")
    reason = f"It says: {quiet[0].lower()}." if quiet else "It says something."
    return json.dumps({"notify": quiet is None, "reason": reason})


def _memory(memory: str, held: str) -> str:
    """MEMORY.md with a line for each item of the task states that is not in it yet."""
    kept = "" if memory == "(empty)" else memory.removesuffix(SUFFIX)
    new = dict.fromkeys(f"- {match['line']}" for match in _HELD.finditer(held))
    return "\n".join(filter(None, (kept, *(line for line in new if line not in kept))))


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
    if call.form is not None:
        name = call.form.name
        filled = _plan(parts, call.tools) if name == "make_plan" else _revision(message)
        return ModelReply(text="", calls=(ToolCall(id=f"offline-{name}", name=name, arguments=filled),))
    if "This step" in parts:
        return ModelReply(text=f"Thought about: {parts['This step']}")
    return ModelReply(text="\n".join([f"Done: {parts['Request'][:200]}", *_found(message)]) + SUFFIX)


def _task_state(message: str) -> str:
    """The earlier task state with the facts that people stated in the messages."""
    lines = fence.without_fences(message).splitlines()

    def after(label: str) -> list[str]:
        return [line.removeprefix(f"{label}: ") for line in lines if line.startswith(f"{label}: ")]

    said = {name: "".join(after(label)[:1]) for name, label in _TEXTS.items()}
    spoken = {number: text for line in lines for number, text in _SPOKEN.findall(line)}
    where = {fact: int(number) for number, text in spoken.items() for fact in facts_of([text]).values()}
    current = facts_of(spoken.values(), held_facts("\n".join(lines))).values()
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
    shown = "".join(block.text for block in fence.blocks(message) if block.name == "execution")
    state = next(json_objects(shown), {})
    return {"steps": [], "questions": [], "messages": []} | state


def _found(message: str) -> list[str]:
    """A line for each result, and for each message and reply of the person."""
    state = _state(message)
    found = [("found", step.get("result")) for step in state["steps"] if step["type"] == "tool"]
    found += [("failed", step.get("error")) for step in state["steps"]]
    found += [("you said", asked["reply"]) for asked in state["questions"]]
    found += [("you said", text) for text in state["messages"]]
    return [f"{how}: {' '.join(text.split())}" for how, text in found if text]


def _plan(parts: dict[str, str], tools: tuple[ToolSpec, ...]) -> JSON:
    steps = [_step(part, tools) for part in _THEN.split(parts["Request"]) if part.strip()]
    asked = _QUESTION.search(parts.get("Resume", ""))
    questions = [step.get("question") for step in steps]
    if asked and asked["question"] in questions:
        steps = steps[questions.index(asked["question"]) + 1 :]
    elif asked:
        steps = [step for step in steps if step["type"] == "respond"]
    if not steps or steps[-1]["type"] not in {"respond", "ask_user"}:
        steps.append({"type": "respond", "title": "answer"})
    return {"goal": parts["Request"][:200], "steps": steps}


def _step(part: str, tools: tuple[ToolSpec, ...]) -> JSON:
    text = _FIRST.sub("", part.strip()).strip(" ,.")
    if asks := _ASK.match(text):
        question = asks["what"][:1].upper() + asks["what"][1:] + "?"
        return {"type": "ask_user", "title": "ask", "question": question, "confirm": bool(asks["confirm"])}
    if thinks := _THINK.match(text):
        return {"type": "reason", "title": text, "instruction": thinks["what"]}
    said = answer(ModelCall(system_prompt="", entries=(Entry(role=Role.USER, content=text),), tools=tools), 0)
    if said.call is not None and said.call is not CLOCK:
        return {"type": "tool", "title": text[:200], "tool": said.call.name, "arguments": said.call.arguments}
    return {"type": "respond", "title": "answer", "instruction": text}


def _revision(message: str) -> JSON:
    """Continue while steps are left. Finish otherwise, and after a failure or a no."""
    why = message.partition("\n")[0]
    has_more = any(step["status"] == "pending" for step in _state(message)["steps"])
    if "failed" in why or "said no" in why or not has_more:
        return {"action": "finish", "instruction": "what was done and what was not"}
    return {"action": "continue"}
