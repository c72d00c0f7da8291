"""Decides what a person's message means for the session's executions (rule 7.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent_core.execution import WAITING, Execution, Status
from agent_core.planner import live
from agent_core.text import phrases

_LONGEST_REQUEST = 2000  # characters in which a new request is looked for
_NAMED = re.compile(r"#([0-9a-z]{6,16})(?!\w)", re.IGNORECASE)


class Meaning(StrEnum):
    """The meanings of a person's message for the executions of its session."""

    CLEAR = "clear"
    CONFIRMATION = "confirmation"  # yes or no to a waiting question
    NEW_REQUEST = "new_request"  # a request about live state, which is no answer to the waiting question
    REPLY = "reply"
    RETRY = "retry"
    CLOSED = "closed"  # answers a question that no longer waits
    FRESH = "fresh"


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageDecision:
    """The meaning of a message, and the execution that it is for."""

    meaning: Meaning
    execution: Execution | None = None


def is_clear(text: str, *, waits: bool = False) -> bool:
    """Whether a message clears the conversation. While a question waits (`waits`), only the command does."""
    return phrases.is_exactly("command", text) or (not waits and phrases.is_exactly("clear", text))


def plain_answer(text: str) -> tuple[str, str]:
    """Return `yes`, `no` or "", and the id that the message names, in lower case.

    The message must say nothing else, as in "yes #k3j4h5g6". One that names two ids is no plain answer.
    """
    names = _NAMED.findall(text)
    if len(names) > 1:
        return "", ""
    said = _NAMED.sub(" ", text)
    answer = next((kind for kind in ("yes", "no") if phrases.is_exactly(kind, said)), "")
    return answer, names[0].lower() if names else ""


def decide_message(
    text: str, executions: Sequence[Execution], *, live_request: bool, named: str = ""
) -> MessageDecision:
    """Decide what a person's message means. Automations and jobs always start a new execution instead.

    `executions` of the session: first those that waited when the message was sent, the last one to ask first, then one
    that may be retried. `live_request`: the message is about live state. `named`: the id of the execution that the
    person answers, if given; an id in the text counts too. A message to a named question is always an answer to it, and
    never to another question.
    """
    open_ = [each for each in executions if each.status in WAITING]
    if not named and is_clear(text, waits=bool(open_)):
        return MessageDecision(meaning=Meaning.CLEAR)
    if named and all(each.id != named for each in open_):
        return MessageDecision(meaning=Meaning.CLOSED)
    answer, in_text = plain_answer(text)
    if answer and in_text and not named and all(in_text not in _ids(each) for each in open_):
        return MessageDecision(meaning=Meaning.CLOSED)
    ids = {named.lower()} if named else {found.lower() for found in _NAMED.findall(text)}
    waiting = next((each for each in open_ if ids & _ids(each)), open_[0] if open_ else None)
    if waiting is not None:
        if answer:
            return MessageDecision(meaning=Meaning.CONFIRMATION, execution=waiting)
        if live_request and not ids & _ids(waiting) and _is_new(text, waiting):
            return MessageDecision(meaning=Meaning.NEW_REQUEST)
        return MessageDecision(meaning=Meaning.REPLY, execution=waiting)
    last = executions[0] if executions else None
    if (
        last is not None
        and last.status in (Status.FAILED, Status.COMPLETED)
        and phrases.starts_with("retry", text)
    ):
        return MessageDecision(meaning=Meaning.RETRY, execution=last)
    return MessageDecision(meaning=Meaning.FRESH)


def _ids(execution: Execution) -> set[str]:
    """The ids by which a person may name the question: the execution's and the question's own."""
    return {each.lower() for each in (execution.id, execution.question_id) if each}


def _is_new(text: str, asked: Execution) -> bool:
    """Whether the message does not answer the question but asks for live state, or for a change of it.

    One sentence that does so is enough. An answer begins with yes or no.
    """
    if phrases.starts_with_answer(text):
        return False
    return any(_is_request(sentence, asked) for sentence in phrases.sentences(text[:_LONGEST_REQUEST]))


def _is_request(sentence: str, asked: Execution) -> bool:
    """Whether a sentence asks for live state, or for a change of it.

    One that shares words with the question answers it. A request to see things shares their names with a question about
    them. "Reminders?" is such a request, unless the question offers them. To "Title?" a change is the text asked for.
    """
    if not live.kinds_mentioned(sentence):
        return False
    parts, words, question = phrases.parts(sentence), live.all_words(), asked.question
    if any(map(phrases.asks, parts)):
        return not phrases.shares_words(sentence, question, words)
    if phrases.only_asks_for(sentence, words):
        return not live.kinds_mentioned(question)
    orders = [part for part in parts if phrases.orders(part) and live.kinds_mentioned(part)]
    takes_any_text = asked.status == Status.WAITING_USER and phrases.is_label(question)
    if not orders or takes_any_text:
        return False
    # "remind me at nine" answers "When shall the reminder come?"
    is_answer = all(map(phrases.is_bare_reminder, orders)) and bool(live.kinds_mentioned(question))
    return not (is_answer or phrases.shares_words(sentence, question))
