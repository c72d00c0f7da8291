"""The offline model's answers to requests of the server: a heartbeat, a verdict on a reply, the dream."""

from __future__ import annotations

import re
from typing import Final

from agent_core.text import fence

SUFFIX: Final = " (offline model)"
_HEARTBEAT = "answer exactly HEARTBEAT_OK"
_JUDGE = "You decide whether a person is told"
_DUE = re.compile(r"^- \[[^\]]+\] (?P<title>[^:\n]+)", re.MULTILINE)
_DREAM = "You are the long-term memory of "
_HEARD = re.compile(r"^(?:Fact|Decided|Open): (?P<line>.+)$", re.MULTILINE)
_NOTHING_NEW = re.compile(
    r"\b(?:nothing (?:new|to report|has changed|changed)|no (?:news|changes?)|all (?:is )?(?:well|quiet|normal))\b",
    re.IGNORECASE,
)


def answer_duty(system_prompt: str, content: str) -> str | None:
    """Answer a request of the server. None: it is a message of a person or a task."""
    if asks_for_verdict(system_prompt):
        return _verdict(content)
    if system_prompt.startswith(_DREAM):
        shown = {block.name: block.text for block in fence.blocks(content)}
        return _memory(shown.get("MEMORY.md", ""), shown.get("conversations", ""))
    return _heartbeat(content) if _HEARTBEAT in system_prompt else None


def asks_for_verdict(system_prompt: str) -> bool:
    """Whether the prompt asks for a verdict on a reply (``turn/judge.py``)."""
    return system_prompt.startswith(_JUDGE)


def without_suffix(text: str) -> str:
    """Return a reply without the suffix that every reply of this model has."""
    return text.removesuffix(SUFFIX)


def _heartbeat(body: str) -> str:
    _, _, due = body.partition("## Due Tasks\n")
    titles = [match["title"].strip() for match in _DUE.finditer(due)]
    return f"Done: {'; '.join(titles)}." if titles else "HEARTBEAT_OK"


def _verdict(content: str) -> str:
    answers = [block.text for block in fence.blocks(content) if block.name == "answer"]
    quiet = _NOTHING_NEW.search(answers[-1] if answers else "")
    if quiet:
        return f'{{"notify": false, "reason": "It says: {quiet[0].lower()}."}}'
    return '{"notify": true, "reason": "It says something."}'


def _memory(memory: str, heard: str) -> str:
    """MEMORY.md with a line for each item of the task states that is not in it yet."""
    kept = "" if memory == "(empty)" else without_suffix(memory)
    new = dict.fromkeys(f"- {match['line']}" for match in _HEARD.finditer(heard))
    return "\n".join(part for part in (kept, *(line for line in new if line not in kept)) if part)
