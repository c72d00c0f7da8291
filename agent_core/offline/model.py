"""A model that needs no key and no network. Its replies depend only on the conversation.

It understands these sentences (in any case; X, Y, N stand for words and numbers):

| a person or an automation's task says | the model |
|---|---|
| my favourite X is Y · my X is Y · remember that … | notes it |
| what is my X? · tell me my X · a question with a known X in it | says it, or that it does not know |
| what do you remember? | says all it knows |
| what did the automation say? | quotes the last automation's answer |
| what did you say last? | quotes its own last message |
| every 10 seconds … · every 5 minutes … · every hour … | adds it with the tool ``cron``, then reports |
| every day at 9 … · every weekday at 9:30 … · every monday at 8 pm in Asia/Tokyo … | the same |
| at 2027-01-01T09:00 … | the same; without an offset the time is in the agent's zone |
| in 10 minutes … | says that it has no clock and needs an absolute time |
| in the background: … · …, every hour: … | adds an isolated routine by ``add_routine``, then reports |
| with your next heartbeat: … · with a heartbeat every day at 9: … | the same, an inline one |
| list my automations · remove automation ID | calls ``cron``, then reports |
| use tool NAME with {json} · use tool NAME | calls that tool, then reports |
| think for N seconds (up to 600) | waits that long before it answers |
| say nothing | replies with nothing |
| fail | fails as a model that refuses |
| anything else | repeats it shortly and counts the messages before it |

A schedule may also be at the end ("check the repo every 5 minutes"). If a message begins with
"## Background Updates", each update is quoted in the answer. The task of a due automation (a block
named "task") may be one of the sentences above except a schedule; other tasks are answered with
"Done: …" and the known facts. A heartbeat answers HEARTBEAT_OK unless tasks are due. Asked whether
to tell a person of an answer, it says no if the answer contains "nothing new", "nothing to report",
"no news", "no changes", "all quiet" and the like, else yes. Asked to tidy MEMORY.md, it adds each
fact, decision and open matter that is missing. It knows the facts of the task state, too. It only
calls tools that are offered. Each reply that is not empty ends with " (offline model)".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace

from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.offline import planner
from agent_core.offline.answers import OfflineReply, WantedCall, answer
from agent_core.offline.duties import SUFFIX
from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult, Usage

_PIECES = 4
_CHARACTERS_PER_TOKEN = 4


class OfflineModel:
    """A Model that replies by the rules above."""

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        """Yield the text in a few pieces, then the reply. Raises ModelRefused when told to fail."""
        reply, delay = reply_with_delay(call)
        await asyncio.sleep(delay)
        for piece in pieces(reply.text):
            yield piece
            await asyncio.sleep(0)
        yield reply


def reply_with_delay(call: ModelCall) -> tuple[ModelReply, float]:
    """Return the reply and the seconds to wait before it.

    The turn begins after the last answer. Each of its messages asks for at most one tool call. The calls are made one
    by one in the order of the messages, then one reply answers all messages. What the server shows (``stays``) is none.
    """
    if planner.is_planner_call(call):
        reply = planner.planner_reply(call)
        return replace(reply, usage=_usage(call, reply.text)), 0.0
    begin = _turn_begin(call.entries)
    answers = [
        answer(call, number)
        for number in range(begin, len(call.entries))
        if call.entries[number].role is Role.USER and not call.entries[number].stays
    ]
    results = [entry.results for entry in call.entries[begin:] if entry.role is Role.TOOL]
    calls = [(said.call, said.delay) for said in answers if said.call is not None]
    if len(results) < len(calls):
        wanted, delay = calls[len(results)]
        return _calling(call, wanted, number=len(results)), delay
    text = _text(answers, results)
    longest = 0.0 if results else max((said.delay for said in answers), default=0.0)
    return ModelReply(text=text, usage=_usage(call, text)), longest


def pieces(text: str) -> list[str]:
    """Cut a text at spaces into a few pieces. Joined they are the text again."""
    words = re.findall(r"\S*\s*", text)
    size = max(1, -(-len(words) // _PIECES))
    cut = ["".join(words[start : start + size]) for start in range(0, len(words), size)]
    return [piece for piece in cut if piece]


def _turn_begin(entries: tuple[Entry, ...]) -> int:
    for number in range(len(entries) - 1, -1, -1):
        if entries[number].role is Role.ASSISTANT and not entries[number].calls:
            return number + 1
    return 0


def _calling(call: ModelCall, wanted: WantedCall, number: int) -> ModelReply:
    tool_call = ToolCall(
        id=f"offline-{len(call.entries)}-{number + 1}",
        name=wanted.tool,
        arguments=wanted.arguments,
        unparsed=wanted.unparsed,
    )
    return ModelReply(text="", calls=(tool_call,), usage=_usage(call, wanted.tool))


def _text(answers: list[OfflineReply], results: list[tuple[ToolResult, ...]]) -> str:
    left = list(results)
    parts: list[str] = []
    for said in answers:
        parts.append(said.text)
        if said.call is not None:
            parts += [_report(result) for result in left.pop(0)]
    text = "\n".join(part for part in parts if part)
    return f"{text}{SUFFIX}" if text else ""


def _report(result: ToolResult) -> str:
    if result.outcome is ToolOutcome.OK:
        return result.output
    return f"The tool {result.name} did not work ({result.outcome}): {result.output}"


def _usage(call: ModelCall, text: str) -> Usage:
    """Estimate the tokens. The same conversation always gives the same numbers."""
    characters = len(call.system_prompt) + sum(len(entry.content) for entry in call.entries)
    return Usage(
        input_tokens=-(-characters // _CHARACTERS_PER_TOKEN),
        output_tokens=-(-len(text) // _CHARACTERS_PER_TOKEN),
        requests=1,
    )
