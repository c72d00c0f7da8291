"""Plans: the first one, the one after a reply, and the looks at what remains of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_core.execution import Execution, Observation, PlanStep, Status, StepStatus, StepType
from agent_core.planner import plan, texts
from agent_core.planner.asking import MAKE_PLAN, REVISE_PLAN
from agent_core.planner.work import Events, Work
from agent_core.types import EventType, TurnEvent


def make(work: Work) -> Events:
    """Make a plan. Of an execution that waits or has ended nothing is changed before there is one."""
    if work.execution.status is Status.PLANNING:
        yield from work.go(work.execution, EventType.PLANNING)
    else:
        begun = TurnEvent(type=EventType.PLANNING, content={"execution": work.execution.id})
        work.ports.told(begun)
        yield begun
    known = work.execution.noting(*work.ports.live(work.request.live))
    message = texts.plan_message(
        known,
        tools=work.request.turn.tools,
        memory=work.request.memory,
        resume=work.request.resume,
        words=work.request.words,
    )
    made = yield from work.asking.form(message, MAKE_PLAN, plan.Plan, work.specs)
    planned = known.to(Status.PLANNING).planned(plan.steps_of(made.steps))
    running = planned.to(
        Status.RUNNING,
        goal=made.goal or known.goal,
        catalogue=work.catalogue,
        revise="",
        final_answer="",
        last_error="",
    )
    yield from work.go(running, EventType.PLAN, **_outline(running))


def resume(work: Work) -> Events:
    """Go on from a question: with consent to a step at once, else with a new plan."""
    reply, step = work.request.resume, work.execution.step()
    if reply is None:
        raise ValueError("an execution that waits goes on with a reply")
    heard = replace(
        work.execution.noting(Observation(kind="reply", text=reply.reply)), reply=reply.reply, iterations=0
    )
    if step is not None and _waits_for_consent(work, step):
        yield from _consented(work, heard, step)
        return
    if step is not None and step.type is StepType.ASK_USER and step.id == heard.current_step:
        heard = replace(heard, steps=heard.with_step(replace(step, status=StepStatus.DONE)))
    work.execution = heard
    yield from make(work)


def _waits_for_consent(work: Work, step: PlanStep) -> bool:
    """A tool's step is first in line only while it waits for a yes; other questions have steps of their own."""
    is_asked_for = work.execution.status is Status.WAITING_CONFIRMATION and step.type is StepType.TOOL
    return is_asked_for and work.request.consent is not None


def _consented(work: Work, heard: Execution, step: PlanStep) -> Events:
    """Yes: the step is taken. No: it is not, and the plan is looked at."""
    is_yes = work.request.consent is True
    settled = replace(step, consented=True) if is_yes else replace(step, status=StepStatus.FAILED)
    going = heard.to(Status.PLANNING).to(
        Status.RUNNING,
        steps=heard.with_step(settled),
        revise="" if is_yes else "The person said no to a step.",
    )
    yield from work.go(going, EventType.REPLAN, action="continue")


def revise(work: Work, why: str) -> Events:
    """Ask how the plan goes on. What is decided is a plan, too, so that it is stored before it is done."""
    asked = replace(work.execution, revise=why)
    message = texts.revise_message(asked, tools=work.request.turn.tools)
    made = yield from work.asking.form(message, REVISE_PLAN, plan.Revision, work.specs)
    settled = replace(asked, revise="", catalogue=work.catalogue, iterations=asked.iterations + 1)
    told: dict[str, Any] = {"action": made.action, "why": why}
    if made.action != "continue":
        settled = settled.planned(_decided(made))
        told |= _outline(settled)
    yield from work.go(settled, EventType.REPLAN, **told)


def _decided(made: plan.Revision) -> tuple[PlanStep, ...]:
    """The steps that remain."""
    if made.action == "ask_user":
        return (PlanStep(type=StepType.ASK_USER, question=made.question, confirm=made.confirm),)
    if made.action == "finish":
        return (PlanStep(type=StepType.RESPOND, instruction=made.instruction),)
    return plan.steps_of(made.steps)


def _outline(execution: Execution) -> dict[str, Any]:
    """The plan as people see it."""
    ahead = [step for step in execution.steps if step.status is StepStatus.PENDING]
    listed = [{"step": step.id, "type": str(step.type), "title": step.title} for step in ahead]
    return {"goal": execution.goal, "steps": listed}
