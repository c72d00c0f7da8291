"""The offline model's answer to one message, by the rules of the table in ``model.py``, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelCall, read_call
from agent_core.memory.task_state import without_source
from agent_core.offline import schedules
from agent_core.text import fence
from agent_core.types import Entry, Role, ToolCall

SUFFIX: Final = " (offline model)"
Facts = dict[str, str]  # by key, worded for the answer: "your X is Y"

HELP: Final = """\
I am the built-in model, which follows fixed rules. I understand sentences such as these:

- `My favourite colour is blue`
- `What is my favourite colour?`
- `In 10 minutes, remind me to call Ann`
- `Tomorrow at nine, remind me to water the plants`
- `Every weekday at 8:30, remind me to stand up`
- `On the last Friday of every month at 16:00, ask me for the report`
- `List my automations`

For anything else, give the agent a real model."""
_ASKS_FOR_HELP = re.compile(
    r"(?i)^(?:/?help|what (?:can|do) you (?:do|understand)(?: for me| here)?|what can i (?:do|say|ask)(?: here)?"
    r"|how does this work|how do you work)\W*$|^\?+$"
)
_GREETS = re.compile(r"(?i)^(?:hi|hello|hey|good (?:morning|afternoon|evening|day))(?: there)?\W*$")

_TRIGGER = "Scheduled automation triggered: "
_UPDATES = re.compile(
    r"(?s)## (?:Background Updates|Missing Tools)\n(?P<updates>(?:(?:- |  ).*\n)+)\n(?P<rest>.*)"
)
_UPDATE = re.compile(r"(?m)^- \[(?P<type>[^\]]*)\] (?P<summary>.*)(?P<detail>(?:\n  .*)*)")
_USE_TOOL = re.compile(r"(?is)^(?:please )?use tool (?P<name>[\w-]+)(?: with (?P<json>.+))?$")
_LIST = re.compile(r"(?i)^(?:please )?(?:list|show)(?: me)? (?:my|the|all) automations\W*$")
_AUTOMATION_SAID = re.compile(r"(?i)\bwhat did (?:the|my) (?:last )?automations? (?:say|report|answer)")
_SAID_LAST = re.compile(r"(?i)\bwhat did you (?:just )?(?:say|tell me)(?: last)?\b")
_REMEMBER_ALL = re.compile(r"(?i)\bwhat (?:do you|did i ask you to) (?:remember|know)\b")
_THINK = re.compile(r"(?i)^think for (?P<seconds>\d+(?:\.\d+)?) seconds?\W*")

_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]*")
_IS = (
    r"(?P<key>(?:[\w'-]+ ){0,4}?[\w'-]+) (?P<verb>is|are) "
    r"(?P<value>.+?)(?=,? and my |, (?:what|who|when|where|please|remember|tell|so) |$)"
)
_MINE = re.compile(rf"(?i)\bmy {_IS}")
_REMEMBERED = re.compile(r"(?i)^(?:please )?remember (?:that |this: ?)?(?P<note>.+)$")
_OTHERS = re.compile(rf"(?i)^(?:the |our )?{_IS}")
_WORDED = re.compile(rf"(?i)^(?:your |the ){_IS}")
_ASKING = re.compile(
    r"(?i)^(?:and |please |so )?(?:what|which|who|when|where|how|is|are|do|does|can|tell me)\b"
)
_CLAUSE = re.compile(r"(?i), (?=(?:and |so )?(?:what|which|who|when|where|how|tell me|please)\b)")
_ASKS_MINE = re.compile(
    r"(?i)\b(?:what|which|who|when|where|how|tell me|say|name|know|remind me of)\b.{0,200}?"
    r"\bmy (?P<key>(?:[\w'-]+ ){0,4}?[\w'-]+)(?= is\b| are\b|[?.!,]|$)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OfflineReply:
    """The answer to one message, without the suffix. With a call, the tool's output follows the text, then `note`."""

    text: str = ""
    call: ToolCall | None = None
    note: str = ""
    delay: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Message:
    """A message with its context. `is_task`: it is the task of a due automation."""

    text: str
    is_task: bool
    earlier: tuple[Entry, ...]
    facts: Facts
    new_facts: list[str]
    now: datetime | None
    offered: frozenset[str]


def answer(call: ModelCall, number: int, now: datetime | None = None) -> OfflineReply:
    """Answer the user entry at this place of the call's entries. `now`: what the clock said when it was asked."""
    content, earlier = call.entries[number].content, call.entries[:number]
    updates, body = _split_updates(content)
    tasks = [block.text for block in fence.blocks(content) if block.name == "task"]
    is_task = bool(tasks) or body.startswith(_TRIGGER)
    text = tasks[-1] if tasks else body.partition("\n\n")[2] if is_task else body
    delay = 0.0
    if match := _THINK.match(text):
        delay = min(float(match["seconds"]), 600.0)
        text = text[match.end() :] or text
    users = [entry.content for entry in earlier if entry.role is Role.USER]
    held = [block.text for each in users for block in fence.blocks(each) if block.name == "task state"]
    facts = facts_of((_split_updates(each)[1] for each in users), held_facts("\n".join(held)))
    new_facts = [] if is_task else _learn(facts, text)
    message = _Message(
        text=text.strip(),
        is_task=is_task,
        earlier=earlier,
        facts=facts,
        new_facts=new_facts,
        now=now,
        offered=frozenset(spec.name for spec in call.tools),
    )
    said = next(said for rule in _RULES if (said := rule(message)) is not None)
    if isinstance(said, str):
        said = OfflineReply(text=said)
    elif said.call is not None and said.call.name not in message.offered:
        said = OfflineReply(text=f"I have no tool {said.call.name} here.")
    return replace(said, text="\n".join(filter(None, (updates, said.text))), delay=delay)


def _special(message: _Message) -> str | None:
    plain = message.text.lower().strip(" .!")
    if plain == "fail":
        raise ModelRefused("The offline model was told to fail.")
    return "" if plain == "say nothing" else None


def _about_itself(message: _Message) -> str | None:
    if message.is_task:
        return None
    if _GREETS.match(message.text):
        return f"Hello. {HELP}"
    return HELP if _ASKS_FOR_HELP.match(message.text) else None


def _tool(message: _Message) -> OfflineReply | None:
    if match := _USE_TOOL.match(message.text):
        return OfflineReply(call=read_call("", match["name"], (match["json"] or "").strip()))
    if _LIST.match(message.text):
        return OfflineReply(call=ToolCall(id="", name="cron", arguments={"action": "list"}))
    if message.is_task:
        return None
    call, words = schedules.plan(message.text, message.now, message.offered)
    if call is None:
        return OfflineReply(text=words) if words else None
    return OfflineReply(call=call, note=words)


def _quote(message: _Message) -> str | None:
    if _AUTOMATION_SAID.search(message.text):
        return _automation_said(message.earlier)
    if _SAID_LAST.search(message.text):
        said = [entry.content for entry in message.earlier if entry.role is Role.ASSISTANT and entry.content]
        return f'I said last: "{said[-1].removesuffix(SUFFIX)}"' if said else "I have said nothing yet."
    return None


def _automation_said(earlier: tuple[Entry, ...]) -> str:
    name, said = "", "No automation has said anything yet."
    for entry in earlier:
        if entry.role is Role.USER:
            begin, _, rest = entry.content.partition(_TRIGGER)
            name = rest.partition("\n")[0] if not begin else ""
        elif entry.role is Role.ASSISTANT and entry.content and name:
            said = f'The automation "{name}" said: "{entry.content.removesuffix(SUFFIX)}"'
    return said


def _fact(message: _Message) -> str | None:
    if not message.new_facts:
        return _recalled(message, message.text)
    questions = " ".join(each for each in _sentences(message.text) if _is_question(each))
    return " ".join(filter(None, (f"Noted: {'; '.join(message.new_facts)}.", _recalled(message, questions))))


def _recalled(message: _Message, text: str) -> str | None:
    if _REMEMBER_ALL.search(text):
        return _sentence(message.facts.values()) or "I remember nothing yet."
    asked = _asked(message.facts, text, any_mention=message.is_task)
    unknown = _ASKS_MINE.search(text)
    return _sentence(asked) or (f"I do not know your {unknown['key'].lower()}." if unknown else None)


def _rest(message: _Message) -> str:
    if message.is_task:
        if reminder := schedules.REMINDS.match(message.text):
            return f"Reminder: {reminder['what']}"
        known = "; ".join(message.facts.values())
        return f"Done: {message.text.rstrip('.')}.{f' I remember: {known}.' if known else ''}"
    if schedules.sounds_like_one(message.text):
        return schedules.UNCLEAR
    count = sum(1 for each in message.earlier if each.content and not each.stays)
    text = message.text if len(message.text) <= 200 else message.text[:200] + "…"
    before = "1 message" if count == 1 else f"{count} messages"
    return f'You said: "{text}". There are {before} before it. Write "help" to see what I understand.'


_RULES: Final = (_special, _about_itself, _tool, _quote, _fact, _rest)


def _split_updates(content: str) -> tuple[str, str]:
    """Return the background updates as sentences, or an empty text, and the message without them."""
    posted = [block.text for block in fence.blocks(content) if block.name == "post"]
    content = posted[-1] if posted else fence.without_fences(content, dropped=fence.FILE).strip()
    match = _UPDATES.match(content)
    if not match:
        return "", content
    quoted = []
    for update in _UPDATE.finditer(match["updates"]):
        detail = " ".join(update["detail"].split()).removeprefix("Detail: ")
        quoted.append(f"Update [{update['type']}]: {update['summary']}" + (f" ({detail})" if detail else ""))
    more, rest = _split_updates(match["rest"])
    return "\n".join(filter(None, [*quoted, more])), rest


def facts_of(texts: Iterable[str], held: Iterable[str] = ()) -> Facts:
    """Return the facts in texts of people, oldest first, after those that a task state holds. Later ones replace."""
    facts: Facts = {}
    for fact in held:
        _keep(facts, fact)
    for text in texts:
        _learn(facts, text)
    return facts


def held_facts(task_state: str) -> list[str]:
    """Return the facts in the text of a task state, without the marks of their sources."""
    lines = (line for line in task_state.splitlines() if line.startswith("Fact: "))
    return [without_source(line.removeprefix("Fact: ")) for line in lines]


def _learn(facts: Facts, text: str) -> list[str]:
    """Add the facts in a person's text; return them without a full stop."""
    new: list[str] = []
    for sentence in _sentences(text):
        if not _is_question(sentence):
            plain = sentence.rstrip(".!? ")
            found = [_worded("your", match) for match in _MINE.finditer(plain)]
            if not found and (remembered := _REMEMBERED.search(plain)):
                other = _OTHERS.search(remembered["note"])
                found = [_worded("the", other) if other else remembered["note"]]
            new += found
    for fact in new:
        _keep(facts, fact)
    return new


def _worded(owner: str, match: re.Match[str]) -> str:
    return f"{owner} {match['key'].lower()} {match['verb'].lower()} {match['value'].strip()}"


def _keep(facts: Facts, fact: str) -> None:
    match = _WORDED.match(fact)
    key = _normal(match["key"]) if match else f"({fact})"  # a note, which no question finds
    facts.pop(key, None)
    facts[key] = fact


def _asked(facts: Facts, text: str, *, any_mention: bool) -> list[str]:
    """The known facts that a text asks for: by a question with X or a mention of "my X"; `any_mention`: by X alone."""
    words = f" {_normal(text)} "
    is_question = any_mention or "?" in text or bool(_ASKING.search(text)) or bool(_ASKS_MINE.search(text))
    found: list[str] = []
    for key in sorted(facts, key=len, reverse=True):
        if f" {key} " in words if is_question else f" my {key} " in words:
            found.append(facts[key])
            words = words.replace(f" {key} ", " ")
    return found


def _normal(text: str) -> str:
    """The words of a text in lower case and one spelling, to compare keys."""
    words = " ".join(re.findall(r"[\w'-]+", text.lower()))
    return words.replace("favorite", "favourite").replace("color", "colour")


def _sentences(text: str) -> list[str]:
    return [each.strip() for each in _SENTENCE.findall(_CLAUSE.sub("\n", text)) if each.strip()]


def _is_question(sentence: str) -> bool:
    return sentence.endswith("?") or bool(_ASKING.search(sentence))


def _sentence(facts: Iterable[str]) -> str:
    text = "; ".join(facts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
