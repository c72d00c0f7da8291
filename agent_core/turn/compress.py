"""Compression: the model summarizes older messages as task state, so that requests stay short enough.

The model is shown the messages of people, automations and the agent with their dates, but no tool output. The source
of each fact is taken from the message that the model names for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from agent_core import prompts
from agent_core.exceptions import AgentCoreError, CapReached, ModelError, Stale
from agent_core.llm import tokens
from agent_core.memory import task_state
from agent_core.memory.lasting_facts import FactFilter
from agent_core.memory.relative_days import named_days, with_dates
from agent_core.memory.task_state import LONGEST_ITEM, CompressionReply, SaidMessage, Speaker, TaskStateData
from agent_core.text import fence, phrases
from agent_core.turn import exchange, request_size
from agent_core.turn.control import TurnControl
from agent_core.turn.endings import log_failed_call
from agent_core.turn.exchange import Watch
from agent_core.types import TurnRequest

PROMPT: Final = "memory.compress"
LONGEST_SECONDS: Final = 30.0  # for the model call with its retries; the turn's commit waits for it
LONGEST_SHOWN: Final = 60_000  # characters of all messages shown to the model
_LONGEST_MESSAGE = 2000  # characters of one message
_CUT = " [...] "

log = logging.getLogger(__name__)


class Unasked(AgentCoreError):
    """No model was reached, so the next try costs no more than this one."""


def compress(
    older: Sequence[SaidMessage],
    held: TaskStateData,
    *,
    lasting: FactFilter,
    request: TurnRequest,
    control: TurnControl,
) -> TaskStateData | None:
    """Ask the turn's model to summarize `older`, as many messages as fit, and return the new task state.

    None: it failed, and nothing changes. `lasting` has the words of live state. Raises Stale and Unasked. A signal to
    stop or cancel also returns None at once, because the turn already has its answer.
    """
    watch = Watch(control, min(LONGEST_SECONDS, request.policy.timeout_seconds))
    variables = {"most": task_state.MOST_ITEMS, "data_rule": prompts.data_rule()}
    system_prompt = prompts.render_prompt(PROMPT, variables).text
    message = "\n".join(
        [
            fence.fenced("what was held so far", held.as_text() or "(nothing)"),
            fence.fenced("older messages", _shown(older)),
        ]
    )
    try:
        reply = exchange.ask_once(request, watch, system_prompt=system_prompt, message=message)
    except Stale:
        raise
    except Exception as error:  # after any error the conversation stays as it is
        why = error.reason if isinstance(error, ModelError) else ""
        log_failed_call(log, "not_compressed", error, {"why": why or type(error).__name__})
        if isinstance(error, CapReached) or (isinstance(error, ModelError) and error.is_free):
            raise Unasked from error
        return None
    answer = task_state.read_reply(reply.text)
    if answer is None:
        log.warning("not_compressed", extra={"why": "its answer cannot be read"})
        return None
    return _durable(answer, held, older, _knowing(lasting, older, request))


def _knowing(lasting: FactFilter, older: Sequence[SaidMessage], request: TurnRequest) -> FactFilter:
    """The filter with the turn's tools, and what people said."""
    by_people = [said.text for said in older if said.who is Speaker.PERSON]
    return replace(
        lasting,
        tools=[tool.name for tool in request.tools],
        figures=task_state.figures_in(by_people),
        said=[words for text in by_people for words in phrases.stated_words(text)],
    )


def fitting(older: Sequence[SaidMessage]) -> int:
    """Return how many messages, from the first on, can be shown at once. The others must stay in the window."""
    left, left_tokens = LONGEST_SHOWN, request_size.room(0) or LONGEST_SHOWN
    for number, said in enumerate(older):
        line = _line(number, said)
        left -= len(line) + 1
        left_tokens -= tokens.of_text(line)
        if min(left, left_tokens) < 0:
            return number
    return len(older)


def _shown(older: Sequence[SaidMessage]) -> str:
    return "\n".join(_line(number, said) for number, said in enumerate(older, 1)) or "(nothing)"


def _line(number: int, said: SaidMessage) -> str:
    """The message in one line. The middle of a long one is cut out."""
    return f"{number} [{said.at.isoformat(' ', 'minutes')[:16]}] {said.who}: {_cut(said.text)}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _LONGEST_MESSAGE:
        return line
    tail = (_LONGEST_MESSAGE - len(_CUT)) // 3
    return line[: _LONGEST_MESSAGE - len(_CUT) - tail] + _CUT + line[-tail:]


def _durable(
    answer: CompressionReply, before: TaskStateData, older: Sequence[SaidMessage], lasting: FactFilter
) -> TaskStateData:
    """The durable parts of the answer, with dates in place of relative days. Each new fact gets its source mark."""
    days = [named_days(said.text[:_LONGEST_MESSAGE], said.at.date()) for said in older]
    known = {_key(fact): fact for fact in before.important_facts}
    facts, marks, stated = [], {}, set()
    for fact in answer.held.important_facts:
        if _key(fact) in known:
            facts.append(known[_key(fact)])
            continue
        number = answer.sources.get(fact, 0)
        who, on = _source(number, older)
        text = with_dates(task_state.without_source(fact), on, () if 1 <= number <= len(older) else days)
        facts.append(text)
        marks[text] = task_state.with_source(text, who, on, longest=LONGEST_ITEM)
        if who is Speaker.PERSON:
            stated.add(text)

    def dated(text: str, *held: str) -> str:
        return text if text in held else with_dates(text, _source(0, older)[1], days)[:LONGEST_ITEM]

    given = TaskStateData(
        current_goal=dated(answer.held.current_goal, before.current_goal),
        active_flow=dated(answer.held.active_flow, before.active_flow),
        open_loops=tuple(dated(text, *before.open_loops) for text in answer.held.open_loops),
        important_facts=tuple(facts),
        last_decision=dated(answer.held.last_decision, before.last_decision),
    )
    held = lasting.durable(given, stated=stated, before=before)
    return replace(held, important_facts=tuple(marks.get(fact, fact) for fact in held.important_facts))


def _key(fact: str) -> str:
    return " ".join(task_state.without_source(fact).casefold().split()).strip(" .")


def _source(number: int, older: Sequence[SaidMessage]) -> tuple[Speaker, date]:
    """Speaker and date of a message. A fact without a message counts as the agent's own conclusion."""
    if 1 <= number <= len(older):
        said = older[number - 1]
        return said.who, said.at.date()
    return Speaker.AGENT, older[-1].at.date() if older else date.today()  # noqa: DTZ011 - there are always messages
