"""The offline model's answer to one message, by the rules of the table in ``model.py``, in their order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelCall, parse_arguments
from agent_core.offline import duties, routine, schedule
from agent_core.offline.duties import without_suffix
from agent_core.offline.facts import Facts, facts_of, held_facts, questions_in, unknown_key
from agent_core.text import fence
from agent_core.types import Entry, Role

_TRIGGER = "Scheduled automation triggered: "
_LONGEST_ECHO = 200
_LONGEST_DELAY_SECONDS = 600.0
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
class WantedCall:
    """A tool call that a message asks for."""

    tool: str
    arguments: dict[str, Any]
    unparsed: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OfflineReply:
    """The answer to one message, without the suffix. With a call, the tool's output follows the text."""

    text: str = ""
    call: WantedCall | None = None
    delay: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Message:
    """A message with its context. `is_task`: it is the task of a due automation."""

    text: str
    is_task: bool
    earlier: tuple[Entry, ...]
    facts: Facts
    new_facts: list[str] = field(default_factory=list)
    tools: dict[str, dict[str, Any]]


def answer(call: ModelCall, number: int) -> OfflineReply:
    """Answer the user entry at this place of the call's entries."""
    content = call.entries[number].content
    duty = duties.answer_duty(call.system_prompt, content)
    if duty is not None:
        return OfflineReply(text=duty)
    earlier = call.entries[:number]
    updates, body = _split_updates(content)
    task = _task(content, body)
    delay, text = _split_delay(body if task is None else task)
    users = [entry.content for entry in earlier if entry.role is Role.USER]
    facts = facts_of(
        (_split_updates(text)[1] for text in users), held_facts("\n".join(map(_task_state, users)))
    )
    message = _Message(
        text=text.strip(),
        is_task=task is not None,
        earlier=earlier,
        facts=facts,
        new_facts=[] if task is not None else facts.learn(text),
        tools={spec.name: spec.parameters for spec in call.tools},
    )
    said = _first(message)
    if isinstance(said, WantedCall):
        return OfflineReply(text=updates, call=said, delay=delay)
    return OfflineReply(text="\n".join(part for part in (updates, said) if part), delay=delay)


def _first(message: _Message) -> str | WantedCall:
    for rule in _RULES:
        said = rule(message)
        if said is not None:
            return said
    raise AssertionError("the last rule answers everything")


def _special(message: _Message) -> str | None:
    plain = message.text.lower().strip(" .!")
    if plain == "fail":
        raise ModelRefused("The offline model was told to fail.")
    return "" if plain == "say nothing" else None


def _use_tool(message: _Message) -> str | WantedCall | None:
    match = _USE_TOOL.match(message.text)
    if not match:
        return None
    raw = (match["json"] or "").strip()
    arguments = parse_arguments(raw)
    if arguments is None:
        return _call_or_excuse(message, match["name"], {}, unparsed=raw)
    return _call_or_excuse(message, match["name"], arguments)


def _automations(message: _Message) -> str | WantedCall | None:
    if _LIST.match(message.text):
        return _call_or_excuse(message, "cron", {"action": "list"})
    match = _REMOVE.match(message.text)
    if not match:
        return None
    known = message.tools.get("cron", {}).get("properties", {})
    names = [name for name in ("id", "job_id", "automation_id") if name in known]
    return _call_or_excuse(message, "cron", {"action": "remove", (names or ["id"])[0]: match["id"]})


def _schedule(message: _Message) -> str | WantedCall | None:
    read = None if message.is_task else schedule.read_schedule(message.text)
    return _call_or_excuse(message, "cron", read) if isinstance(read, dict) else read


def _routine(message: _Message) -> str | WantedCall | None:
    read = None if message.is_task else routine.read_routine(message.text)
    return _call_or_excuse(message, "add_routine", read) if isinstance(read, dict) else read


def _quote(message: _Message) -> str | None:
    if _AUTOMATION_SAID.search(message.text):
        return _automation_said(message.earlier)
    if _SAID_LAST.search(message.text):
        said = [entry.content for entry in message.earlier if entry.role is Role.ASSISTANT and entry.content]
        return f'I said last: "{without_suffix(said[-1])}"' if said else "I have said nothing yet."
    return None


def _note(message: _Message) -> str | None:
    if not message.new_facts:
        return None
    noted = f"Noted: {'; '.join(message.new_facts)}."
    answered = _recalled(message, questions_in(message.text))
    return f"{noted} {answered}" if answered else noted


def _recall(message: _Message) -> str | None:
    return _recalled(message, message.text)


def _recalled(message: _Message, text: str) -> str | None:
    if _REMEMBER_ALL.search(text):
        return _sentence(message.facts.all()) or "I remember nothing yet."
    asked = message.facts.asked(text, any_mention=message.is_task)
    if asked:
        return _sentence(asked)
    unknown = unknown_key(text)
    return f"I do not know your {unknown}." if unknown else None


def _done(message: _Message) -> str | None:
    if not message.is_task:
        return None
    known = message.facts.all()
    remembered = f" I remember: {'; '.join(known)}." if known else ""
    return f"Done: {message.text.rstrip('.')}.{remembered}"


def _echo(message: _Message) -> str:
    count = sum(
        1 for entry in message.earlier if entry.role is not Role.TOOL and entry.content and not entry.stays
    )
    text = message.text if len(message.text) <= _LONGEST_ECHO else message.text[:_LONGEST_ECHO] + "…"
    messages = "1 message" if count == 1 else f"{count} messages"
    return f'You said: "{text}". There are {messages} before it.'


_RULES: Final[tuple[Callable[[_Message], str | WantedCall | None], ...]] = (
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


def _call_or_excuse(
    message: _Message, tool: str, arguments: dict[str, Any], unparsed: str | None = None
) -> str | WantedCall:
    if tool not in message.tools:
        return f"I have no tool {tool} here."
    return WantedCall(tool=tool, arguments=arguments, unparsed=unparsed)


def _automation_said(earlier: tuple[Entry, ...]) -> str:
    for number in range(len(earlier) - 1, -1, -1):
        entry = earlier[number]
        if entry.role is not Role.USER or not entry.content.startswith(_TRIGGER):
            continue
        same_turn = takewhile(lambda later: later.role is not Role.USER, earlier[number + 1 :])
        after = [later.content for later in same_turn if later.role is Role.ASSISTANT and later.content]
        if after:
            name = entry.content.removeprefix(_TRIGGER).split("\n", 1)[0]
            return f'The automation "{name}" said: "{without_suffix(after[-1])}"'
    return "No automation has said anything yet."


def _split_updates(content: str) -> tuple[str, str]:
    """Return the background updates as sentences, or an empty text, and the message without them."""
    posted = [block.text for block in fence.blocks(content) if block.name == "post"]
    content = posted[-1] if posted else fence.without_fences(content)
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


def _task_state(content: str) -> str:
    """The task state that the server shows before the history."""
    return "\n".join(block.text for block in fence.blocks(content) if block.name == "task state")


def _split_delay(text: str) -> tuple[float, str]:
    match = _THINK.match(text)
    if not match:
        return 0.0, text
    return min(float(match["seconds"]), _LONGEST_DELAY_SECONDS), text[match.end() :] or text


def _task(content: str, body: str) -> str | None:
    """Return the task of a due automation; None for a person's message."""
    tasks = [block.text for block in fence.blocks(content) if block.name == "task"]
    if tasks:
        return tasks[-1]
    return body.partition("\n\n")[2] if body.startswith(_TRIGGER) else None


def _sentence(facts: list[str]) -> str:
    text = "; ".join(facts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
