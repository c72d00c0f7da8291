"""How the offline model plays a planner: a request in parts, joined by "then", is a plan.

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

from agent_core.models import ModelCall, ModelReply
from agent_core.offline_answers import answer
from agent_core.offline_facts import facts_of
from agent_core.types import Entry, Role, ToolCall, ToolSpec

_KEEPS: Final = "You keep what a long conversation holds on to"
_TEXTS: Final = {"current_goal": "Goal", "active_flow": "Under way", "last_decision": "Decided"}
_BEGINS: Final = {"Your plan is done:": "Request", "You work off a plan,": "This step"}
_FORMS: Final = {"make_plan", "revise_plan"}
_SECTION = re.compile(
    r"^# (?P<title>Request|Resume|Tools|Goal|Steps|This step|What the answer must say)$", re.MULTILINE
)
_THEN = re.compile(r"[,;.]?\s*\b(?:and )?then\b\s*", re.IGNORECASE)
_FIRST = re.compile(r"^(?:please )?(?:first,? )?", re.IGNORECASE)
_ASK = re.compile(r"^ask me (?:(?P<confirm>whether|if) )?(?P<what>.+)$", re.IGNORECASE | re.DOTALL)
_THINK = re.compile(r"^think about (?P<what>.+)$", re.IGNORECASE | re.DOTALL)
_TOOL = re.compile(r"^- (?P<name>[\w-]+) \(\w+\): .*\n  arguments: (?P<schema>\{.*\})$", re.MULTILINE)
_QUESTION = re.compile(r"^Question: (?P<question>.*)\nReply: (?P<reply>.*)", re.MULTILINE | re.DOTALL)
_FOUND = re.compile(
    r"^- (?P<kind>tool|error|reply|message)(?: \(step [\d.]+\))?: (?P<text>.*(?:\n    .*)*)", re.MULTILINE
)
_WORK = re.compile(r"<work>\n(?P<work>.*?)\n</work>", re.DOTALL)
_SAID = {"tool": "found", "error": "failed", "reply": "you said", "message": "you said"}


def plays(call: ModelCall) -> bool:
    """Whether this is a planner's request."""
    content = call.entries[-1].content if call.entries else ""
    if call.system_prompt.startswith(_KEEPS):
        return True
    if any(tool.name in _FORMS for tool in call.tools):
        return True
    # a person may begin a message so, too: the headings tell
    needed = next((title for begin, title in _BEGINS.items() if content.startswith(begin)), None)
    return needed is not None and not call.tools and needed in _sections(content)


def reply_to(call: ModelCall) -> ModelReply:
    """The plan, the revision, the thought or the answer."""
    if call.system_prompt.startswith(_KEEPS):
        return ModelReply(text=_held(call.entries[-1].content))
    message = next((each.content for each in reversed(call.entries) if _SECTION.search(each.content)), "")
    parts = {"Request": ""} | _sections(message)
    names = {tool.name for tool in call.tools}
    if "make_plan" in names:
        return _form("make_plan", {"goal": parts["Request"][:200], "steps": _plan(parts)})
    if "revise_plan" in names:
        return _form("revise_plan", _revision(message, parts))
    if "This step" in parts:
        return ModelReply(text=f"Thought about: {parts['This step']}")
    found = [f"{_SAID[kind]}: {text}" for kind, text in _found(message)]
    return ModelReply(text="\n".join([f"Done: {parts['Request'][:200]}", *found]) + " (offline model)")


def _held(message: str) -> str:
    """Asked what a conversation holds on to: what was held, and the facts that people noted in it."""
    lines = message.splitlines()

    def after(label: str) -> list[str]:
        return [line.removeprefix(f"{label}: ") for line in lines if line.startswith(f"{label}: ")]

    said = {name: "".join(after(label)[:1]) for name, label in _TEXTS.items()}
    facts = dict.fromkeys(after("Fact") + facts_of(after("user")).all())
    return json.dumps(said | {"open_loops": after("Open"), "important_facts": list(facts)})


def _sections(message: str) -> dict[str, str]:
    """The text under each heading that counts."""
    marks = list(_SECTION.finditer(message))
    ends = [mark.start() for mark in marks[1:]] + [len(message)]
    parts: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=False):  # without any mark there is an end all the same
        text = message[mark.end() : end].strip()
        if mark["title"] == "Tools":
            parts.setdefault("Tools", text)  # ours comes first; another one stands in what a person wrote
        else:
            parts[mark["title"]] = text
    return parts


def _tools(text: str) -> tuple[ToolSpec, ...]:
    found = []
    for each in _TOOL.finditer(text):
        try:
            schema = json.loads(each["schema"])
        except ValueError:
            continue
        found.append(ToolSpec(name=each["name"], description="", parameters=schema))
    return tuple(found)


def _found(message: str) -> list[tuple[str, str]]:
    work = _WORK.search(message)
    lines = _FOUND.finditer(work["work"]) if work else ()
    return [(line["kind"], " ".join(line["text"].split())) for line in lines]


def _plan(parts: dict[str, str]) -> list[dict[str, Any]]:
    tools = _tools(parts.get("Tools", ""))
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
    if said.wish is not None:
        wish = said.wish
        return {"type": "tool", "title": text[:200], "tool": wish.tool, "arguments": wish.arguments}
    return {"type": "respond", "title": "answer", "instruction": text}


def _revision(message: str, parts: dict[str, str]) -> dict[str, Any]:
    """On as planned while something is left; else to the end, also after a failure or a no."""
    why = message.partition("\n")[0]
    is_over = "failed" in why or "said no" in why or "[pending]" not in parts.get("Steps", "")
    if is_over:
        return {"action": "finish", "instruction": "what was done and what was not"}
    return {"action": "continue"}


def _form(name: str, arguments: dict[str, Any]) -> ModelReply:
    return ModelReply(text="", calls=(ToolCall(id=f"offline-{name}", name=name, arguments=arguments),))
