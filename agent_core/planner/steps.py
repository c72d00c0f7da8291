"""Executes the steps of a plan, each once. The result is an observation, and may be a reason to revise the plan."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from agent_core.execution import Observation, PlanStep, Status, StepStatus, StepType, new_id
from agent_core.planner import texts
from agent_core.planner.work import Events, Work
from agent_core.tool_spec import Effect, version_of
from agent_core.turn import consent
from agent_core.types import ToolCall, ToolOutcome, ToolResult, TurnEvent, TurnEventType

Use = Callable[[ToolCall], Generator[TurnEvent, None, ToolResult]]  # makes a call, at most once


def take_step(work: Work, step: PlanStep, use: Use) -> Events:
    """Execute a step."""
    if step.type is StepType.ASK_USER:
        yield from ask_user(work, step)
        return
    if _needs_consent(work, step):
        yield from _ask_for_consent(work, step)
        return
    begun = step.begun()
    if step.status is not StepStatus.RUNNING:  # else an earlier attempt of the turn has sent the event
        execution = replace(work.execution, steps=work.execution.with_step(begun), current_step=step.id)
        about = {"step": step.id, "type": str(step.type), "title": step.title}
        yield from work.save(execution, TurnEventType.STEP_START, **about)
    match step.type:
        case StepType.TOOL:
            yield from _call(work, begun, use)
        case StepType.REASON:
            text = yield from work.model.thought(texts.reason_message(work.execution, work.known, step))
            yield from _finish(work, begun, Observation(kind="reasoning", text=text, step=step.id))
        case StepType.RESPOND:
            yield from write_answer(work, step.instruction, begun)


def _needs_consent(work: Work, step: PlanStep) -> bool:
    """Whether to ask for consent. In turns that no person started, the tool itself is refused."""
    spec = work.specs.get(step.tool)
    if spec is None or not spec.asks or not work.request.may_ask_consent:
        return False
    if spec.effect_with(step.arguments) is not Effect.DANGEROUS:
        return False
    return not (step.consented and step.consent == version_of([spec]))


def _ask_for_consent(work: Work, step: PlanStep) -> Events:
    """Ask the server's question, which names the tool and its arguments. A step's title is the model's own words."""
    spec = work.specs[step.tool]
    asked = replace(step, consent=version_of([spec]), consented=False)
    work.execution = replace(work.execution, steps=work.execution.with_step(asked), current_step=step.id)
    calls, question_id = (consent.call_to_json(_call_of(work, step), spec),), new_id()
    text = consent.question_of(calls, question_id=question_id, like=work.execution.request)
    yield from _wait(work, text, Status.WAITING_CONFIRMATION, question_id, calls)


def _call_of(work: Work, step: PlanStep) -> ToolCall:
    return ToolCall(id=f"{work.execution.id}.{step.id}", name=step.tool, arguments=step.arguments)


def _call(work: Work, step: PlanStep, use: Use) -> Events:
    result = yield from use(_call_of(work, step))
    why = ""
    if result.outcome is not ToolOutcome.OK:
        seen = Observation(kind="error", text=result.output, step=step.id)
        why, step = f"Step {step.id} failed.", replace(step, status=StepStatus.FAILED)
    else:
        seen = Observation(kind="tool", text=result.output, step=step.id)
        if work.specs[step.tool].effect_with(step.arguments) is not Effect.READ:
            why = f"Step {step.id} changed something."
            work.execution = work.execution.with_observations(*work.ports.live(work.request.live))
    yield from _finish(work, step, seen, why)


def _finish(work: Work, step: PlanStep, seen: Observation, why: str = "") -> Events:
    status = StepStatus.FAILED if step.status is StepStatus.FAILED else StepStatus.DONE
    execution = work.execution.with_observations(seen)
    execution = replace(
        execution,
        steps=execution.with_step(step.ended(status)),
        iterations=execution.iterations + 1,
        revise=why,
    )
    yield from work.save(execution, TurnEventType.STEP_COMPLETE, step=step.id, status=str(status))


def ask_user(work: Work, step: PlanStep) -> Events:
    """Ask the plan's question, which ends the turn. A yes to it is no consent to a dangerous step."""
    steps = work.execution.with_step(step.begun())
    work.execution = replace(work.execution, current_step=step.id, steps=steps)
    status = Status.WAITING_CONFIRMATION if step.confirm else Status.WAITING_USER
    yield from _wait(work, step.question, status, new_id(), ())


def _wait(
    work: Work, question: str, status: Status, question_id: str, calls: tuple[dict[str, Any], ...]
) -> Events:
    """Wait for the answer. If nobody can answer, the question is the turn's answer."""
    execution = work.execution.with_observations(Observation(kind="question", text=question))
    if not work.request.is_heard:
        work.execution = execution.to(Status.COMPLETED, final_answer=question, question=question)
        return
    work.execution = execution.to(status, question=question, question_id=question_id, asks=calls)
    yield TurnEvent(type=TurnEventType.WAITING, content={"question": question})


def write_answer(work: Work, instruction: str, step: PlanStep | None = None) -> Events:
    """Ask for the final answer. Raises GivenUp `no_answer` if it is empty."""
    text = yield from _answer_text(work, instruction, step)
    execution = work.execution
    if step is not None:
        execution = replace(execution, steps=execution.with_step(step.ended(StepStatus.DONE)))
    work.execution = execution.to(Status.COMPLETED, final_answer=text)
    yield TurnEvent(type=TurnEventType.DONE, content={})


def _answer_text(work: Work, instruction: str, step: PlanStep | None) -> Generator[TurnEvent, None, str]:
    """The answer. If the plan began with a known answer, no further model call is made."""
    is_known = step is not None and step.answer.strip() and step.id == f"{work.execution.plans}.1"
    if step is not None and is_known:
        return (yield from work.model.emit_known(step.answer.strip()))
    return (yield from work.model.answer(texts.respond_message(work.execution, work.known, instruction)))
