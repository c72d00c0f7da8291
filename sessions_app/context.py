"""Context: what the model is given for a turn, recorded as step 0 before it is shown.

A resumed turn replays step 0 word for word, so that what it acknowledges is what was shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import structlog
from django.db import connection, transaction

from agent_core import mcp_tools, tools
from agent_core.journal import said_so_far
from agent_core.mcp_tools import NOTHING, Offer
from agent_core.policy import TurnPolicy
from agent_core.strategies import STRATEGIES, ContextInput, DueTask
from agent_core.types import Ending, Entry, Step, StepKind, ToolSpec, TurnRequest, TurnResult
from sessions_app import history, mailbox, mcp_settings, preferences
from sessions_app.journal import Journal
from sessions_app.kinds import Kind, Trigger, kind_of
from sessions_app.models import Agent, Document, Session, SessionType, Turn
from sessions_app.tools import ToolContext

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """All that a turn needs beyond its row."""

    turn: Turn
    journal: Journal
    kind: Kind
    session: Session
    agent: Agent
    trigger: Trigger
    event_ids: tuple[int, ...]
    request: TurnRequest
    tool_context: ToolContext
    offer: Offer = NOTHING  # what MCP servers give to this turn


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """Step 0: the trigger, the rendered message and the mailbox events in it."""

    trigger: Trigger
    message: str
    event_ids: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"trigger": self.trigger.to_json(), "message": self.message, "event_ids": list(self.event_ids)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> _Shown:
        return cls(
            trigger=Trigger.from_json(data["trigger"]),
            message=data["message"],
            event_ids=tuple(data["event_ids"]),
        )


def prepare(turn: Turn, journal: Journal) -> Prepared:
    """Read what the turn builds on and record step 0. Stale if the turn is no longer ours."""
    kind = kind_of(turn)
    rows = Session.objects.select_related("agent", "task_state").annotate(wishes=preferences.of_session())
    session = rows.get(pk=turn.session_id)
    documents = dict(Document.objects.filter(agent=session.agent).values_list("name", "content"))
    steps = journal.steps()
    policy = TurnPolicy().merged(kind.policy, session.agent.policy, turn.metadata.get("policy", {}))
    offer = NOTHING if kind.alone else _offer(session.agent, policy)
    system_prompt, shown = _shown(turn, kind, session, documents, journal, steps, offer)
    tool_context = ToolContext(turn=turn, session=session, agent=session.agent, interactive=kind.interactive)
    return Prepared(
        turn=turn,
        journal=journal,
        kind=kind,
        session=session,
        agent=session.agent,
        trigger=shown.trigger,
        event_ids=shown.event_ids,
        tool_context=tool_context,
        offer=offer,
        request=TurnRequest(
            system_prompt=system_prompt,
            history=() if kind.alone else _history(session),
            message=shown.message,
            steps=steps[1:],
            model=session.agent.effective_model,
            policy=policy,
            attempt=turn.attempt,
            tools=() if kind.alone else _offered(tool_context, offer),
        ),
    )


def broken(turn: Turn, journal: Journal, error: Exception) -> tuple[Prepared, TurnResult]:
    """What is needed to end a turn in FAILED from its journal alone, whatever went wrong before."""
    steps = journal.steps(of_this_attempt=True)
    entries, usage = said_so_far(steps[1:])
    shown = _Shown.from_json(steps[0].data) if steps else None
    kind = kind_of(turn)
    trigger = shown.trigger if shown else _trigger_of_a_broken_turn(kind, turn)
    session = Session.objects.select_related("agent").get(pk=turn.session_id)
    prepared = Prepared(
        turn=turn,
        journal=journal,
        kind=kind,
        session=session,
        agent=session.agent,
        trigger=trigger,
        event_ids=(),
        request=TurnRequest(system_prompt="", history=(), message=trigger.model_content, model=""),
        tool_context=ToolContext(turn=turn, session=session, agent=session.agent, interactive=False),
    )
    result = TurnResult(
        ending=Ending.FAILED,
        entries=entries,
        usage=usage,
        error_code=getattr(error, "code", "internal_error"),
        error_text=getattr(error, "text", "Something went wrong."),
        error_detail=f"{type(error).__name__}: {error}"[:2000],
    )
    return prepared, result


def _trigger_of_a_broken_turn(kind: Kind, turn: Turn) -> Trigger:
    try:
        return kind.trigger(turn)
    except Exception:  # the trigger itself may be what is broken; the closure still needs one
        log.exception("trigger_broke")
        return Trigger(content=turn.content, model_content=turn.content, source={"kind": turn.kind})


def _shown(
    turn: Turn,
    kind: Kind,
    session: Session,
    documents: dict[str, str],
    journal: Journal,
    steps: tuple[Step, ...],
    offer: Offer,
) -> tuple[str, _Shown]:
    before = _Shown.from_json(steps[0].data) if steps else None
    # what no model is to see waits for a turn that has one
    shows = kind.drains_mailbox and before is None and kind.said(turn) is None
    drained = mailbox.prepare_drain(session.pk) if shows else None
    trigger = before.trigger if before else kind.trigger(turn)
    built = STRATEGIES[session.type].build(
        ContextInput(
            agent_name=session.agent.name,
            timezone=session.agent.timezone,
            trigger=trigger.model_content,
            documents=documents,
            updates=drained.updates if drained else (),
            due_tasks=tuple(
                DueTask(id=task["id"], title=task["title"], description=task["description"])
                for task in turn.metadata.get("tasks", ())
            ),
            missing_tools=offer.missing,
            instructions=_instructions(session),
        )
    )
    if before:
        return built.system_prompt, _as_of_now(kind, turn, before)
    shown = _Shown(trigger=trigger, message=built.message, event_ids=drained.ids if drained else ())
    if trigger.template is None:
        journal.record(StepKind.PROMPT, shown.to_json())
    else:
        with transaction.atomic():
            journal.record(StepKind.PROMPT, shown.to_json())
            kind.shown(turn, trigger)
    return built.system_prompt, shown


def _as_of_now(kind: Kind, turn: Turn, before: _Shown) -> _Shown:
    """Of a turn that speaks for itself no model was shown anything: its marks and route are those of this attempt."""
    says_itself = kind.alone and kind.said(turn) is not None
    return replace(before, trigger=kind.trigger(turn)) if says_itself else before


def _instructions(session: Any) -> str:
    """Standing ones: a job's own, else what its owner wishes of the agent."""
    own: str = session.variables.get("job_instructions", "")
    return own if session.type == SessionType.JOB else session.wishes or ""


def _history(session: Session) -> tuple[Entry, ...]:
    return history.read(session.pk, session.window_from_seq)


def _offer(agent: Agent, policy: TurnPolicy) -> Offer:
    servers = mcp_settings.servers(agent)
    if not servers:
        return NOTHING
    connection.close()  # back to the pool: the servers may take their time
    return mcp_tools.offer(servers, mcp_settings.reach(), policy.tool_timeout_seconds)


def _offered(context: ToolContext, offer: Offer) -> tuple[ToolSpec, ...]:
    """Ours first: what comes and goes with servers leaves the prompt before it as it was."""
    ours = tuple(tool.spec() for tool in tools.all() if tool.offered(context))
    return ours + tuple(tool.spec() for tool in offer.tools)
