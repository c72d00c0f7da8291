"""Makes and revises plans, and executes their steps, each once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

from agent_core.execution import Execution, Observation, PlanStep, Status, StepStatus, StepType, new_id
from agent_core.planner import plan, texts
from agent_core.planner.asking import MAKE_PLAN, REVISE_PLAN
from agent_core.planner.work import Events, Work
from agent_core.tool_spec import Effect
from agent_core.turn import consent
from agent_core.types import ToolCall, ToolOutcome, ToolResult, TurnEvent, TurnEventType


def make(work: Work) -> Events:
    """Make a plan. A waiting or ended execution is not changed before there is one."""
    if work.execution.status is Status.PLANNING:
        yield from work.save(work.execution, TurnEventType.PLANNING)
    else:
        begun = TurnEvent(type=TurnEventType.PLANNING, content={"execution": work.execution.id})
        work.ports.told(begun)
        yield begun
    known = work.execution.with_observations(*work.ports.live(work.request.live))
    message = texts.plan_message(known, work.request)
    made = yield from work.model.form(message, MAKE_PLAN, plan.Plan, work.request.turn.offered)
    planned = known.to(Status.PLANNING).with_plan(plan.steps_of(made.steps, work.specs))
    running = planned.to(
        Status.RUNNING,
        goal=made.goal or known.goal,
        catalogue=work.catalogue,
        revise="",
        final_answer="",
        last_error="",
    )
    yield from work.save(running, TurnEventType.PLAN, **_outline(running))


def resume(work: Work) -> Events:
    """Continue after a reply: at once if it is about consent to a step, else with a new plan."""
    reply, step = work.request.resume, work.execution.next_step()
    if reply is None:
        raise ValueError("a waiting execution can only be resumed with a reply")
    heard = replace(
        work.execution.with_observations(Observation(kind="reply", text=reply.reply)),
        reply=reply.reply,
        iterations=0,
    )
    if step is not None and _waits_for_consent(work, step):
        yield from _consented(work, heard, step)
        return
    if step is not None and step.type is StepType.ASK_USER and step.id == heard.current_step:
        heard = replace(heard, steps=heard.with_step(step.ended(StepStatus.DONE)))
    work.execution = heard
    yield from make(work)


def _waits_for_consent(work: Work, step: PlanStep) -> bool:
    """Whether the reply is about consent to this step. Other questions have steps of their own."""
    is_asked_for = work.execution.status is Status.WAITING_CONFIRMATION and step.type is StepType.TOOL
    return is_asked_for and work.request.consent is not None


def _consented(work: Work, heard: Execution, step: PlanStep) -> Events:
    """Yes: execute the step. No: it has failed, and the plan is revised."""
    is_yes = work.request.consent is True
    settled = replace(step, consented=True) if is_yes else replace(step, status=StepStatus.FAILED)
    going = heard.to(Status.PLANNING).to(
        Status.RUNNING,
        steps=heard.with_step(settled),
        revise="" if is_yes else "The person said no to a step.",
    )
    yield from work.save(going, TurnEventType.REPLAN, action="continue")


def revise(work: Work, why: str) -> Events:
    """Ask how the plan continues. The decision becomes a plan too, so that it is stored before it is executed."""
    asked = replace(work.execution, revise=why)
    message = texts.revise_message(asked, work.request)
    offered = work.request.turn.offered
    made = yield from work.model.form(
        message, REVISE_PLAN, plan.Revision, offered, partial(_check_revision, asked)
    )
    settled = replace(asked, revise="", catalogue=work.catalogue, iterations=asked.iterations + 1)
    told: dict[str, Any] = {"action": made.action, "why": why}
    if made.action != "continue":
        settled = settled.with_plan(_remaining_steps(made, work))
        told |= _outline(settled)
    yield from work.save(settled, TurnEventType.REPLAN, **told)


def _check_revision(execution: Execution, made: plan.Revision) -> None:
    """Raise InvalidPlan if no step is left to continue with."""
    if made.action == "continue" and execution.next_step() is None:
        raise plan.InvalidPlan("continue: no step is pending; choose finish, replace_remaining or ask_user.")


def _remaining_steps(made: plan.Revision, work: Work) -> tuple[PlanStep, ...]:
    if made.action == "ask_user":
        return (PlanStep(type=StepType.ASK_USER, question=made.question, confirm=made.confirm),)
    if made.action == "finish":
        return (PlanStep(type=StepType.RESPOND, instruction=made.instruction, answer=made.answer),)
    return plan.steps_of(made.steps, work.specs)


def _outline(execution: Execution) -> dict[str, Any]:
    """The plan as it is shown to people."""
    ahead = [step for step in execution.steps if step.status is StepStatus.PENDING]
    listed = [{"step": step.id, "type": str(step.type), "title": step.title} for step in ahead]
    return {"goal": execution.goal, "steps": listed}


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
            text = yield from work.model.thought(texts.reason_message(work.execution, work.request, step))
            yield from _finish(work, begun, Observation(kind="reasoning", text=text, step=step.id))
        case StepType.RESPOND:
            yield from write_answer(work, step.instruction, begun)


def _needs_consent(work: Work, step: PlanStep) -> bool:
    """Whether to ask for consent. In turns that no person started, the tool itself is refused."""
    spec = work.specs.get(step.tool)
    if spec is None or not spec.asks or not work.request.may_ask_consent:
        return False
    if not work.ports.is_restricted(spec.effect_with(step.arguments)):
        return False
    if spec.in_words(step.arguments).problem:
        return False  # the call fails, and says why
    return not (step.consented and step.consent == consent.version_of_call(spec, step.arguments))


def _ask_for_consent(work: Work, step: PlanStep) -> Events:
    """Ask the server's question, which names the tool and its arguments. A step's title is the model's own words."""
    spec = work.specs[step.tool]
    asked = replace(step, consent=consent.version_of_call(spec, step.arguments), consented=False)
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
    return (yield from work.model.answer(texts.respond_message(work.execution, work.request, instruction)))
