"""Prepare a turn: what the model is shown, recorded as step 0 of the journal before the model call.

A resumed turn replays step 0 word for word, so that it acknowledges exactly what was shown.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
import structlog
from django.db import connection

from agent_core import tools
from agent_core.llm import tokens
from agent_core.mcp import offer as mcp_tools
from agent_core.mcp.offer import NOTHING, Offer
from agent_core.policy import TurnPolicy
from agent_core.strategies import STRATEGIES, ContextInput, DueTask
from agent_core.tool_spec import ToolSpec
from agent_core.turn import request_size
from agent_core.turn.endings import error_detail_for
from agent_core.turn.transcript import said_so_far, used_in
from agent_core.types import Ending, Entry, Role, Step, StepKind, TurnRequest, TurnResult, Usage
from sessions_app.agents import mcp_servers
from sessions_app.agents.budgets import account_of
from sessions_app.connections.usable import model_choice
from sessions_app.exceptions import NotFound
from sessions_app.journal import Journal
from sessions_app.limits.policies import policy_of
from sessions_app.mailbox import updates as mailbox
from sessions_app.memory import history, images
from sessions_app.models import (
    Agent,
    Document,
    MailboxEvent,
    Preference,
    Session,
    SessionType,
    TaskState,
    Turn,
    TurnInput,
    UserLimits,
)
from sessions_app.models.session import INSTRUCTIONS_KEY
from sessions_app.permits import UNBOUND, Permit, permit_of, permitted, stranger_of
from sessions_app.postgres.rows import instance_of
from sessions_app.postgres.statements import Statement, table
from sessions_app.queue.kinds import Kind, NothingToDo, Trigger, kind_of
from sessions_app.turns.tool_calls import ToolContext

log = structlog.get_logger(__name__)

_session, _agent, _task_state = table(Session), table(Agent), table(TaskState)
_PARTS: tuple[Any, ...] = (Session, Agent, TaskState)
NO_USAGE = Usage()
NO_MAIL = mailbox.ShownUpdates()


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
    """Read what the turn needs and record step 0, which keeps what was used before it. Stale."""
    kind = kind_of(turn)
    read = _read_for(turn, kind)
    session = turn.session = read.session
    choice, steps = _model_choice(turn, read), journal.steps()
    policy = policy_of(kind.policy, session.agent.policy, turn.input.policy)
    answer = kind.answer_without_model(turn)
    offer = NOTHING if kind.trigger_only else _offer(session.agent, policy, turn.input.allow_tools)
    system_prompt, shown = _render(turn, read, journal, steps, offer, used_before, answer)
    tool_context = _tool_context(turn, session, interactive=kind.interactive, documents=read.documents)
    offered = () if kind.trigger_only else _tool_specs(tool_context, offer)
    fixed = tokens.of_text(system_prompt) + request_size.of_tools(offered)
    asked, room, seen = _fitted(read, shown, fixed, kind.runs_shown)
    permit = permit_of(turn, steps, seen, person_waits=kind.interactive, shown_foreign=shown.foreign)
    return Prepared(
        turn=turn,
        journal=journal,
        kind=kind,
        session=session,
        trigger=shown.trigger,
        event_ids=shown.event_ids,
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


def _read_for(turn: Turn, kind: Kind) -> Context:
    """Read the turn's context, without the history if its kind is shown the trigger alone."""
    most = 0 if kind.trigger_only else history.WINDOW
    return read_context(turn.session_id, of_home=turn.input.home, most=most)


def _model_choice(turn: Turn, read: Context) -> dict[str, Any]:
    """The models of the turn, else of the agent, and the account. Requests in this thread get the first one's limit."""
    agent, given = read.session.agent, turn.input
    choice = model_choice(agent, given.model, given.fallback_model, given.max_output_tokens)
    request_size.use_model(choice["model"], choice["connections"])
    return choice | {"account": account_of(turn, agent, read.user_limits)}


def prepare_failure(
    turn: Turn, journal: Journal, error: Exception, *, plain: bool = False, used: Usage | None = None
) -> tuple[Prepared, TurnResult]:
    """Make what `commit` needs to end a turn as FAILED, from its journal alone.

    `plain`: leave out its input and the answer so far, because storing them failed. `used`: what its model calls used;
    None: those of its journal.
    """
    journaled = journal.steps(of_this_attempt=True)
    steps = () if plain else journaled
    entries, _ = said_so_far(steps[1:])
    shown = PromptStep.from_json(steps[0].data) if steps else None
    kind = kind_of(turn)
    session = turn.session = Session.objects.select_related("agent").get(pk=turn.session_id)
    trigger = shown.trigger if shown else _trigger_of_a_broken_turn(kind, turn, session)
    if plain or not shown:
        trigger = replace(trigger, template=None)
    if plain:
        trigger = replace(trigger, content="", model_content="", metadata={})
    prepared = _without_request(turn, journal, trigger)
    result = TurnResult(
        ending=Ending.FAILED,
        entries=entries,
        usage=used_in(journaled) if used is None else used,
        error_code=getattr(error, "code", "internal_error"),
        error_text=getattr(error, "text", "Something went wrong."),
        error_detail=error_detail_for(error),
    )
    return prepared, result


def prepare_skip(turn: Turn, journal: Journal, skip: NothingToDo) -> tuple[Prepared, TurnResult]:
    """Make what `commit` needs to end a turn that has nothing to do, without a message."""
    turn.session = Session.objects.select_related("agent").get(pk=turn.session_id)
    result = TurnResult(
        ending=Ending.CANCELLED,
        skipped=True,
        was_shown=False,
        error_code=skip.code,
        error_text=skip.text,
        cap=skip.cap,
    )
    return _without_request(turn, journal, Trigger(content="", model_content="")), result


def _without_request(turn: Turn, journal: Journal, trigger: Trigger) -> Prepared:
    """Return what `commit` needs to end a turn that asks no model any more."""
    session = turn.session
    return Prepared(
        turn=turn,
        journal=journal,
        kind=kind_of(turn),
        session=session,
        trigger=trigger,
        event_ids=(),
        request=TurnRequest(system_prompt="", history=(), message=trigger.model_content, model=""),
        tool_context=_tool_context(turn, session, interactive=False),
    )


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
    unread = NO_MAIL if before else _updates(turn, read, answer)
    trigger = before.trigger if before else kind.trigger(turn, session)
    built = STRATEGIES[kind.strategy or session.type](
        ContextInput(
            agent_name=session.agent.name,
            timezone=session.agent.timezone,
            trigger=trigger.model_content,
            documents=read.documents,
            updates=unread.updates,
            due_tasks=_due_tasks(turn),
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
    journal.record(StepKind.PROMPT, shown.to_json())
    return built.system_prompt, shown


def _updates(turn: Turn, read: Context, answer: str | None) -> mailbox.ShownUpdates:
    """The updates that the turn shows to its model: none in a turn without a model or in a stranger's turn."""
    shows = read.has_mail and kind_of(turn).is_message and answer is None and stranger_of(turn) is None
    return mailbox.updates_to_show(read.session.pk) if shows else NO_MAIL


def _with_current_trigger(
    kind: Kind, turn: Turn, session: Session, before: PromptStep, answer: str | None
) -> PromptStep:
    """Return step 0 with the trigger of this attempt, if no model was shown the message: its route may have changed."""
    if not kind.trigger_only or answer is None:
        return before
    return replace(before, trigger=kind.trigger(turn, session))


def _fitted(
    read: Context, shown: PromptStep, fixed: int, runs_shown: int | None
) -> tuple[Entry, int, tuple[Entry, ...]]:
    """The message with its images, the tokens left beside it and `fixed` ones, and the history that fits there."""
    metadata = shown.trigger.metadata
    messages = history.without_old_runs(read.messages, runs_shown)
    found = images.read_images(read.session.agent, (metadata, *(each.metadata for each in messages)))
    asked = Entry(role=Role.USER, content=shown.message, images=images.images_of(metadata, found))
    room = request_size.room(fixed + tokens.of_entry(asked))
    seen = history.fitting_entries(messages, room, found)
    return asked, room, seen


def _due_tasks(turn: Turn) -> tuple[DueTask, ...]:
    return tuple(
        DueTask(id=task["id"], title=task["title"], description=task["description"])
        for task in turn.input.tasks
    )


def _instructions(read: Context) -> str:
    """Return the standing instructions: those of a job, else the owner's preferences."""
    own: str = read.session.variables.get(INSTRUCTIONS_KEY, "")
    return own if read.session.type == SessionType.JOB else read.preferences


def _offer(agent: Agent, policy: TurnPolicy, only: Sequence[str] | None) -> Offer:
    """Ask the agent's MCP servers for their tools; with `only`, just the servers that have one of these tools."""
    servers = mcp_servers.servers(agent)
    if only is not None:
        named = {name.partition(tools.SEPARATOR)[0] for name in only if tools.SEPARATOR in name}
        servers = tuple(server for server in servers if server.name in named)
    if not servers:
        return NOTHING
    connection.close()  # back to the pool: the servers may be slow
    return mcp_tools.offer_tools(servers, mcp_servers.reach(agent.owner_id), policy.tool_timeout_seconds)


def _tool_specs(context: ToolContext, offer: Offer) -> tuple[ToolSpec, ...]:
    """List our own tools first, so that changing MCP servers keep the prompt before them cacheable.

    If the turn's input names tools, no others are listed: a call to another one is refused as unknown.
    """
    only = context.turn.input.allow_tools
    ours = tuple(tool.spec_for(context) for tool in tools.all() if tool.offered(context))
    found = ours + tuple(tool.spec() for tool in offer.tools)
    return found if only is None else tuple(spec for spec in found if spec.name in only)


@dataclass(frozen=True, kw_only=True)
class Context:
    """The rows that a turn reads. `preferences` and `user_limits` are the owner's; `has_mail`: updates wait in the
    mailbox.
    """

    session: Session
    preferences: str
    user_limits: dict[str, Any]
    documents: dict[str, str]
    has_mail: bool
    messages: list[history.StoredMessage]  # newest first


def _of_session(select: Any) -> Any:
    return select.correlate(_session).scalar_subquery()


def _select_context() -> Any:
    """Select the context of a session. Parameters: `session_id`, `most`, `of_turns`."""
    document, preference, mail = table(Document), table(Preference), table(MailboxEvent)
    of_user = table(UserLimits)
    user_limits = sa.select(of_user.c.limits).where(of_user.c.user_id == _session.c.owner_id)
    documents = sa.select(sa.func.json_object_agg(document.c.name, document.c.content)).where(
        document.c.agent_id == _session.c.agent_id
    )
    preferences = sa.select(preference.c.content).where(
        preference.c.agent_id == _session.c.agent_id, preference.c.user_id == _session.c.owner_id
    )
    has_mail = sa.exists().where(
        mail.c.target_id == _session.c.id, mail.c.acknowledged_at.is_(None), mail.c.dropped_at.is_(None)
    )
    columns = [
        column.label(f"{part.name}_{column.name}")
        for part in (_session, _agent, _task_state)
        for column in part.c
    ]
    return (
        sa.select(
            *columns,
            _of_session(preferences).label("preferences"),
            _of_session(user_limits).label("user_limits"),
            _of_session(documents).label("documents"),
            has_mail.label("has_mail"),
            history.newest_messages(_session).label("messages"),
        )
        .select_from(_session)
        .join(_agent, _agent.c.id == _session.c.agent_id)
        .outerjoin(_task_state, _task_state.c.session_id == _session.c.id)
        .where(_session.c.id == sa.bindparam("session_id", type_=sa.Uuid()))
    )


CONTEXT = Statement(_select_context, prepared=True)


def read_context(session_id: uuid.UUID, *, of_home: str | None = None, most: int = history.WINDOW) -> Context:
    """Read the context of a turn, with at most `most` messages. NotFound if the session is gone.

    `of_home`: only messages of turns with this home, so that nothing goes from one home to another.
    """
    of_turns = None if of_home is None else json.dumps(TurnInput(home=of_home).to_json())
    row = CONTEXT.first(session_id=session_id, most=most, of_turns=of_turns)
    if row is None:
        raise NotFound("there is no such session")
    return _context_of(row)


def _context_of(row: Sequence[Any]) -> Context:
    """Make a context of the columns of `_select_context`."""
    values = iter(row)
    session, agent, state = (
        instance_of(model, [next(values) for _ in model._meta.concrete_fields]) for model in _PARTS
    )
    session.agent = agent
    session._state.fields_cache["task_state"] = state if state.pk is not None else None
    preferences, user_limits, documents, has_mail, messages = values
    return Context(
        session=session,
        preferences=preferences or "",
        user_limits=json.loads(user_limits) if user_limits else {},
        documents=documents or {},
        has_mail=has_mail,
        messages=[history.StoredMessage(**each) for each in messages],
    )
