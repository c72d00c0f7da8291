"""Run the tools of a turn: their context, refusals and journaled results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Count, Sum
from django.db.models.functions import Coalesce, Length

from agent_core import tools
from agent_core.exceptions import Stale, ToolFailed, UnknownTool
from agent_core.tool_spec import Effect, ToolSpec
from agent_core.turn.consent import NEEDED
from agent_core.turn.control import TurnControl
from agent_core.types import Entry, StepKind, ToolCall, ToolOutcome, ToolResult, Usage
from sessions_app import permits
from sessions_app.journal import Journal
from sessions_app.models import Agent, EventType, OnBusy, Session, Turn, TurnKind, TurnState
from sessions_app.permits import Permit
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.queue.kinds import is_persons, kind_of

log = structlog.get_logger(__name__)

ASK = (
    "This needs the person's consent. The server asks them for it below your answer, naming the tool and its arguments."
    " Say in your answer what you want to do and why, without a question of your own. You are told when they have said"
    " yes, and make the very same call then."
)
UNKNOWN = "Interrupted, outcome unknown: check whether it took effect before you repeat it."
REFUSED = (
    "This needs a person's consent and cannot be done in a scheduled turn; the person was told that you ask."
)
OUTPUT_LIMIT = 50_000  # characters of a tool's output; the rest is cut
MOST_GUESTS = 20  # messages that may join one turn
MOST_GUEST_CHARACTERS = 20_000  # characters of all of them


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The facts about a turn that its tools may use.

    `interactive`: a person waits for the answer. `documents`: the agent's, as the turn was prepared. `has_read`: the
    turn has read text from outside. `stranger`: the hook whose post it answers, None for a person's and the server's
    own words. `control`: cancels the running turn, and has the deadline of the call. `call_id`: the id of the call,
    which is the same when it is repeated.
    """

    turn: Turn
    session: Session
    agent: Agent
    interactive: bool
    documents: Mapping[str, str] = field(default_factory=dict)
    has_read: bool = False
    stranger: str | None = None
    control: TurnControl | None = None
    call_id: str = ""

    @property
    def user(self) -> str:
        """The id of the agent's owner, against whose limits the call counts."""
        return str(self.agent.owner_id)


@dataclass(kw_only=True)
class JournalPorts:
    """The ports of a running turn (agent_core's TurnPorts): each method is a fenced write to its journal.

    `more`: tools of this turn alone, by name. `consented`: whether a person has said yes to a dangerous call.
    `unasked`: the text for the model where consent is missing. `asked_owner`: a call of this scheduled turn was
    refused, and its owner is asked.
    """

    journal: Journal
    context: ToolContext
    more: Mapping[str, tools.Tool] = field(default_factory=dict)
    consented: Callable[[ToolCall], bool] = lambda _call: False
    permit: Permit = field(default_factory=Permit)
    unasked: str = ASK
    asked_owner: bool = False

    def responded(self, entry: Entry, usage: Usage) -> None:
        """Journal a model response that asks for tools."""
        self.journal.record(StepKind.RESPONSE, {"entry": entry.to_json(), "usage": usage.to_json()})

    def intend(self, call: ToolCall) -> None:
        """Journal the intent, and commit it before the call is made."""
        shown = {"id": call.id, "name": call.name, "arguments": call.arguments}
        self.journal.record(StepKind.INTENT, call.to_json(), (EventType.TOOL_CALL, shown))

    def call(self, call: ToolCall) -> ToolResult:
        """Run the tool and journal its result. A transactional tool does both in one fenced transaction."""
        try:
            tool = self.more.get(call.name) or tools.get(call.name)
        except UnknownTool as error:
            return self._settle(self._failed(call, error))
        spec = tool.spec(self._now(call))
        refusal = self._refusal(call, spec.effect_with(call.arguments))
        if refusal is not None:
            if refusal is not permits.STRANGERS and (problem := spec.in_words(call.arguments).problem):
                return self._settle(self._failed(call, ToolFailed(problem)))
            return self._refuse(call, spec, refusal)
        return self._call_in_transaction(tool, call) if tool.transactional else self._call_outside(tool, call)

    def _refusal(self, call: ToolCall, effect: Effect) -> str | None:
        """Return why the call is refused, as a text for the model; None if it may be made. Checked at each call."""
        if not self.is_restricted(effect) or call.name in permits.allowed_now(
            self.permit, self.context.agent.pk
        ):
            return None
        if self.permit.stranger is not None:
            return permits.STRANGERS
        if not self.context.interactive:
            return REFUSED
        return None if self.consented(call) else self.unasked

    def _refuse(self, call: ToolCall, spec: ToolSpec, refusal: str) -> ToolResult:
        """Journal a refused call. The turn's kind is told of one that needs consent, so that it can ask a person."""
        needs = NEEDED if refusal in (ASK, REFUSED) else ""
        result = ToolResult(
            id=call.id, name=call.name, output=refusal, outcome=ToolOutcome.REFUSED, error_class=needs
        )
        with transaction.atomic():
            self.journal.fence()
            if spec.effect_with(call.arguments) is Effect.DANGEROUS or refusal is REFUSED:
                turn = self.context.turn
                kind_of(turn).refused(turn, call, spec, has_read=self.permit.has_read)
            self.asked_owner = self.asked_owner or refusal is REFUSED
            return self._settle(result)

    def is_restricted(self, effect: Effect) -> bool:
        """Whether a call with this effect needs a person's consent, unless its tool is allowed by name."""
        return not permits.is_free(self.permit, effect)

    def outcome_unknown(self, call: ToolCall) -> ToolResult:
        """Journal that a call was interrupted and its outcome is unknown."""
        return self._settle(
            ToolResult(id=call.id, name=call.name, output=UNKNOWN, outcome=ToolOutcome.UNKNOWN)
        )

    def injected(self) -> tuple[str, ...]:
        """Let queued messages join the turn: one fenced transaction marks them as guests and journals their texts.

        A model call follows, so the connection goes back to the pool.
        """
        try:
            return self._take_guests()
        finally:
            connection.close()

    def _take_guests(self) -> tuple[str, ...]:
        with transaction.atomic():
            self.journal.fence()
            if not is_persons(self.context.turn) or self.permit.stranger is not None:
                return ()  # people's messages are not meant for an automation or another system
            waiting = list(
                Turn.objects.filter(
                    session_id=self.context.turn.session_id,
                    state=TurnState.QUEUED,
                    kind=TurnKind.MESSAGE,
                    on_busy=OnBusy.INJECT,
                    host__isnull=True,
                    cancel_requested_at__isnull=True,
                )
                .order_by("due_at", "id")
                .select_for_update(no_key=True)[:MOST_GUESTS]
            )
            # a stranger's post must not use this person's permit: it gets a turn of its own
            guests = [guest for guest in waiting if permits.stranger_of(guest) is None]
            guests = self._that_fit(guests)
            if not guests:
                return ()
            ids, texts = [guest.pk for guest in guests], [guest.content for guest in guests]
            Turn.objects.take_guests(self.context.turn, ids)
            self.journal.record(StepKind.INJECT, {"texts": texts, "turns": ids})
        return tuple(texts)

    def _that_fit(self, guests: list[Turn]) -> list[Turn]:
        """Return the first guests that the turn has room for. The others keep their order in the queue."""
        if not guests:
            return []
        taken = Turn.objects.filter(host=self.context.turn).aggregate(
            count=Count("id"), characters=Coalesce(Sum(Length("content")), 0)
        )
        count, characters = taken["count"], taken["characters"]
        for fitting, guest in enumerate(guests):
            characters += len(guest.content)
            if count + fitting >= MOST_GUESTS or characters > MOST_GUEST_CHARACTERS:
                return guests[:fitting]
        return guests

    def _call_in_transaction(self, tool: tools.Tool, call: ToolCall) -> ToolResult:
        try:
            return retry_deadlocks(lambda: self._effect_and_result(tool, call))
        except (Stale, OperationalError, InterfaceError):
            raise  # the journal shows whether it was committed; the worker that resumes the turn reads it
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; its effect is rolled back
            return self._settle(replace(self._failed(call, error), foreign=tool.foreign))

    def _effect_and_result(self, tool: tools.Tool, call: ToolCall) -> ToolResult:
        with transaction.atomic():
            # lock order: the session, which the tool may need, before the turn, which the fence locks
            Session.objects.select_for_update(no_key=True).filter(pk=self.context.session.pk).first()
            self.journal.fence()
            return self._settle(replace(self._succeeded(call, self._run(tool, call)), foreign=tool.foreign))

    def _call_outside(self, tool: tools.Tool, call: ToolCall) -> ToolResult:
        connection.close()  # back to the pool: the tool may be slow
        try:
            result = self._succeeded(call, self._run(tool, call))
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model gets the error
            result = self._failed(call, error)
        return self._settle(replace(result, foreign=tool.foreign))

    def _run(self, tool: tools.Tool, call: ToolCall) -> str:
        return tool.run(self._now(call), call.arguments)

    def _now(self, call: ToolCall) -> ToolContext:
        """The context of this call."""
        return replace(
            self.context, call_id=call.id, has_read=self.permit.has_read, stranger=self.permit.stranger
        )

    def _succeeded(self, call: ToolCall, output: str) -> ToolResult:
        return ToolResult(id=call.id, name=call.name, output=_storable(output), outcome=ToolOutcome.OK)

    def _failed(self, call: ToolCall, error: Exception) -> ToolResult:
        if not isinstance(error, ToolFailed | UnknownTool):
            log.error("tool_failed", tool=call.name, exc_info=error)
        # the texts of these errors are written for the model; others may contain secrets
        text = (
            str(error)
            if isinstance(error, ToolFailed | UnknownTool)
            else f"The tool failed: {type(error).__name__}."
        )
        return ToolResult(
            id=call.id,
            name=call.name,
            output=_storable(text),
            outcome=ToolOutcome.FAILED,
            error_class=type(error).__name__,
        )

    def _settle(self, result: ToolResult) -> ToolResult:
        shown: dict[str, Any] = {"id": result.id, "name": result.name, "outcome": str(result.outcome)}
        shown["output"] = result.output[:2000]
        self.journal.record(StepKind.RESULT, result.to_json(), (EventType.TOOL_OUTPUT, shown))
        if result.foreign:  # from here on the turn is restricted; after a rescue the journal says so
            self.permit = replace(self.permit, has_read=True)
        return result


def _storable(text: str) -> str:
    """Return the text cut to the limit, without what PostgreSQL cannot store: NUL and unpaired surrogates."""
    return text[:OUTPUT_LIMIT].replace("\x00", "").encode(errors="replace").decode()
