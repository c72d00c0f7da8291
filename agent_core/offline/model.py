"""A model that needs no key and no network. Its replies depend only on the conversation.

It understands these sentences (in any case; X, Y, N stand for words and numbers):

| a person or an automation's task says | the model |
|---|---|
| my favourite X is Y · my X is Y · remember that … | notes it |
| what is my X? · tell me my X · a question with a known X in it | says it, or that it does not know |
| what do you remember? | says all it knows |
| what did the automation say? | quotes the last automation's answer |
| what did you say last? | quotes its own last message |
| every 10 seconds … · every 5 minutes … · every two weeks … | adds it with the tool ``cron``, then reports |
| every day at 9 … · every weekday at 8:30 … · every Monday and Friday at 8 pm in Asia/Tokyo … | the same |
| on the last Friday of every month … · on the 1st of every month … | the same |
| in 10 minutes … · tomorrow at nine … · on Friday at 16:00 … · at 2027-01-01T09:00 … | the same, once |
| one of these times with "remind me to …", once | asks ``schedule_private_message``, where that is offered |
| help · hello · what can you do? | says which sentences it understands |
| list my automations | calls ``cron``, then reports |
| use tool NAME with {json} · use tool NAME | calls that tool, then reports |
| think for N seconds (up to 600) | waits that long before it answers |
| say nothing | replies with nothing |
| fail | fails as a model that refuses |
| anything else | repeats it shortly and counts the messages before it |

The time may stand anywhere ("remind me every weekday at 8:30 to stand up"). It says what it leaves out of a repeated
time ("I left out: except holidays.") and plans nothing where a single one is not clear. If a message begins with
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
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Final

from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.offline.duties import answer_duty, is_planner_call, planner_reply
from agent_core.offline.schedules import CLOCK, MESSAGE
from agent_core.offline.sentences import SUFFIX, OfflineReply, answer
from agent_core.types import Role, ToolOutcome, ToolResult, Usage

_CHARACTERS_PER_TOKEN: Final = 4


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
    """Return the reply and the seconds to wait before it."""
    reply, delay = (planner_reply(call), 0.0) if is_planner_call(call) else _reply(call)
    characters = len(call.system_prompt) + sum(len(entry.content) for entry in call.entries)
    said = len(reply.text or "".join(each.name for each in reply.calls))
    usage = Usage(
        input_tokens=-(-characters // _CHARACTERS_PER_TOKEN),
        output_tokens=-(-said // _CHARACTERS_PER_TOKEN),
        requests=1,
    )
    return replace(reply, usage=usage), delay


def _reply(call: ModelCall) -> tuple[ModelReply, float]:
    """The reply to a turn, which begins after the last answer.

    Each of its messages asks for at most one tool call, and all together once for the time. The calls are made one by
    one in the order of the messages, then one reply answers all messages. What the server shows (``stays``) is none.
    """
    entries = call.entries
    ends = [n for n, entry in enumerate(entries, 1) if entry.role is Role.ASSISTANT and not entry.calls]
    begin = ends[-1] if ends else 0
    results = [entry.results for entry in entries[begin:] if entry.role is Role.TOOL]
    answers = _answers(call, begin, None)
    if any(said.call is CLOCK for said in answers):
        if not results:
            return ModelReply(text="", calls=(replace(CLOCK, id=f"offline-{len(entries)}-0"),)), 0.0
        [clock] = results.pop(0)
        if clock.outcome is not ToolOutcome.OK:
            return ModelReply(text=f"{_report(clock)}{SUFFIX}"), 0.0
        answers = _answers(call, begin, datetime.fromisoformat(json.loads(clock.output)["time"]))
    wanted = [(said.call, said.delay) for said in answers if said.call is not None]
    if len(results) < len(wanted):
        named, delay = wanted[len(results)]
        made = replace(named, id=f"offline-{len(entries)}-{len(results) + 1}")
        return ModelReply(text="", calls=(made,)), delay
    parts = []
    for said in answers:
        parts += [said.text, *(map(_report, results.pop(0)) if said.call is not None else ()), said.note]
    text = "\n".join(filter(None, parts))
    longest = 0.0 if wanted else max((said.delay for said in answers), default=0.0)
    return ModelReply(text=f"{text}{SUFFIX}" if text else ""), longest


def _answers(call: ModelCall, begin: int, now: datetime | None) -> list[OfflineReply]:
    answers = []
    for number, entry in enumerate(call.entries[begin:], begin):
        if entry.role is Role.USER and not entry.stays:
            duty = answer_duty(call.system_prompt, entry.content)
            answers.append(answer(call, number, now) if duty is None else OfflineReply(text=duty))
    return answers


def _report(result: ToolResult) -> str:
    if result.outcome is ToolOutcome.OK and result.name == MESSAGE:
        sent = json.loads(result.output)
        return f"Scheduled “{sent['message_text']}” for {datetime.fromisoformat(sent['send_at']):%A, %Y-%m-%d %H:%M}."
    if result.outcome is ToolOutcome.OK:
        return result.output
    return f"The tool {result.name} did not work ({result.outcome}): {result.output}"


def pieces(text: str) -> list[str]:
    """Cut a text at spaces into a few pieces. Joined they are the text again."""
    words = re.findall(r"\S*\s*", text)
    size = max(1, -(-len(words) // 4))
    cut = ["".join(words[start : start + size]) for start in range(0, len(words), size)]
    return [piece for piece in cut if piece]
