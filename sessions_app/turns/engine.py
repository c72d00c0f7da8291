"""Run a turn with its agent's engine: a chat or a planner. It prepares what they need and stores their work."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection, transaction

from agent_core.execution import Execution, Observation, Status, new_id
from agent_core.memory.lasting_facts import FactFilter
from agent_core.memory.task_state import TaskStateData
from agent_core.planner import live
from agent_core.planner.decide import Meaning, MessageDecision, decide_message
from agent_core.planner.texts import Resume
from agent_core.planner.work import PlanRequest
from agent_core.text import fence
from agent_core.turn.control import TurnControl
from agent_core.turn.run import run_turn
from agent_core.types import Ending, Entry, Role, StepKind, TurnEvent, TurnRequest, TurnResult, Usage
from sessions_app import events, permits
from sessions_app.mailbox import updates as mailbox
from sessions_app.memory import task_state
from sessions_app.models import BACKGROUND, Engine, EventType
from sessions_app.permits import Permit
from sessions_app.questions import consent, executions
from sessions_app.queue.kinds import is_persons
from sessions_app.turns import unattended_answer
from sessions_app.turns.chat_consent import ChatConsent
from sessions_app.turns.context import Prepared
from sessions_app.turns.tool_calls import JournalPorts

CLOSED = "This question is closed and cannot be answered any more."
TASK_STATE = "## Task State"
CURRENT_STATE = "## Current State"


def run_engine(prepared: Prepared, control: TurnControl) -> Generator[TurnEvent, None, TurnResult]:
    """Run the turn with its agent's engine."""
    given: dict[str, Any] = {
        "journal": prepared.journal,
        "context": replace(prepared.tool_context, control=control),
        "more": {tool.name: tool for tool in prepared.offer.tools},
        "permit": prepared.permit,
    }
    plans = prepared.agent.engine == Engine.PLANNER and prepared.kind.may_plan
    if found := unattended_answer.answer_of(prepared):
        given |= {"unasked": unattended_answer.ONLY_THIS} if plans else {}
        story = unattended_answer.run_answer(prepared, *found, given, control)
        specs = {spec.name: spec for spec in prepared.request.tools}
        return story if plans else _asking(ChatConsent(prepared=prepared, specs=specs), story)
    if not plans:
        return _chat(prepared, given, control)
    # late, so that a server whose agents only chat does not load the planner
    from agent_core.planner.run import run_plan

    start = _start(prepared)
    if start.request is None:
        return _without_model(start.result)
    request, given["permit"] = _restrict(prepared, start.request)
    specs = {spec.name: spec for spec in request.turn.tools}
    # a plan has asked before the call, so the consent is a stored row
    given["consented"] = lambda call: (
        call.name in specs
        and consent.grant(prepared.journal, call, specs[call.name], execution=request.execution.id)
    )
    ports = PlanPorts(**given, answered=start.answered)
    return _with_questions(prepared, ports, run_plan(request, ports, control))


def _with_questions(
    prepared: Prepared, ports: JournalPorts, story: Generator[TurnEvent, None, TurnResult]
) -> Generator[TurnEvent, None, TurnResult]:
    """Run the turn. To the answer of a scheduled turn, add the questions to its owner."""
    return unattended_answer.with_questions(prepared, ports, (yield from story))


def _chat(
    prepared: Prepared, given: dict[str, Any], control: TurnControl
) -> Generator[TurnEvent, None, TurnResult]:
    """Run a chat's turn. What it reads is read at once, while a connection is held."""
    chat_consent = ChatConsent.of(prepared)
    given["consented"] = chat_consent.allows
    request = chat_consent.with_note(_with_task_state(prepared))
    ports = JournalPorts(**given)
    return _asking(chat_consent, _with_questions(prepared, ports, run_turn(request, ports, control)))


def _asking(
    chat_consent: ChatConsent, story: Generator[TurnEvent, None, TurnResult]
) -> Generator[TurnEvent, None, TurnResult]:
    """Run the turn, and ask below its answer for the consent that its calls need."""
    return (yield from chat_consent.ask((yield from story)))


@dataclass(frozen=True, kw_only=True)
class _Start:
    """How a planned turn starts: with a request to the planner, or with a result that needs no model.

    `answered`: the id of the question that the message answers, and the answer: yes, no or empty.
    """

    request: PlanRequest | None = None
    result: TurnResult | None = None
    answered: tuple[str, str] | None = None


@dataclass(kw_only=True)
class PlanPorts(JournalPorts):
    """The ports of a planned turn; `answered` as in `_Start`."""

    answered: tuple[str, str] | None = None

    def saved(self, execution: Execution, event: TurnEvent, usage: Usage) -> None:
        """Store the journal step, the execution and the event in one fenced transaction."""
        data = {"status": execution.status, "step": execution.current_step, "usage": usage.to_json()}
        content = {"execution": execution.id, **event.content}
        with self._briefly_connected():
            self.journal.record(StepKind.CHECKPOINT, data, (EventType(event.type.value), content))
            turn = self.context.turn
            executions.store_execution(turn, execution, has_read=self.permit.has_read)
            if self.answered is not None and execution.status is Status.RUNNING:
                consent.settle_question(*self.answered, turn)
                self.answered = None

    def told(self, event: TurnEvent) -> None:
        """Store an event of the turn behind the fence."""
        turn, agent_id = self.context.turn, self.context.agent.pk
        with self._briefly_connected():
            self.journal.fence()
            events.event(turn, agent_id, EventType(event.type.value), event.content).save(force_insert=True)
        events.announce(turn.session_id)

    @contextmanager
    def _briefly_connected(self) -> Iterator[None]:
        """A transaction between two model calls. Before and after it the turn holds no connection."""
        try:
            with transaction.atomic():
                yield
        finally:
            connection.close()

    def live(self, names: tuple[str, ...]) -> tuple[Observation, ...]:
        """Return snapshots of these kinds, and short ones of the other kinds that exist. No transaction is open."""
        try:
            return self._live(names)
        finally:
            connection.close()

    def _live(self, names: tuple[str, ...]) -> tuple[Observation, ...]:
        asked = tuple(live.read_snapshot(name, self.context) for name in names)
        if self.context.session.type in BACKGROUND or self.permit.stranger is not None:
            return asked
        others = (name for name in live.kinds_present(self.context) if name not in names)
        return asked + tuple(live.read_snapshot(name, self.context, live.LONGEST_UNASKED) for name in others)


def _start(prepared: Prepared) -> _Start:
    """Decide what the turn's input means, and which execution it is for."""
    turn, said = prepared.turn, prepared.trigger.model_content
    begun = executions.execution_of_turn(turn)
    if not prepared.kind.is_message:
        # the job's message is stored; its rendered prompt is for this turn only
        given = _plan_request(prepared, begun or _fresh(turn.content), turn.content)
        return _Start(request=replace(given, words=prepared.request.message))
    # a hook that has lost `as_person` since does not speak for a person any more
    is_post = prepared.permit.stranger is not None or not is_persons(turn)
    if begun is not None:
        return _Start(request=_plan_request(prepared, begun, turn.content if is_post else said))
    if is_post:  # always a new request; `_restrict` shows it to the model as data
        return _new_request(prepared, turn.content)
    decision = decide_message(
        turn.content,  # the text of its files is not the person's
        executions.executions_of_session(turn),
        live_request=bool(live.kinds_mentioned(turn.content)),
        named=turn.input.execution,
    )
    if decision.meaning is Meaning.CLOSED:
        return _Start(
            result=TurnResult(ending=Ending.FAILED, error_code="question_closed", error_text=CLOSED)
        )
    return _start_decided(prepared, decision, said)


def _restrict(prepared: Prepared, request: PlanRequest) -> tuple[PlanRequest, Permit]:
    """Restrict the tools to the execution's permit (rule 3.5).

    An execution that a stranger began has the tools of a stranger's turn, and one that has read text from outside stays
    restricted, whoever continues it.
    """
    execution = request.execution
    permit = permits.permit_to_continue(prepared.permit, execution.origin, has_read=execution.has_read)
    if permit.stranger is not None and prepared.kind.is_message:
        request = replace(request, words=permits.shown_post(execution.request))
    if permit == prepared.permit:
        return request, permit
    tools = permits.permitted(request.turn.tools, permit, prepared.agent)
    return replace(request, turn=replace(request.turn, tools=tools)), permit


def _without_model(result: TurnResult | None) -> Generator[TurnEvent, None, TurnResult]:
    """Return the result of a turn that asks no model."""
    yield from ()
    if result is None:
        raise ValueError("the start has neither a request nor a result")
    return result


def _start_reply(prepared: Prepared, before: Execution, said: str) -> _Start:
    """Plan for a reply; for a yes that may be meant for something else ask the question again."""
    specs = {spec.name: spec for spec in prepared.request.tools}
    answer, again = consent.reply_to_plan(prepared.turn, prepared.session, before, said, specs)
    if again is not None:
        entries = (Entry(role=Role.ASSISTANT, content=again.text),)
        result = TurnResult(ending=Ending.SUCCEEDED, entries=entries, asks=again, was_shown=False)
        return _Start(result=result)
    executions.take_execution(before.id, prepared.journal)
    request = replace(
        _plan_request(prepared, _with_updates(prepared, replace(before, heard=0)), said),
        resume=Resume(question=before.question, reply=said),
        consent={"yes": True, "no": False}.get(answer),
    )
    return _Start(request=request, answered=(before.question_id, answer))


def _start_decided(prepared: Prepared, decision: MessageDecision, said: str) -> _Start:
    before = decision.execution
    match decision.meaning:
        case Meaning.REPLY | Meaning.CONFIRMATION if before is not None:
            return _start_reply(prepared, before, said)
        case Meaning.RETRY if before is not None:
            again = replace(before, iterations=0, heard=0, revise="")
            noted = again.with_observations(Observation(kind="message", text=said))
            return _Start(request=_plan_request(prepared, _with_updates(prepared, noted), said))
    return _new_request(prepared, said)


def _new_request(prepared: Prepared, text: str) -> _Start:
    execution = _with_updates(prepared, _fresh(text))
    return _Start(request=_plan_request(prepared, execution, text))


def _fresh(request: str) -> Execution:
    return Execution(id=new_id(), request=request)


def _with_updates(prepared: Prepared, execution: Execution) -> Execution:
    """Add the text before the person's words in the message: updates from the background, or another note."""
    before = fence.without_fences(
        prepared.request.message.removesuffix(prepared.trigger.model_content).strip()
    )
    if before and prepared.event_ids:
        return execution.with_updates(before)
    return execution.with_observations(Observation(kind="note", text=before)) if before else execution


def _plan_request(prepared: Prepared, execution: Execution, said: str) -> PlanRequest:
    """Make the planner's request. If it is about live state, that is read, and the task state is left out."""
    concerned = live.kinds_mentioned(f"{execution.request}\n{said}")
    return PlanRequest(
        turn=prepared.request,
        execution=execution,
        memory="" if concerned else _task_state(prepared).as_text(),
        live=concerned,
        is_heard=prepared.session.type not in BACKGROUND,
        may_ask_consent=is_persons(prepared.turn) and prepared.permit.stranger is None,
        clock=partial(_local_time, prepared.agent.zone),
        updates=partial(mailbox.summaries, prepared.event_ids),
    )


def _local_time(zone: ZoneInfo) -> str:
    """Weekday, date and time with its offset, and the zone."""
    now = datetime.now(zone)
    return f"{now:%A}, {now.isoformat(' ', 'minutes')} ({now.tzinfo})"


def _task_state(prepared: Prepared) -> TaskStateData:
    return task_state.task_state_of(
        None if prepared.kind.trigger_only else getattr(prepared.session, "task_state", None)
    )


def _with_task_state(prepared: Prepared) -> TurnRequest:
    """Put the task state before the history, which no longer contains the messages that it was made of.

    If the message is about live state, the task state is shown without facts about it, and snapshots are appended.
    """
    held, history = _task_state(prepared), prepared.request.history
    if not held.as_text():
        return prepared.request
    names = live.kinds_mentioned(_question(prepared))
    if names:
        held = FactFilter(things=live.all_things()).without_live(held)
        looks = [live.read_snapshot(name, prepared.tool_context) for name in names]
        shown = "\n\n".join(fence.fenced(each.kind.removeprefix("live:"), each.text) for each in looks)
        history = (*history, Entry(role=Role.USER, content=f"{CURRENT_STATE}\n\n{shown}", stays=True))
    if as_text := held.as_text():
        first = f"{TASK_STATE}\n\n{fence.fenced('task state', as_text)}"
        history = (Entry(role=Role.USER, content=first, stays=True), *history)
    return replace(prepared.request, history=history)


def _question(prepared: Prepared) -> str:
    """The text that says what the turn is about. For a job: its message, because its prompt always mentions
    automations.
    """
    return prepared.trigger.model_content if prepared.kind.is_message else prepared.turn.content
