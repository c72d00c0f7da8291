"""Prepare a turn: what the model is shown, recorded as step 0 of the journal before the model call.

A resumed turn replays step 0 word for word, so that it acknowledges exactly what was shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import structlog
from django.db import connection

from agent_core import tools
from agent_core.llm import tokens
from agent_core.mcp import offer as mcp_tools
from agent_core.mcp.offer import NOTHING, Offer
from agent_core.policy import TurnPolicy
from agent_core.strategies import STRATEGIES, ContextInput
from agent_core.tool_spec import ToolSpec
from agent_core.turn import budget
from agent_core.turn.endings import error_detail_for
from agent_core.turn.transcript import said_so_far
from agent_core.types import Ending, Entry, Role, Step, TurnRequest, TurnResult, Usage
from sessions_app.agents import mcp_servers
from sessions_app.connections.usable import model_choice
from sessions_app.journal.journal import Journal
from sessions_app.limits.policies import policy_of
from sessions_app.mailbox import updates as mailbox
from sessions_app.memory import history, images
from sessions_app.models import Agent, Session, SessionType, Turn
from sessions_app.models.session import INSTRUCTIONS_KEY
from sessions_app.permits import UNBOUND, Permit, permit_of, permitted, stranger_of
from sessions_app.queue.kinds import Kind, Trigger, kind_of
from sessions_app.turns.context_statement import Context, read_context
from sessions_app.turns.tool_calls import ToolContext

log = structlog.get_logger(__name__)

NO_USAGE = Usage()


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything that a turn needs besides its row."""

    turn: Turn
    journal: Journal
    kind: Kind
    session: Session
    trigger: Trigger
    event_ids: tuple[int, ...]
    request: TurnRequest
    tool_context: ToolContext
    offer: Offer = NOTHING  # tools of MCP servers
    used_before: Usage = NO_USAGE
    permit: Permit = UNBOUND
    room: int = 0  # tokens of a request that are left for the history
    answer: str | None = None  # the answer of a turn that needs no model

    @property
    def agent(self) -> Agent:
        """The session's agent."""
        return self.session.agent


@dataclass(frozen=True, kw_only=True)
class PromptStep:
    """Step 0: the trigger, the rendered message and its mailbox events. `foreign`: it contains text from outside."""

    trigger: Trigger
    message: str
    event_ids: tuple[int, ...]
    used_before: Usage = NO_USAGE  # by `Kind.before`
    foreign: bool = False

    def to_json(self) -> dict[str, Any]:
        shown = {
            "trigger": self.trigger.to_json(),
            "message": self.message,
            "event_ids": list(self.event_ids),
            "foreign": self.foreign,
        }
        return shown | ({} if self.used_before == NO_USAGE else {"used_before": self.used_before.to_json()})

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PromptStep:
        return cls(
            trigger=Trigger.from_json(data["trigger"]),
            message=data["message"],
            event_ids=tuple(data["event_ids"]),
            used_before=Usage.from_json(data.get("used_before", {})),
            foreign=bool(data.get("foreign")),
        )


def prepare_turn(turn: Turn, journal: Journal, used_before: Usage = NO_USAGE) -> Prepared:
    """Read what the turn needs and record step 0. `used_before` is the usage of `Kind.before`. Stale."""
    kind = kind_of(turn)
    read = read_context(turn.session_id, kind.remembers(turn), most=kind.window)
    session = turn.session = read.session
    choice = _model_choice(session.agent)
    steps = journal.steps()
    policy = policy_of(kind.policy, session.agent.policy, turn.metadata.get("policy", {}))
    answer = kind.answer_without_model(turn)
    offer = NOTHING if kind.trigger_only else _offer(session.agent, policy)
    system_prompt, shown = _render(turn, read, journal, steps, offer, used_before, answer)
    tool_context = _tool_context(turn, session, interactive=kind.interactive, documents=read.documents)
    offered = () if kind.trigger_only else _tool_specs(tool_context, offer)
    asked, room, seen = _fitted(read, shown, tokens.of_text(system_prompt) + budget.of_tools(offered))
    permit = permit_of(turn, steps, seen, person_waits=kind.interactive, shown_foreign=shown.foreign)
    return Prepared(
        turn=turn,
        journal=journal,
        kind=kind,
        session=session,
        trigger=shown.trigger,
        event_ids=shown.event_ids,
        used_before=shown.used_before,
        tool_context=tool_context,
        offer=offer,
        permit=permit,
        room=room,
        answer=answer,
        request=TurnRequest(
            system_prompt=system_prompt,
            history=seen,
            message=shown.message,
            images=asked.images,
            steps=steps[1:],
            **choice,
            policy=policy,
            attempt=turn.attempt,
            tools=() if kind.trigger_only else permitted(offered, permit, session.agent),
        ),
    )


def _model_choice(agent: Agent) -> dict[str, Any]:
    """Return the agent's models. From now on the budget is that of the first one."""
    choice = model_choice(agent)
    budget.use_model(choice["model"], choice["connections"])
    return choice


def prepare_failure(
    turn: Turn, journal: Journal, error: Exception, *, plain: bool = False
) -> tuple[Prepared, TurnResult]:
    """Make what `commit` needs to end a turn as FAILED, from its journal alone.

    `plain`: leave out its input and the answer so far, because storing them failed.
    """
    steps = () if plain else journal.steps(of_this_attempt=True)
    entries, usage = said_so_far(steps[1:])
    shown = PromptStep.from_json(steps[0].data) if steps else None
    usage += shown.used_before if shown else NO_USAGE
    kind = kind_of(turn)
    session = turn.session = Session.objects.select_related("agent").get(pk=turn.session_id)
    trigger = shown.trigger if shown else _trigger_of_a_broken_turn(kind, turn, session)
    if plain:
        trigger = replace(trigger, content="", model_content="", metadata={})
    prepared = Prepared(
        turn=turn,
        journal=journal,
        kind=kind,
        session=session,
        trigger=trigger,
        event_ids=(),
        request=TurnRequest(system_prompt="", history=(), message=trigger.model_content, model=""),
        tool_context=_tool_context(turn, session, interactive=False),
    )
    result = TurnResult(
        ending=Ending.FAILED,
        entries=entries,
        usage=usage,
        error_code=getattr(error, "code", "internal_error"),
        error_text=getattr(error, "text", "Something went wrong."),
        error_detail=error_detail_for(error),
    )
    return prepared, result


def _tool_context(turn: Turn, session: Session, **more: Any) -> ToolContext:
    return ToolContext(turn=turn, session=session, agent=session.agent, **more)


def _trigger_of_a_broken_turn(kind: Kind, turn: Turn, session: Session) -> Trigger:
    try:
        return kind.trigger(turn, session)
    except Exception:  # the trigger itself may be broken; the commit still needs one
        log.exception("trigger_broke")
        return Trigger(content=turn.content, model_content=turn.content, source={"kind": turn.kind})


def _render(
    turn: Turn,
    read: Context,
    journal: Journal,
    steps: tuple[Step, ...],
    offer: Offer,
    used_before: Usage,
    answer: str | None,
) -> tuple[str, PromptStep]:
    """Render the system prompt and the message. Step 0 is recorded, unless an earlier attempt has done it."""
    kind, session = kind_of(turn), read.session
    before = PromptStep.from_json(steps[0].data) if steps else None
    # updates wait for a turn that has a model, and are not shown to strangers
    shows = read.has_mail and kind.drains_mailbox and before is None and answer is None
    shows = shows and stranger_of(turn) is None
    unread = mailbox.updates_to_show(session.pk) if shows else mailbox.ShownUpdates()
    trigger = before.trigger if before else kind.trigger(turn, session)
    built = STRATEGIES[kind.strategy or session.type](
        ContextInput(
            agent_name=session.agent.name,
            timezone=session.agent.timezone,
            trigger=trigger.model_content,
            documents=read.documents,
            updates=unread.updates,
            due_tasks=kind.due_tasks(turn),
            missing_tools=offer.missing,
            instructions=_instructions(read),
        )
    )
    if before:
        return built.system_prompt, _with_current_trigger(kind, turn, session, before, answer)
    shown = PromptStep(
        trigger=trigger,
        message=built.message,
        event_ids=unread.ids,
        used_before=used_before,
        foreign=unread.foreign,
    )
    journal.record_prompt(shown.to_json(), trigger.template, trigger.model_content)
    return built.system_prompt, shown


def _with_current_trigger(
    kind: Kind, turn: Turn, session: Session, before: PromptStep, answer: str | None
) -> PromptStep:
    """If no model was shown the message, use the trigger of this attempt: its route may have changed."""
    if not kind.trigger_only or answer is None:
        return before
    return replace(before, trigger=kind.trigger(turn, session))


def _fitted(read: Context, shown: PromptStep, fixed: int) -> tuple[Entry, int, tuple[Entry, ...]]:
    """The message with its images, the tokens left beside it and `fixed` ones, and the history that fits there."""
    metadata = shown.trigger.metadata
    found = images.read_images(read.session.agent, (metadata, *(each.metadata for each in read.messages)))
    asked = Entry(role=Role.USER, content=shown.message, images=images.images_of(metadata, found))
    room = budget.room(fixed + tokens.of_entry(asked))
    seen = history.fitting_entries(read.messages, room, found)
    return asked, room, seen


def _instructions(read: Context) -> str:
    """Return the standing instructions: those of a job, else the owner's preferences."""
    own: str = read.session.variables.get(INSTRUCTIONS_KEY, "")
    return own if read.session.type == SessionType.JOB else read.preferences


def _offer(agent: Agent, policy: TurnPolicy) -> Offer:
    servers = mcp_servers.servers(agent)
    if not servers:
        return NOTHING
    connection.close()  # back to the pool: the servers may be slow
    return mcp_tools.offer_tools(servers, mcp_servers.reach(agent.owner_id), policy.tool_timeout_seconds)


def _tool_specs(context: ToolContext, offer: Offer) -> tuple[ToolSpec, ...]:
    """List our own tools first, so that changing MCP servers keep the prompt before them cacheable."""
    ours = tuple(tool.spec_for(context) for tool in tools.all() if tool.offered(context))
    return ours + tuple(tool.spec() for tool in offer.tools)
