"""Rebuilds a turn from its journal (rule 1.9), and closes its open tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent_core.tool_spec import ToolSpec
from agent_core.tools.schema import BAD_ARGUMENTS, refusal
from agent_core.turn.tool_calls import intent
from agent_core.types import (
    NOTES,
    Ended,
    Entry,
    Role,
    Step,
    StepKind,
    ToolCall,
    ToolOutcome,
    ToolResult,
    Usage,
)

NOT_WHOLE = "Not run: {note} Make the call again, with shorter arguments if they were cut."
INTERRUPTED = "Interrupted: it is unknown whether this call took effect. Check before you repeat it."
NOT_RUN = "Not run: the turn ended first."


@dataclass(slots=True)
class Transcript:
    """The entries of a turn so far. Calls of the last response may still be open.

    ``intended`` has the ids of the last response's calls whose intent is journaled, ``results`` their results by call
    id. Both are of the last response only, because a later one may use the same ids.
    """

    entries: list[Entry] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    calls: tuple[ToolCall, ...] = ()
    intended: set[str] = field(default_factory=set)
    results: dict[str, ToolResult] = field(default_factory=dict)
    responses: int = 0

    def add_response(self, entry: Entry, usage: Usage) -> None:
        """Add a response, whose calls are now open."""
        self.entries.append(entry)
        self.usage += usage
        self.calls = entry.calls
        self.intended = set()
        self.results = {}
        self.responses += 1

    @property
    def calls_to_make(self) -> tuple[ToolCall, ...]:
        """The open calls, unless their response is not whole: then none is made."""
        return self.calls if self._ended_by is Ended.STOP else ()

    def close(self) -> None:
        """Add the results of the last response's calls as one tool entry.

        A call without a result gets one of outcome ``unknown``, or ``refused`` if the response is not whole.
        """
        if self.calls:
            results = tuple(self.results.get(call.id) or self._unknown(call) for call in self.calls)
            self.entries.append(Entry(role=Role.TOOL, content="", results=results))
        self.calls = ()

    @property
    def finished(self) -> bool:
        """Whether the last entry is an answer without calls."""
        return bool(self.entries) and self.entries[-1].role is Role.ASSISTANT and not self.calls

    @property
    def _ended_by(self) -> Ended:
        """How the last response ended, whose calls are open."""
        return self.entries[-1].ended_by if self.entries else Ended.STOP

    def was_bad(self, call: ToolCall) -> bool:
        """Whether an equal call was refused before for its arguments."""
        results = [result for entry in self.entries for result in entry.results] + list(self.results.values())
        bad = {result.id for result in results if result.error_class == BAD_ARGUMENTS}
        said = (each for entry in self.entries for each in entry.calls if each.id in bad)
        return bool(bad) and any(intent(each) == intent(call) for each in said)

    def _unknown(self, call: ToolCall) -> ToolResult:
        if self._ended_by is not Ended.STOP:
            text = NOT_WHOLE.format(note=NOTES[self._ended_by])
            return ToolResult(id=call.id, name=call.name, output=text, outcome=ToolOutcome.REFUSED)
        text = INTERRUPTED if call.id in self.intended else NOT_RUN
        return ToolResult(id=call.id, name=call.name, output=text, outcome=ToolOutcome.UNKNOWN)


def rebuild(steps: Iterable[Step], specs: dict[str, ToolSpec]) -> Transcript:
    """Return the transcript of the journal. ``specs`` are the tools offered, by name."""
    transcript = Transcript()
    for step in sorted(steps, key=lambda step: step.n):
        _replay(transcript, step, specs)
    return transcript


def said_so_far(steps: Iterable[Step]) -> tuple[tuple[Entry, ...], Usage]:
    """Return the entries of a turn that no worker runs any more, with every open call closed, and its usage.

    It is called to end such a turn, after a cancel or the last rescue.
    """
    transcript = rebuild(steps, {})
    transcript.close()
    return tuple(transcript.entries), transcript.usage


def used_in(steps: Iterable[Step]) -> Usage:
    """Return what a turn's journaled model calls used. Each checkpoint of a plan has the sum up to it."""
    used, planned = Usage(), Usage()
    for step in sorted(steps, key=lambda step: step.n):
        if step.kind is StepKind.CHECKPOINT:
            planned = Usage.from_json(step.data["usage"])
        elif step.kind is StepKind.RESPONSE:
            used += Usage.from_json(step.data.get("usage") or {})
        elif step.kind is StepKind.PROMPT:
            used += Usage.from_json(step.data.get("used_before") or {})
    return used + planned


def _replay(transcript: Transcript, step: Step, specs: dict[str, ToolSpec]) -> None:
    if step.kind is StepKind.RESPONSE:
        _close_earlier(transcript, specs)
        entry = Entry.from_json(step.data["entry"])
        transcript.add_response(entry, Usage.from_json(step.data.get("usage") or {}))
    elif step.kind is StepKind.INTENT:
        transcript.intended.add(step.data["id"])
    elif step.kind is StepKind.RESULT:
        result = ToolResult.from_json(step.data)
        transcript.results[result.id] = result
    elif step.kind is StepKind.INJECT:
        _close_earlier(transcript, specs)
        for text in step.data["texts"]:
            transcript.entries.append(Entry(role=Role.USER, content=text))


def _close_earlier(transcript: Transcript, specs: dict[str, ToolSpec]) -> None:
    """Close a response that was followed by another step. Its missing results are refusals, which are not journaled."""
    for call in transcript.calls_to_make:
        if call.id in transcript.results:
            continue
        refused = refusal(call, specs, again=transcript.was_bad(call))
        if refused is not None:
            transcript.results[call.id] = refused
    transcript.close()
