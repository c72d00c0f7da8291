"""Facts that the offline model learns from messages such as "my X is Y" and "remember that …"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from agent_core.memory.task_state import without_source

_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]*")
_VALUE = r"(?P<value>.+?)(?=,? and my |, (?:what|who|when|where|please|remember|tell|so) |$)"
_KEY = r"(?P<key>(?:[\w'-]+ ){0,4}?[\w'-]+)"
_MINE = re.compile(rf"\bmy {_KEY} (?P<verb>is|are) {_VALUE}", re.IGNORECASE)
_REMEMBERED = re.compile(r"^(?:please )?remember (?:that |this: ?)?(?P<note>.+)$", re.IGNORECASE)
_OTHERS = re.compile(rf"^(?:the |our )?{_KEY} (?P<verb>is|are) {_VALUE}", re.IGNORECASE)
_FACT = "Fact: "
_HELD = re.compile(rf"^(?:your |the ){_KEY} (?:is|are) ", re.IGNORECASE)
_ASKING = re.compile(
    r"^(?:and |please |so )?(?:what|which|who|when|where|how|is|are|do|does|can|tell me)\b", re.IGNORECASE
)
_CLAUSE = re.compile(r", (?=(?:and |so )?(?:what|which|who|when|where|how|tell me|please)\b)", re.IGNORECASE)
_ASKS_MINE = re.compile(
    r"\b(?:what|which|who|when|where|how|tell me|say|name|know|remind me of)\b.{0,200}?"
    r"\bmy (?P<key>(?:[\w'-]+ ){0,4}?[\w'-]+)(?= is\b| are\b|[?.!,]|$)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Facts:
    """Facts by key, worded for the answer ("your X is Y"). Notes have no key."""

    by_key: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        """Return every fact, the oldest key first, then the notes."""
        return [*self.by_key.values(), *self.notes]

    def learn(self, text: str) -> list[str]:
        """Learn the facts in a person's text; return the new ones without a full stop."""
        new: list[str] = []
        for sentence in _sentences(text):
            new += [] if _is_question(sentence) else self._learn_sentence(sentence)
        return new

    def take_over(self, held: Iterable[str]) -> None:
        """Take over facts in the words of the answer, as a task state holds them."""
        for fact in held:
            match = _HELD.match(fact)
            if match:
                self.by_key.pop(normal(match["key"]), None)
                self.by_key[normal(match["key"])] = fact
            elif fact not in self.notes:
                self.notes.append(fact)

    def asked(self, text: str, *, any_mention: bool = False) -> list[str]:
        """Return the known facts that a text asks for, those with the longest keys first.

        A text asks for X by a question with X, or by a mention of "my X"; with ``any_mention`` by X alone.
        """
        words = f" {normal(text)} "
        question = any_mention or "?" in text or bool(_ASKING.search(text)) or bool(_ASKS_MINE.search(text))
        found: list[str] = []
        for key in sorted(self.by_key, key=len, reverse=True):
            if f" {key} " in words if question else f" my {key} " in words:
                found.append(self.by_key[key])
                words = words.replace(f" {key} ", " ")
        return found

    def _learn_sentence(self, sentence: str) -> list[str]:
        plain = sentence.rstrip(".!? ")
        found = [self._keep(match, "your ") for match in _MINE.finditer(plain)]
        remembered = _REMEMBERED.search(plain)
        if found or not remembered:
            return found
        note = remembered["note"]
        other = _OTHERS.search(note)
        if other:
            return [self._keep(other, "the ")]
        self.notes.append(note)
        return [note]

    def _keep(self, match: re.Match[str], owner: str) -> str:
        fact = f"{owner}{match['key'].lower()} {match['verb'].lower()} {match['value'].strip()}"
        self.by_key.pop(normal(match["key"]), None)
        self.by_key[normal(match["key"])] = fact
        return fact


def facts_of(texts: Iterable[str], held: Iterable[str] = ()) -> Facts:
    """Return the facts in these texts, oldest first, after those that a task state holds. A later one replaces an
    earlier one.
    """
    facts = Facts()
    facts.take_over(held)
    for text in texts:
        facts.learn(text)
    return facts


def held_facts(task_state: str) -> list[str]:
    """Return the facts in the text of a task state, without the marks of their sources."""
    return [
        without_source(line.removeprefix(_FACT)) for line in task_state.splitlines() if line.startswith(_FACT)
    ]


def questions_in(text: str) -> str:
    """Return only the questions of a text."""
    return " ".join(sentence for sentence in _sentences(text) if _is_question(sentence))


def unknown_key(text: str) -> str | None:
    """Return the X of a question for "my X", or None."""
    match = _ASKS_MINE.search(text)
    return match["key"].lower() if match else None


def normal(text: str) -> str:
    """Return the words of a text in lower case and one spelling, to compare keys."""
    words = " ".join(re.findall(r"[\w'-]+", text.lower()))
    return words.replace("favorite", "favourite").replace("color", "colour")


def _sentences(text: str) -> list[str]:
    split = _CLAUSE.sub("\n", text)
    return [sentence.strip() for sentence in _SENTENCE.findall(split) if sentence.strip()]


def _is_question(sentence: str) -> bool:
    return sentence.endswith("?") or bool(_ASKING.search(sentence))
