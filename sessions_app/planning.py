"""What a planner is given for a turn, and where its work is stored."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from agent_core import words
from agent_core.control import TurnControl
from agent_core.execution import Execution, Observation
from agent_core.orchestrator import run_turn
from agent_core.planner import live
from agent_core.planner.decide import Decision, Meaning, decide
from agent_core.planner.texts import Resume
from agent_core.planner.work import PlanRequest
from agent_core.types import Ending, Entry, Role, StepKind, TurnEvent, TurnRequest, TurnResult, Usage
from sessions_app import consent, events, executions, memory
from sessions_app.context import Prepared
from sessions_app.kinds import is_persons
from sessions_app.models import BACKGROUND, Engine, EventType, TurnKind
from sessions_app.tools import TurnTools

CLOSED = "That question is closed; nothing waits for this answer any more."
HELD = "## What This Conversation Holds On To"


def story_of(prepared: Prepared, control: TurnControl) -> Generator[TurnEvent, None, TurnResult]:
    """The turn as its agent's engine tells it."""
    given: dict[str, Any] = {
        "journal": prepared.journal,
        "context": replace(prepared.tool_context, control=control),
        "more": {tool.name: tool for tool in prepared.offer.tools},
    }
    if prepared.agent.engine != Engine.PLANNER or not prepared.kind.plans:
        turn, said, history = prepared.turn, prepared.trigger.model_content, prepared.request.history
        given["consented"] = lambda call: consent.given(turn, history, said, call)
        return run_turn(_remembering(prepared), TurnTools(**given), control)
    # Late: a server whose agents only chat need not load what reads plans.
    from agent_core.planner.run import run_plan

    instead_of, request = _request(prepared)
    if request is None:
        return _closed()
    given["consented"] = lambda _call: True  # a plan asks before it comes to the call
    return run_plan(request, PlanTools(**given, instead_of=instead_of), control)


@dataclass(kw_only=True)
class PlanTools(TurnTools):
    """The ports of a planned turn. `instead_of`: the execution that waits and is given up for this turn's."""

    instead_of: str = ""

    def saved(self, execution: Execution, event: TurnEvent, usage: Usage) -> None:
        """Journal, execution and event in one fenced transaction."""
        data = {"status": execution.status, "step": execution.current_step, "usage": usage.to_json()}
        content = {"execution": execution.id, **event.content}
        with transaction.atomic():
            self.journal.record(StepKind.CHECKPOINT, data, (EventType(event.type.value), content))
            executions.store(self.context.turn, execution, instead_of=self.instead_of)

    def told(self, event: TurnEvent) -> None:
        """An event of the turn, fenced."""
        turn, agent_id = self.context.turn, self.context.agent.pk
        with transaction.atomic():
            self.journal.fence()
            events.event(turn, agent_id, EventType(event.type.value), event.content).save(force_insert=True)
        events.announce(turn.session_id)

    def live(self, names: tuple[str, ...]) -> tuple[Observation, ...]:
        """Snapshots, read outside any transaction."""
        return tuple(live.snapshot(name, self.context) for name in names)


def _request(prepared: Prepared) -> tuple[str, PlanRequest | None]:
    """The execution that is given up, by its id; and what the planner starts from, None when it is not asked."""
    turn, said = prepared.turn, prepared.trigger.model_content
    begun = executions.of_turn(turn)
    if turn.kind != TurnKind.MESSAGE:
        # what it asks is kept; how a slot's prompt says it is for this turn alone
        given = _given(prepared, begun or _fresh(turn.content), turn.content)
        return "", replace(given, words=prepared.request.message)
    if begun is not None:
        return "", _given(prepared, begun, said)
    if not is_persons(turn):  # it is a request, whatever it says
        return "", _given(prepared, _updated(prepared, _fresh(said)), said)
    decision = decide(
        said,
        executions.of_session(turn),
        live_request=bool(live.concerned(said)),
        named=turn.metadata.get("execution", ""),
    )
    if decision.meaning is Meaning.CLOSED:
        return "", None
    return _decided(prepared, decision, said)


def _closed() -> Generator[TurnEvent, None, TurnResult]:
    """No model is asked, so the turn acknowledges nothing."""
    yield from ()
    return TurnResult(ending=Ending.FAILED, error_code="question_closed", error_text=CLOSED)


def _decided(prepared: Prepared, decision: Decision, said: str) -> tuple[str, PlanRequest]:
    before = decision.execution
    match decision.meaning:
        case Meaning.REPLY | Meaning.CONFIRMATION if before is not None:
            is_plain = decision.meaning is Meaning.CONFIRMATION
            return "", replace(
                _given(prepared, _updated(prepared, replace(before, heard=0)), said),
                resume=Resume(question=before.question, reply=said),
                consent=words.is_whole("yes", said) if is_plain else None,
            )
        case Meaning.RETRY if before is not None:
            again = replace(before, iterations=0, heard=0, revise="")
            noted = again.noting(Observation(kind="message", text=said))
            return "", _given(prepared, _updated(prepared, noted), said)
        case Meaning.NEW_REQUEST if before is not None:
            return before.id, _given(prepared, _updated(prepared, _fresh(said)), said)
    return "", _given(prepared, _updated(prepared, _fresh(said)), said)


def _fresh(request: str) -> Execution:
    return Execution(id=executions.new_id(), request=request)


def _updated(prepared: Prepared, execution: Execution) -> Execution:
    """With what stands before the person's words: what happened in the background."""
    before = prepared.request.message.removesuffix(prepared.trigger.model_content).strip()
    return execution.noting(Observation(kind="update", text=before)) if before else execution


def _given(prepared: Prepared, execution: Execution, said: str) -> PlanRequest:
    """Live state is read for what is asked now and was asked first; then memory has no say in it."""
    concerned = live.concerned(f"{execution.request}\n{said}")
    return PlanRequest(
        turn=prepared.request,
        execution=execution,
        memory="" if concerned else _held(prepared),
        live=concerned,
        is_heard=prepared.session.type not in BACKGROUND,
    )


def _held(prepared: Prepared) -> str:
    state = None if prepared.kind.alone else getattr(prepared.session, "task_state", None)
    return memory.held(state).in_words()


def _remembering(prepared: Prepared) -> TurnRequest:
    """What is held stands before the history, since the messages that it was made of are not in it any more."""
    held = _held(prepared)
    if not held or live.concerned(prepared.trigger.model_content):
        return prepared.request
    first = Entry(role=Role.USER, content=f"{HELD}\n\n{held}")
    return replace(prepared.request, history=(first, *prepared.request.history))
