"""Consent in a chat: the server asks below the answer, and tells the model the person's reply (rule 3.5)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from agent_core.execution import ConsentRequest, new_id
from agent_core.text import fence
from agent_core.tool_spec import ToolSpec
from agent_core.turn.consent import NEEDED, call_to_json, question_of, shown_value
from agent_core.turn.tool_calls import intent
from agent_core.types import (
    Ending,
    Entry,
    Role,
    ToolCall,
    ToolOutcome,
    TurnEvent,
    TurnEventType,
    TurnRequest,
    TurnResult,
)
from sessions_app.models import ConsentQuestion, ConsentState
from sessions_app.questions import consent
from sessions_app.questions.consent import ConsentAnswer
from sessions_app.queue.kinds import is_persons
from sessions_app.turns.context import Prepared

SAID = {
    "yes": "The person said yes to just these calls, once each. Make them now, with these very arguments:",
    "no": "The person said no to these calls. Do not make them:",
}


@dataclass(kw_only=True)
class ChatConsent:
    """Consent to dangerous tool calls in one turn of a chat.

    `heard`: the calls that the person's yes allows. If another call needs consent, a question is added to the answer.
    """

    prepared: Prepared
    heard: ConsentAnswer = field(default_factory=ConsentAnswer)
    specs: dict[str, ToolSpec] = field(default_factory=dict)

    @classmethod
    def of(cls, prepared: Prepared) -> ChatConsent:
        """Read the turn's message as an answer to an open question. A stranger's message never answers one."""
        specs = {spec.name: spec for spec in prepared.request.tools}
        if prepared.permit.stranger is not None:
            return cls(prepared=prepared, specs=specs)
        said = consent.read_answer(prepared.turn, prepared.session, prepared.trigger.model_content)
        return cls(prepared=prepared, heard=said, specs=specs)

    def allows(self, call: ToolCall) -> bool:
        """Whether the person said yes to exactly this call."""
        question, spec = self.heard.question, self.specs.get(call.name)
        if question is None or spec is None or not self.heard.counts or self.heard.answer != "yes":
            return False
        return consent.grant(self.prepared.journal, call, spec, question_id=question.pk)

    def with_note(self, request: TurnRequest) -> TurnRequest:
        """Add a note to the request that lists the calls which the person's yes or no is about."""
        if self.heard.question is None or not self.heard.counts:
            return request
        calls = [f"- {each['name']} {shown_value(each['arguments'])}" for each in self.heard.question.calls]
        shown = fence.fenced("calls", "\n".join(calls))
        note = "\n".join(["## Consent", "", SAID[self.heard.answer], shown])
        return replace(request, message=f"{note}\n\n{request.message}")

    def ask(self, result: TurnResult) -> Generator[TurnEvent, None, TurnResult]:
        """Add the question below the answer, if a call needs consent."""
        if result.ending is not Ending.SUCCEEDED or not is_persons(self.prepared.turn):
            return result
        question = self.heard.question
        if question is not None and self.heard.counts:
            result = replace(result, answered=(question.pk, self.heard.answer))
        asks = self._to_ask(result.entries)
        if asks is None:
            return result
        *before, last = result.entries
        below = f"\n\n{asks.text}" if last.content.strip() else asks.text
        # windows show it after the answer, like the output of one more model call
        of = {"attempt": self.prepared.turn.attempt, "step": result.usage.requests + 1, "try": 1}
        yield TurnEvent(type=TurnEventType.LLM_DELTA, content={"text": below} | of)
        said = replace(last, content=f"{last.content.rstrip()}{below}")
        return replace(result, entries=(*before, said), asks=asks)

    def _to_ask(self, entries: Iterable[Entry]) -> ConsentRequest | None:
        # a tool that an earlier attempt called may be gone
        found = [call for call in refused(entries) if call.name in self.specs]
        calls = [call_to_json(call, self.specs[call.name]) for call in found]
        if calls:
            return self._question(self._open_question(calls) or new_id(), calls, again=False)
        question = self.heard.question
        if question is None or self.heard.counts or self.heard.answer != "yes":
            return None
        return self._question(question.pk, question.calls, again=True)

    def _question(self, question_id: str, calls: list[dict[str, Any]], *, again: bool) -> ConsentRequest:
        like = self.prepared.turn.content
        text = question_of(calls, question_id=question_id, like=like, again=again)
        return ConsentRequest(id=question_id, text=text, calls=tuple(calls))

    def _open_question(self, calls: list[dict[str, Any]]) -> str:
        """Return the id of the open question for exactly these calls, or an empty string."""
        answered = self.heard.question.pk if self.heard.question and self.heard.counts else ""
        open_ = ConsentQuestion.objects.filter(
            session=self.prepared.session, execution="", state=ConsentState.OPEN, expires_at=None
        )
        wanted = _without_ids(calls)
        same = (each.pk for each in open_.exclude(pk=answered) if _without_ids(each.calls) == wanted)
        return next(same, "")


def _without_ids(calls: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Identify calls by name, arguments and version, whatever their ids."""
    return sorted(
        (intent(ToolCall(id="", name=each["name"], arguments=each["arguments"])), each["version"])
        for each in calls
    )


def refused(entries: Iterable[Entry]) -> list[ToolCall]:
    """Return the calls of the last response that were refused because consent is missing, each once."""
    made: dict[str, ToolCall] = {}
    last: list[ToolCall] = []
    for entry in entries:
        made |= {call.id: call for call in entry.calls}
        ids = [
            each.id
            for each in entry.results
            if each.outcome is ToolOutcome.REFUSED and each.error_class == NEEDED
        ]
        if entry.role is Role.TOOL and ids:
            last = [made[each] for each in ids if each in made]
    return list({intent(call): call for call in last}.values())
