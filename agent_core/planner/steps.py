"""Steps: each is taken once; what it found is an observation, and may be a reason to look at the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace

from agent_core.endings import GivenUp
from agent_core.execution import CUT, Observation, PlanStep, Status, StepStatus, StepType
from agent_core.planner import texts
from agent_core.planner.catalogue import version_of
from agent_core.planner.work import Events, Work
from agent_core.types import Effect, EventType, ToolCall, ToolOutcome, ToolResult, TurnEvent

LONGEST_ARGUMENTS = 1000  # characters of them in a question
Use = Callable[[ToolCall], Generator[TurnEvent, None, ToolResult]]  # makes a call, at most once


def take(work: Work, step: PlanStep, use: Use) -> Events:
    """Take the next step."""
    if step.type is StepType.ASK_USER:
        yield from ask(work, step.question, confirm=step.confirm, step=step)
        return
    if _needs_consent(work, step):
        yield from _ask_for_consent(work, step)
        return
    begun = replace(step, status=StepStatus.RUNNING)
    if step.status is not StepStatus.RUNNING:  # else an earlier attempt of the turn has told of it
        execution = replace(work.execution, steps=work.execution.with_step(begun), current_step=step.id)
        about = {"step": step.id, "type": str(step.type), "title": step.title}
        yield from work.go(execution, EventType.STEP_START, **about)
    match step.type:
        case StepType.TOOL:
            yield from _call(work, begun, use)
        case StepType.REASON:
            text = yield from work.asking.thought(texts.reason_message(work.execution, step))
            yield from _done(work, begun, Observation(kind="reasoning", text=text, step=step.id))
        case StepType.RESPOND:
            yield from answer(work, step.instruction, begun)


def _needs_consent(work: Work, step: PlanStep) -> bool:
    """What is dangerous needs a yes, where there is somebody to say it; elsewhere the tool is refused."""
    spec = work.specs.get(step.tool)
    if spec is None or spec.effect is not Effect.DANGEROUS or not work.request.is_heard:
        return False
    return not (step.consented and step.consent == version_of([spec]))


def _ask_for_consent(work: Work, step: PlanStep) -> Events:
    """The question names the tool and what it is called with: a title is the model's own words."""
    asked = replace(step, consent=version_of([work.specs[step.tool]]), consented=False)
    work.execution = replace(work.execution, steps=work.execution.with_step(asked))
    arguments = json.dumps(step.arguments, ensure_ascii=False, sort_keys=True)
    shown = arguments if len(arguments) <= LONGEST_ARGUMENTS else arguments[:LONGEST_ARGUMENTS] + CUT
    yield from ask(work, f"May I use {step.tool} with {shown}?", confirm=True, for_consent_to=step.id)


def _call(work: Work, step: PlanStep, use: Use) -> Events:
    call = ToolCall(id=f"{work.execution.id}.{step.id}", name=step.tool, arguments=step.arguments)
    result = yield from use(call)
    why = ""
    if result.outcome is not ToolOutcome.OK:
        seen = Observation(kind="error", text=result.output, step=step.id)
        why, step = f"Step {step.id} failed.", replace(step, status=StepStatus.FAILED)
    else:
        seen = Observation(kind="tool", text=result.output, step=step.id)
        if work.specs[step.tool].effect is not Effect.READ:
            why = f"Step {step.id} changed something."
            work.execution = work.execution.noting(*work.ports.live(work.request.live))
    yield from _done(work, step, seen, why)


def _done(work: Work, step: PlanStep, seen: Observation, why: str = "") -> Events:
    behind = step if step.status is StepStatus.FAILED else replace(step, status=StepStatus.DONE)
    execution = work.execution.noting(seen)
    execution = replace(
        execution,
        steps=execution.with_step(behind),
        iterations=execution.iterations + 1,
        revise=why,
    )
    yield from work.go(execution, EventType.STEP_COMPLETE, step=step.id, status=str(behind.status))


def ask(
    work: Work, question: str, *, confirm: bool, step: PlanStep | None = None, for_consent_to: str = ""
) -> Events:
    """Ask, which ends the turn; where nobody can answer, the question is the answer.

    `for_consent_to`: the step that a plain yes lets happen. No other question does.
    """
    execution = work.execution.noting(Observation(kind="question", text=question))
    execution = replace(execution, current_step=step.id if step is not None else for_consent_to)
    if step is not None:
        execution = replace(execution, steps=execution.with_step(replace(step, status=StepStatus.RUNNING)))
    if not work.request.is_heard:
        work.execution = execution.to(Status.COMPLETED, final_answer=question, question=question)
        return
    status = Status.WAITING_CONFIRMATION if confirm else Status.WAITING_USER
    work.execution = execution.to(status, question=question)
    yield TurnEvent(type=EventType.WAITING, content={"question": question})


def answer(work: Work, instruction: str, step: PlanStep | None = None) -> Events:
    """Give the final answer, as it comes. GivenUp when there is none."""
    message = texts.respond_message(work.execution, instruction=instruction, memory=work.request.memory)
    text = yield from work.asking.answer(message)
    if not text:
        raise GivenUp("no_answer")
    execution = work.execution
    if step is not None:
        execution = replace(execution, steps=execution.with_step(replace(step, status=StepStatus.DONE)))
    work.execution = execution.to(Status.COMPLETED, final_answer=text)
    yield TurnEvent(type=EventType.DONE, content={})
