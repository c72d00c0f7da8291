"""What the offline model answers to the server itself: a heartbeat, a verdict on a reply, the dream."""

from __future__ import annotations

import re
from typing import Final

SUFFIX: Final = " (offline model)"
_HEARTBEAT = "answer exactly HEARTBEAT_OK"
_JUDGE = "You decide whether a person is told"
_DUE = re.compile(r"^- \[[^\]]+\] (?P<title>[^:\n]+)", re.MULTILINE)
_DREAM = re.compile(
    r"<memory>\n(?P<memory>.*)\n</memory>\n<conversations>\n(?P<heard>.*)\n</conversations>$", re.DOTALL
)
_HEARD = re.compile(r"^(?:Fact|Decided|Open): (?P<line>.+)$", re.MULTILINE)
_NOTHING_NEW = re.compile(
    r"\b(?:nothing (?:new|to report|has changed|changed)|no (?:news|changes?)|all (?:is )?(?:well|quiet|normal))\b",
    re.IGNORECASE,
)


def answer(system_prompt: str, content: str) -> str | None:
    """What is said where the server asks; None: a person or a task is speaking."""
    if judges(system_prompt):
        return _verdict(content)
    dream = _DREAM.search(content)
    if dream:
        return _memory(dream["memory"], dream["heard"])
    return _heartbeat(content) if _HEARTBEAT in system_prompt else None


def judges(system_prompt: str) -> bool:
    """Whether the prompt asks for a verdict on a reply (``evaluate.py``)."""
    return system_prompt.startswith(_JUDGE)


def plain(text: str) -> str:
    """A reply without the mark that every reply of this model bears."""
    return text.removesuffix(SUFFIX)


def _heartbeat(body: str) -> str:
    _, _, due = body.partition("## Due Tasks\n")
    titles = [match["title"].strip() for match in _DUE.finditer(due)]
    return f"Done: {'; '.join(titles)}." if titles else "HEARTBEAT_OK"


def _verdict(content: str) -> str:
    quiet = _NOTHING_NEW.search(content.rpartition("\n## Answer\n")[2])
    if quiet:
        return f'{{"notify": false, "reason": "It says: {quiet[0].lower()}."}}'
    return '{"notify": true, "reason": "It says something."}'


def _memory(memory: str, heard: str) -> str:
    """MEMORY.md as it was, with a line for each thing that is not in it yet."""
    kept = "" if memory == "(empty)" else plain(memory)
    new = dict.fromkeys(f"- {match['line']}" for match in _HEARD.finditer(heard))
    return "\n".join(part for part in (kept, *(line for line in new if line not in kept)) if part)
