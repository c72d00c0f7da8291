"""The planner's exchanges with the model: forms that are filled in, thoughts, and the answer."""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import Final

from agent_core.endings import GivenUp, ModelBroke
from agent_core.exceptions import AgentCoreError
from agent_core.exchange import Exchange, Watch
from agent_core.models import ModelCall, ModelReply
from agent_core.planner.plan import Answer, InvalidPlan, Plan, Revision, form_of, read
from agent_core.types import Entry, EventType, Role, ToolSpec, TurnEvent, TurnRequest, Usage

MAKE_PLAN: Final = form_of("make_plan", "The plan for the request.", Plan)
REVISE_PLAN: Final = form_of("revise_plan", "How the plan goes on.", Revision)
TRIES: Final = 2  # of a form; the second is told what was wrong with the first
_LONGEST_ECHO = 4000  # characters of an answer that could not be read, shown to the model again

Talk = Generator[TurnEvent, None, ModelReply]


@dataclass(kw_only=True)
class Asking:
    """The model of one turn. ``usage`` is what it used so far; ``unfinished`` the part of an answer that was said."""

    request: TurnRequest
    watch: Watch
    usage: Usage = field(default_factory=Usage)
    unfinished: str = ""
    asked: int = 0

    def form(
        self, message: str, form: ToolSpec, answer: type[Answer], tools: Collection[str]
    ) -> Generator[TurnEvent, None, Answer]:
        """Ask for a form. GivenUp `invalid_plan` after two answers that are none."""
        said: tuple[Entry, ...] = ()
        fault = ""
        for _ in range(TRIES):
            reply = yield from self._ask(message, said, (form,), shown=False)
            try:
                return read(reply, form.name, answer, tools)
            except InvalidPlan as error:
                fault = str(error)
            said = (
                Entry(role=Role.ASSISTANT, content=_echo(reply)),
                Entry(role=Role.USER, content=f"That could not be read: {fault} Call {form.name} once more."),
            )
        raise GivenUp("invalid_plan", fault)

    def thought(self, message: str) -> Generator[TurnEvent, None, str]:
        """Ask for a text that people do not see."""
        reply = yield from self._ask(message, (), (), shown=False)
        return reply.text.strip()

    def answer(self, message: str) -> Generator[TurnEvent, None, str]:
        """Ask for the text that people see, as it comes."""
        reply = yield from self._ask(message, (), (), shown=True)
        self.unfinished = ""
        return reply.text.strip()

    def _ask(
        self, message: str, said: tuple[Entry, ...], tools: tuple[ToolSpec, ...], *, shown: bool
    ) -> Talk:
        self.asked += 1
        exchange = Exchange(
            model=self.request.model,
            call=ModelCall(
                system_prompt=self.request.system_prompt,
                entries=(*self.request.history, Entry(role=Role.USER, content=message), *said),
                tools=tools,
            ),
            policy=self.request.policy,
            watch=self.watch,
            labels={"attempt": self.request.attempt, "step": self.asked},
        )
        try:
            reply = yield from (exchange.run() if shown else _unshown(exchange.run()))
        except AgentCoreError:
            self.unfinished = exchange.text if shown else ""
            raise
        except Exception as error:
            raise ModelBroke(error) from error
        self.usage += reply.usage
        return reply


def _unshown(talk: Talk) -> Talk:
    """The talk without its deltas."""
    while True:
        try:
            event = next(talk)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if event.type is not EventType.LLM_DELTA:
            yield event


def _echo(reply: ModelReply) -> str:
    said = reply.text.strip() or "; ".join(
        f"{call.name}({call.unparsed if call.unparsed is not None else call.arguments})"
        for call in reply.calls
    )
    return said[:_LONGEST_ECHO] or "(nothing)"
