"""Runs a planned turn: plan, step by step with replanning, a question or the answer; resumable after each step."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Final

from agent_core.calls import Calls
from agent_core.control import TurnControl
from agent_core.endings import ERROR_TEXTS, GivenUp, detail_of, told
from agent_core.exchange import Watch
from agent_core.execution import AT_WORK, WAITING, Execution, Observation, Status
from agent_core.limits import Limits
from agent_core.planner import live, planning, steps
from agent_core.planner.asking import Asking
from agent_core.planner.past import Past
from agent_core.planner.work import Events, PlanRequest, Work
from agent_core.ports import PlanPorts
from agent_core.types import (
    Ending,
    Entry,
    EventType,
    Role,
    StepKind,
    ToolCall,
    ToolResult,
    TurnEvent,
    TurnResult,
)

MOST_ITERATIONS: Final = 12  # steps and looks at the plan, since a person was last heard
NO_FURTHER: Final = "What is known by now and what is still open: no further step is possible."


def run_plan(
    request: PlanRequest, ports: PlanPorts, control: TurnControl
) -> Generator[TurnEvent, None, TurnResult]:
    """Yield the turn's events and return its result, whose execution is to be stored with the turn's end.

    Without one in it nothing is to be changed: a question that waits still stands. Raises as ``run_turn`` does.
    """
    watch = Watch(control, request.turn.policy.timeout_seconds)
    return (yield from told(_Planner(request, ports, watch)))


class _Planner:
    """The story of a planned turn."""

    def __init__(self, request: PlanRequest, ports: PlanPorts, watch: Watch) -> None:
        past = Past(request.turn.steps)
        self._work = Work(
            request=request,
            ports=ports,
            asking=Asking(request=request.turn, watch=watch, usage=past.usage),
            past=past,
            execution=request.execution,
            is_ours=past.is_saved,
        )
        self._watch = watch
        self._limits = Limits(request.turn.policy)
        self._calls = Calls(specs=self._work.specs, ports=ports, watch=watch, policy=request.turn.policy)

    def run(self) -> Events:
        """Go on to a question or an answer."""
        self._recount()
        is_first = not self._work.past.steps
        # an earlier attempt began: how things stood then is not how they stand; a plan looks for itself
        if self._work.is_ours and self._work.execution.status is Status.RUNNING:
            self._look(self._work.request.live)
        while not self._work.is_ours or self._work.execution.status in AT_WORK:
            self._watch.check()
            if not is_first:
                self._hear()
            is_first = False
            yield from self._next()

    def ended(self, ending: Ending) -> TurnResult:
        """The result: what was injected, then the question, the answer or what there is of it."""
        work, execution = self._work, self._work.execution
        entries = [Entry(role=Role.USER, content=text) for text in work.past.heard]
        if ending is Ending.SUCCEEDED:
            text = execution.final_answer or execution.question
            entries.append(Entry(role=Role.ASSISTANT, content=text))
        elif work.asking.unfinished:
            entries.append(Entry(role=Role.ASSISTANT, content=work.asking.unfinished, partial=True))
        return TurnResult(
            ending=ending,
            entries=tuple(entries),
            usage=work.asking.usage,
            execution=execution if ending is Ending.SUCCEEDED else self._broken_off(Status.CANCELLED),
        )

    def failed(self, code: str, error: Exception) -> TurnResult:
        """A failure: the execution keeps what it has."""
        return replace(
            self.ended(Ending.FAILED),
            error_code=code,
            error_text=ERROR_TEXTS[code],
            error_detail=detail_of(error),
            execution=self._broken_off(Status.FAILED, last_error=ERROR_TEXTS[code]),
        )

    def _broken_off(self, status: Status, **changes: str) -> Execution | None:
        """The execution so ended; None when this turn has not changed anything of it."""
        return self._work.execution.to(status, **changes) if self._work.is_ours else None

    def _recount(self) -> None:
        """Bring the policy's counters to where the journal is."""
        for step in self._work.past.steps:
            if step.kind is StepKind.INTENT:
                self._count(self._limits.called(ToolCall.from_json(step.data)))
            if step.kind is StepKind.RESULT:
                self._count(self._limits.returned(ToolResult.from_json(step.data)))

    def _count(self, passed: str | None) -> None:
        if passed is not None:
            raise GivenUp(passed)

    def _hear(self) -> None:
        """Take in what people wrote meanwhile: it may change what is still to be done."""
        work = self._work
        work.past.heard += work.ports.injected()
        new = work.past.heard[work.execution.heard :]
        if new:
            names = live.concerned("\n".join(new))
            if names:  # it is about live state: memory has no say in it any more
                request = work.request
                known = tuple(dict.fromkeys((*request.live, *names)))
                work.request = replace(request, live=known, memory="")
                self._look(names)
            work.execution = replace(
                work.execution.noting(*(Observation(kind="message", text=text) for text in new)),
                heard=len(work.past.heard),
                iterations=0,
                revise="The person wrote something meanwhile." if work.execution.steps else "",
            )

    def _look(self, names: tuple[str, ...]) -> None:
        self._work.execution = self._work.execution.noting(*self._work.ports.live(names))

    def _next(self) -> Events:
        """One step of the way."""
        work, execution = self._work, self._work.execution
        step = execution.step()
        if execution.status in WAITING:
            yield from planning.resume(work)
        elif execution.status is not Status.RUNNING:
            yield from planning.make(work)
        elif execution.iterations >= MOST_ITERATIONS:
            yield from steps.answer(work, NO_FURTHER)
        elif execution.catalogue != work.catalogue:
            yield from planning.revise(work, "The tools changed since the plan was made.")
        elif execution.revise:
            yield from planning.revise(work, execution.revise)
        elif step is None:
            yield from planning.revise(work, "All its steps are done, and there is no answer yet.")
        else:
            yield from steps.take(work, step, self._use)

    def _use(self, call: ToolCall) -> Generator[TurnEvent, None, ToolResult]:
        """Make a call; one whose result is journaled is not made again."""
        past = self._work.past
        if call.id in past.results:
            return past.results[call.id]
        if call.id not in past.intended:
            self._count(self._limits.called(call))
        yield TurnEvent(type=EventType.TOOL_CALL, content=call.to_json())
        result = self._calls.result_of(call, past.intended)
        yield TurnEvent(type=EventType.TOOL_OUTPUT, content=result.to_json())
        self._count(self._limits.returned(result))
        return result
