"""How the offline model answers one message: the rules of the table in ``offline.py``, in order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core import offline_duties, offline_routine, offline_schedule
from agent_core.exceptions import ModelRefused
from agent_core.models import ModelCall, parse_arguments
from agent_core.offline_duties import plain
from agent_core.offline_facts import Facts, facts_of, questions, unknown_key
from agent_core.types import Entry, Role

_TRIGGER = "Scheduled automation triggered: "
_LONGEST_ECHO = 200
_LONGEST_DELAY_SECONDS = 600.0
_TASK = re.compile(r"<task>\n?(.*?)\n?</task>\s*$", re.DOTALL)
_UPDATES = re.compile(
    r"## (?:Background Updates|Missing Tools)\n(?P<updates>(?:(?:- |  ).*\n)+)\n(?P<rest>.*)", re.DOTALL
)
_UPDATE = re.compile(r"^- \[(?P<type>[^\]]*)\] (?P<summary>.*)(?P<detail>(?:\n  .*)*)", re.MULTILINE)
_USE_TOOL = re.compile(
    r"^(?:please )?use tool (?P<name>[\w-]+)(?: with (?P<json>.+))?$", re.IGNORECASE | re.DOTALL
)
_LIST = re.compile(r"^(?:please )?(?:list|show)(?: me)? (?:my|the|all) automations\W*$", re.IGNORECASE)
_REMOVE = re.compile(r"^(?:please )?(?:remove|delete) automation (?P<id>\S+?)[.!]?$", re.IGNORECASE)
_AUTOMATION_SAID = re.compile(
    r"\bwhat did (?:the|my) (?:last )?automations? (?:say|report|answer)", re.IGNORECASE
)
_SAID_LAST = re.compile(r"\bwhat did you (?:just )?(?:say|tell me)(?: last)?\b", re.IGNORECASE)
_REMEMBER_ALL = re.compile(r"\bwhat (?:do you|did i ask you to) (?:remember|know)\b", re.IGNORECASE)
_THINK = re.compile(r"^think for (?P<seconds>\d+(?:\.\d+)?) seconds?\W*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A tool call that a message asks for."""

    tool: str
    arguments: dict[str, Any]
    unparsed: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What is said to one message, before the suffix; with a wish the tool's output follows it."""

    text: str = ""
    wish: Wish | None = None
    delay: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Heard:
    """A message in its parts, and what it is heard with."""

    text: str
    is_task: bool
    earlier: tuple[Entry, ...]
    facts: Facts
    new_facts: list[str] = field(default_factory=list)
    tools: dict[str, dict[str, Any]]


def answer(call: ModelCall, number: int) -> Answer:
    """Answer the user entry at this place of the call's entries."""
    content = call.entries[number].content
    duty = offline_duties.answer(call.system_prompt, content)
    if duty is not None:
        return Answer(text=duty)
    earlier = call.entries[:number]
    updates, body = _split_updates(content)
    task = _task(body)
    delay, text = _split_delay(body if task is None else task)
    facts = facts_of(_split_updates(entry.content)[1] for entry in earlier if entry.role is Role.USER)
    heard = _Heard(
        text=text.strip(),
        is_task=task is not None,
        earlier=earlier,
        facts=facts,
        new_facts=[] if task is not None else facts.learn(text),
        tools={spec.name: spec.parameters for spec in call.tools},
    )
    said = _first(heard)
    if isinstance(said, Wish):
        return Answer(text=updates, wish=said, delay=delay)
    return Answer(text="\n".join(part for part in (updates, said) if part), delay=delay)


def _first(heard: _Heard) -> str | Wish:
    for rule in _RULES:
        said = rule(heard)
        if said is not None:
            return said
    raise AssertionError("the last rule answers everything")


def _special(heard: _Heard) -> str | None:
    plain = heard.text.lower().strip(" .!")
    if plain == "fail":
        raise ModelRefused("The offline model was told to fail.")
    return "" if plain == "say nothing" else None


def _use_tool(heard: _Heard) -> str | Wish | None:
    match = _USE_TOOL.match(heard.text)
    if not match:
        return None
    raw = (match["json"] or "").strip()
    arguments = parse_arguments(raw)
    if arguments is None:
        return _wish(heard, match["name"], {}, unparsed=raw)
    return _wish(heard, match["name"], arguments)


def _automations(heard: _Heard) -> str | Wish | None:
    if _LIST.match(heard.text):
        return _wish(heard, "cron", {"action": "list"})
    match = _REMOVE.match(heard.text)
    if not match:
        return None
    known = heard.tools.get("cron", {}).get("properties", {})
    names = [name for name in ("id", "job_id", "automation_id") if name in known]
    return _wish(heard, "cron", {"action": "remove", (names or ["id"])[0]: match["id"]})


def _schedule(heard: _Heard) -> str | Wish | None:
    read = None if heard.is_task else offline_schedule.read(heard.text)
    return _wish(heard, "cron", read) if isinstance(read, dict) else read


def _routine(heard: _Heard) -> str | Wish | None:
    read = None if heard.is_task else offline_routine.read(heard.text)
    return _wish(heard, "add_routine", read) if isinstance(read, dict) else read


def _quote(heard: _Heard) -> str | None:
    if _AUTOMATION_SAID.search(heard.text):
        return _automation_said(heard.earlier)
    if _SAID_LAST.search(heard.text):
        said = [entry.content for entry in heard.earlier if entry.role is Role.ASSISTANT and entry.content]
        return f'I said last: "{plain(said[-1])}"' if said else "I have said nothing yet."
    return None


def _note(heard: _Heard) -> str | None:
    if not heard.new_facts:
        return None
    noted = f"Noted: {'; '.join(heard.new_facts)}."
    answered = _recalled(heard, questions(heard.text))
    return f"{noted} {answered}" if answered else noted


def _recall(heard: _Heard) -> str | None:
    return _recalled(heard, heard.text)


def _recalled(heard: _Heard, text: str) -> str | None:
    if _REMEMBER_ALL.search(text):
        return _sentence(heard.facts.all()) or "I remember nothing yet."
    asked = heard.facts.asked(text, any_mention=heard.is_task)
    if asked:
        return _sentence(asked)
    unknown = unknown_key(text)
    return f"I do not know your {unknown}." if unknown else None


def _done(heard: _Heard) -> str | None:
    if not heard.is_task:
        return None
    known = heard.facts.all()
    remembered = f" I remember: {'; '.join(known)}." if known else ""
    return f"Done: {heard.text.rstrip('.')}.{remembered}"


def _echo(heard: _Heard) -> str:
    count = sum(1 for entry in heard.earlier if entry.role is not Role.TOOL and entry.content)
    text = heard.text if len(heard.text) <= _LONGEST_ECHO else heard.text[:_LONGEST_ECHO] + "…"
    messages = "1 message" if count == 1 else f"{count} messages"
    return f'You said: "{text}". There are {messages} before it.'


_RULES: Final[tuple[Callable[[_Heard], str | Wish | None], ...]] = (
    _special,
    _use_tool,
    _automations,
    _routine,
    _schedule,
    _quote,
    _note,
    _recall,
    _done,
    _echo,
)


def _wish(heard: _Heard, tool: str, arguments: dict[str, Any], unparsed: str | None = None) -> str | Wish:
    if tool not in heard.tools:
        return f"I have no tool {tool} here."
    return Wish(tool=tool, arguments=arguments, unparsed=unparsed)


def _automation_said(earlier: tuple[Entry, ...]) -> str:
    for number in range(len(earlier) - 1, -1, -1):
        entry = earlier[number]
        if entry.role is not Role.USER or not entry.content.startswith(_TRIGGER):
            continue
        after = [later.content for later in _same_turn(earlier[number + 1 :]) if later.content]
        if after:
            name = entry.content.removeprefix(_TRIGGER).split("\n", 1)[0]
            return f'The automation "{name}" said: "{plain(after[-1])}"'
    return "No automation has said anything yet."


def _same_turn(entries: tuple[Entry, ...]) -> list[Entry]:
    """Return the assistant entries before the next user entry."""
    said = []
    for entry in entries:
        if entry.role is Role.USER:
            break
        if entry.role is Role.ASSISTANT:
            said.append(entry)
    return said


def _split_updates(content: str) -> tuple[str, str]:
    """Return the updates as sentences to quote (or nothing) and the message without them."""
    match = _UPDATES.match(content)
    if not match:
        return "", content
    quoted = []
    for update in _UPDATE.finditer(match["updates"]):
        lines = [line.strip() for line in update["detail"].strip("\n").split("\n")]
        detail = " ".join(line for line in lines if line).removeprefix("Detail: ")
        quoted.append(f"Update [{update['type']}]: {update['summary']}" + (f" ({detail})" if detail else ""))
    more, rest = _split_updates(match["rest"])
    return "\n".join(filter(None, [*quoted, more])), rest


def _split_delay(text: str) -> tuple[float, str]:
    match = _THINK.match(text)
    if not match:
        return 0.0, text
    return min(float(match["seconds"]), _LONGEST_DELAY_SECONDS), text[match.end() :] or text


def _task(body: str) -> str | None:
    """Return the task of a due automation, or None: the message is a person's."""
    match = _TASK.search(body)
    if match:
        return match[1]
    return body.partition("\n\n")[2] if body.startswith(_TRIGGER) else None


def _sentence(facts: list[str]) -> str:
    text = "; ".join(facts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
