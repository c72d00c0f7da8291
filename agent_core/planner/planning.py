"""Makes plans: the first one, one after a reply, and revisions of the remaining steps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from agent_core.execution import Execution, Observation, PlanStep, Status, StepStatus, StepType
from agent_core.planner import plan, texts
from agent_core.planner.asking import MAKE_PLAN, REVISE_PLAN
from agent_core.planner.work import Events, Work
from agent_core.types import TurnEvent, TurnEventType


def make(work: Work) -> Events:
    """Make a plan. A waiting or ended execution is not changed before there is one."""
    if work.execution.status is Status.PLANNING:
        yield from work.save(work.execution, TurnEventType.PLANNING)
    else:
        begun = TurnEvent(type=TurnEventType.PLANNING, content={"execution": work.execution.id})
        work.ports.told(begun)
        yield begun
    known = work.execution.with_observations(*work.ports.live(work.request.live))
    message = texts.plan_message(known, work.known, work.request.resume)
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
    message = texts.revise_message(asked, work.known)
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
