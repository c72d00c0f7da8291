"""Runs a planned turn: a plan, its steps, revisions, and a question or the answer. It can resume after each step."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Final

from agent_core.execution import AT_WORK, WAITING, Execution, Observation, Status
from agent_core.planner import live, steps
from agent_core.planner.asking import PlannerModel
from agent_core.planner.work import Events, JournaledSteps, PlanRequest, Work
from agent_core.turn.control import PlanPorts, TurnControl
from agent_core.turn.endings import run_to_result
from agent_core.turn.exchange import Watch
from agent_core.turn.tool_calls import Limits, ToolCaller
from agent_core.types import (
    Ended,
    Ending,
    Entry,
    Role,
    StepKind,
    ToolCall,
    ToolResult,
    TurnEvent,
    TurnEventType,
    TurnResult,
)

MOST_ITERATIONS: Final = 12  # steps and revisions since the last message of a person
MEANWHILE: Final = "In the meantime:"
NO_FURTHER: Final = "What is known by now and what is still open: no further step is possible."


def run_plan(
    request: PlanRequest, ports: PlanPorts, control: TurnControl
) -> Generator[TurnEvent, None, TurnResult]:
    """Yield the turn's events and return its result, with the execution to store.

    A result without an execution changes nothing: a waiting question still waits. Raises as ``run_turn`` does.
    """
    watch = Watch(control, request.turn.policy.timeout_seconds)
    return (yield from run_to_result(_Planner(request, ports, watch)))


class _Planner:
    """The state of a planned turn."""

    def __init__(self, request: PlanRequest, ports: PlanPorts, watch: Watch) -> None:
        journal = JournaledSteps(request.turn.steps)
        self._work = Work(
            request=request,
            ports=ports,
            model=PlannerModel(request=request.turn, watch=watch, usage=journal.usage),
            journal=journal,
            execution=request.execution,
            is_ours=journal.is_saved,
        )
        self._watch = watch
        self._limits = Limits(request.turn.policy)
        specs = {spec.name: spec for spec in request.turn.tools}
        self._calls = ToolCaller(specs=specs, ports=ports, watch=watch, policy=request.turn.policy)

    def run(self) -> Events:
        """Run until there is a question or an answer."""
        self._recount()
        is_first = not self._work.journal.steps
        # live state may have changed since the earlier attempt; making a plan reads it anyway
        if self._work.is_ours and self._work.execution.status is Status.RUNNING:
            self._read_live_state(self._work.request.live)
        while not self._work.is_ours or self._work.execution.status in AT_WORK:
            self._watch.check()
            if not is_first:
                self._read_injected()
            is_first = False
            yield from self._advance()

    def ended(self, ending: Ending, error_text: str = "") -> TurnResult:
        """Return the result: injected messages, then the question, the answer or an unfinished answer.

        A failed execution keeps its steps and observations.
        """
        work = self._work
        entries = [Entry(role=Role.USER, content=text) for text in work.journal.heard]
        if ending is Ending.SUCCEEDED:
            execution = work.execution
            text = execution.final_answer or self._with_updates(execution.question)
            ended_by = work.model.ended_by if execution.final_answer else Ended.STOP
            entries.append(Entry(role=Role.ASSISTANT, content=text, ended_by=ended_by))
            after: Execution | None = execution.with_updates_told()
        else:
            if work.model.unfinished:
                entries.append(Entry(role=Role.ASSISTANT, content=work.model.unfinished, partial=True))
            if ending is Ending.FAILED:
                after = self._ended_execution(Status.FAILED, last_error=error_text)
            else:
                after = self._ended_execution(Status.CANCELLED)
        return TurnResult(
            ending=ending,
            entries=tuple(entries),
            usage=work.model.usage,
            execution=after,
            model=work.model.watch.model,
            fell_back=work.model.watch.fell_back,
        )

    def _with_updates(self, question: str) -> str:
        """The question, after the background updates that this turn acknowledges."""
        updates = self._work.request.updates()
        if not updates:
            return question
        return "\n".join([MEANWHILE, *(f"- {each}" for each in updates), "", question])

    def _ended_execution(self, status: Status, **changes: str) -> Execution | None:
        """The execution in this final state; None if this turn has not changed it."""
        return self._work.execution.to(status, **changes) if self._work.is_ours else None

    def _recount(self) -> None:
        """Count the calls and results of the journal against the policy."""
        for step in self._work.journal.steps:
            if step.kind is StepKind.INTENT:
                self._limits.count_call(ToolCall.from_json(step.data))
            if step.kind is StepKind.RESULT:
                self._limits.count_result(ToolResult.from_json(step.data))

    def _read_injected(self) -> None:
        """Add the messages that people sent meanwhile, and revise the plan."""
        work = self._work
        work.journal.heard += work.ports.injected()
        new = work.journal.heard[work.execution.heard :]
        if new:
            names = live.kinds_mentioned("\n".join(new))
            if names:  # a message about live state: task state is not shown any more
                request = work.request
                known = tuple(dict.fromkeys((*request.live, *names)))
                work.request = replace(request, live=known, memory="")
                self._read_live_state(names)
            work.execution = replace(
                work.execution.with_observations(*(Observation(kind="message", text=text) for text in new)),
                heard=len(work.journal.heard),
                iterations=0,
                revise="The person wrote something meanwhile." if work.execution.steps else "",
            )

    def _read_live_state(self, names: tuple[str, ...]) -> None:
        self._work.execution = self._work.execution.with_observations(*self._work.ports.live(names))

    def _advance(self) -> Events:
        """Plan, revise, execute the next step or answer."""
        work, execution = self._work, self._work.execution
        step = execution.next_step()
        if execution.status in WAITING:
            yield from steps.resume(work)
        elif execution.status is not Status.RUNNING:
            yield from steps.make(work)
        elif execution.iterations >= MOST_ITERATIONS:
            yield from steps.write_answer(work, NO_FURTHER)
        elif execution.catalogue != work.catalogue:
            yield from steps.revise(work, "The tools changed since the plan was made.")
        elif execution.revise:
            yield from steps.revise(work, execution.revise)
        elif step is None:
            yield from steps.revise(work, "All its steps are done, and there is no answer yet.")
        else:
            yield from steps.take_step(work, step, self._use)

    def _use(self, call: ToolCall) -> Generator[TurnEvent, None, ToolResult]:
        """Make a call, unless its result is already in the journal."""
        journal = self._work.journal
        if call.id in journal.results:
            return journal.results[call.id]
        if call.id not in journal.intended:
            self._limits.count_call(call)
        yield TurnEvent(type=TurnEventType.TOOL_CALL, content=call.to_json())
        result = self._calls.result_of(call, journal.intended)
        yield TurnEvent(type=TurnEventType.TOOL_OUTPUT, content=result.to_json())
        self._limits.count_result(result)
        return result
