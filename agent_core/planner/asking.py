"""The planner's model calls: forms to fill in, thoughts, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field, replace
from typing import Final

from agent_core.exceptions import AgentCoreError, ModelRefused
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.planner.plan import Answer, InvalidPlan, Plan, Revision, form_of, read_plan
from agent_core.tool_spec import ToolSpec
from agent_core.turn.endings import GivenUp, ModelBroke
from agent_core.turn.exchange import Exchange, Watch
from agent_core.types import (
    EMPTY,
    NOTES,
    Ended,
    Entry,
    Role,
    TurnEvent,
    TurnEventType,
    TurnRequest,
    Usage,
    with_note,
)

MAKE_PLAN: Final = form_of("make_plan", "The plan for the request.", Plan)
REVISE_PLAN: Final = form_of("revise_plan", "How the plan goes on.", Revision)
ATTEMPTS: Final = 2  # to fill in a form; the second attempt is told what was wrong with the first
_LONGEST_ECHO = 4000  # characters of an unreadable answer that the model is shown again

ReplyEvents = Generator[TurnEvent, None, ModelReply]


@dataclass(kw_only=True)
class PlannerModel:
    """Asks the model of one turn. ``usage`` is that of all calls; ``unfinished`` is the text of an interrupted answer.

    ``ended_by``: how the answer that people see ended.

    ``form_as_text``: the provider rejected a forced call, so forms are described as text from then on.
    """

    request: TurnRequest
    watch: Watch
    usage: Usage = field(default_factory=Usage)
    unfinished: str = ""
    ended_by: Ended = Ended.STOP
    asked: int = 0
    form_as_text: bool = False

    def form(
        self,
        message: str,
        form: ToolSpec,
        answer: type[Answer],
        tools: Collection[ToolSpec],
        check: Callable[[Answer], None] = lambda _answer: None,
    ) -> Generator[TurnEvent, None, Answer]:
        """Ask for a form; `check` may raise InvalidPlan. Raises GivenUp `invalid_plan` after two invalid answers."""
        said: tuple[Entry, ...] = ()
        fault = ""
        names = {tool.name for tool in tools}
        for _ in range(ATTEMPTS):
            reply = yield from self._filled_in(message, said, form, tools)
            try:
                _check_whole(reply)
                found = read_plan(reply, form.name, answer, names)
                check(found)
                return found
            except InvalidPlan as error:
                fault = str(error)
            said = (
                Entry(role=Role.ASSISTANT, content=_echo(reply)),
                Entry(
                    role=Role.USER, content=f"That could not be read: {fault} Fill in {form.name} once more."
                ),
            )
        raise GivenUp("invalid_plan", fault)

    def thought(self, message: str) -> Generator[TurnEvent, None, str]:
        """Ask for a text that people do not see. If it is not whole, the text says so."""
        reply = yield from _unshown(self._ask(self._call(message)))
        return with_note(reply.text.strip(), reply.ended_by) or EMPTY.get(reply.ended_by, "")

    def answer(self, message: str) -> Generator[TurnEvent, None, str]:
        """Ask for the answer, which people see while it is streamed.

        Raises GivenUp `no_answer` if it is empty.
        """
        reply = yield from self._ask(self._call(message), shown=True)
        self.unfinished, self.ended_by = "", reply.ended_by
        text = reply.text.strip()
        if not text:
            raise GivenUp("no_answer", text=EMPTY.get(reply.ended_by, ""))
        return text

    def emit_known(self, text: str) -> Generator[TurnEvent, None, str]:
        """Send an answer that came with the plan, as if it were streamed now."""
        content = {"text": text, "attempt": self.request.attempt, "step": self.asked, "try": 1}
        yield TurnEvent(type=TurnEventType.LLM_DELTA, content=content)
        return text

    def _filled_in(
        self, message: str, said: tuple[Entry, ...], form: ToolSpec, tools: Collection[ToolSpec]
    ) -> ReplyEvents:
        """The reply to a form. If the provider rejects the forced call, the form is described as text."""
        call = self._call(message, *said, form=form, tools=tuple(tools))
        try:
            return (yield from _unshown(self._ask(call)))
        except ModelRefused as error:
            if self.form_as_text or error.code != ModelRefused.code:
                raise
        self.form_as_text = True
        return (yield from _unshown(self._ask(replace(call, form_as_text=True))))

    def _call(
        self, message: str, *said: Entry, form: ToolSpec | None = None, tools: tuple[ToolSpec, ...] = ()
    ) -> ModelCall:
        return ModelCall(
            system_prompt=self.request.system_prompt,
            entries=(*self.request.history, Entry(role=Role.USER, content=message), *said),
            tools=tools,
            form=form,
            form_as_text=self.form_as_text,
            settings=self.request.settings,
        )

    def _ask(self, call: ModelCall, *, shown: bool = False) -> ReplyEvents:
        self.asked += 1
        exchange = Exchange(
            request=self.request,
            call=call,
            watch=self.watch,
            labels={"attempt": self.request.attempt, "step": self.asked},
        )
        try:
            reply = yield from exchange.run()
        except AgentCoreError:
            self.unfinished = exchange.text if shown else ""
            raise
        except Exception as error:
            raise ModelBroke(error) from error
        self.usage += reply.usage
        return reply


def _check_whole(reply: ModelReply) -> None:
    """Raise InvalidPlan if the reply is not whole: nothing of it counts."""
    if reply.ended_by is not Ended.STOP:
        raise InvalidPlan(NOTES[reply.ended_by])


def _unshown(events: ReplyEvents) -> ReplyEvents:
    """The events without deltas, which people would see."""
    while True:
        try:
            event = next(events)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if event.type not in {TurnEventType.LLM_DELTA, TurnEventType.LLM_THOUGHT}:
            yield event


def _echo(reply: ModelReply) -> str:
    said = reply.text.strip() or "; ".join(
        f"{call.name}({call.unparsed if call.unparsed is not None else call.arguments})"
        for call in reply.calls
    )
    return said[:_LONGEST_ECHO] or "(nothing)"
