"""Running a tool for a turn: its context, its refusals, its journaled result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction

from agent_core import tools
from agent_core.control import TurnControl
from agent_core.exceptions import Stale, ToolFailed, UnknownTool
from agent_core.types import Entry, StepKind, ToolCall, ToolOutcome, ToolResult, Usage
from sessions_app.consent import ASK
from sessions_app.journal import Journal
from sessions_app.kinds import is_persons, kind_of
from sessions_app.models import Agent, EventType, OnBusy, Session, Turn, TurnKind, TurnState
from sessions_app.patience import through_deadlocks

log = structlog.get_logger(__name__)

UNKNOWN = "Interrupted, outcome unknown: check whether it took effect before you repeat it."
REFUSED = (
    "This needs a person's consent and cannot be done in a scheduled turn; the person was told that you ask."
)
OUTPUT_LIMIT = 50_000  # characters of a tool's output that the model and the journal get


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a tool may know of the turn it is called in. `interactive`: a person is on the other side.

    `control`: the strings on the running turn, with the instant by which the call must have ended. `call_id`: the
    call's own, the same when it is made again.
    """

    turn: Turn
    session: Session
    agent: Agent
    interactive: bool
    control: TurnControl | None = None
    call_id: str = ""


@dataclass(kw_only=True)
class TurnTools:
    """The ports of a running turn (agent_core's TurnPorts): each is a fenced write of its journal."""

    journal: Journal
    context: ToolContext
    more: Mapping[str, tools.Tool] = field(default_factory=dict)  # of this turn alone, by name
    consented: Callable[[ToolCall], bool] = lambda _call: (
        False
    )  # whether a person said yes to a dangerous call

    def responded(self, entry: Entry, usage: Usage) -> None:
        """Journal a model response that asks for tools."""
        self.journal.record(StepKind.RESPONSE, {"entry": entry.to_json(), "usage": usage.to_json()})

    def intend(self, call: ToolCall) -> None:
        """Journal the intent; committed before the call is made."""
        shown = {"id": call.id, "name": call.name, "arguments": call.arguments}
        self.journal.record(StepKind.INTENT, call.to_json(), (EventType.TOOL_CALL, shown))

    def call(self, call: ToolCall) -> ToolResult:
        """Run the tool and journal its result; for a transactional tool both in one fenced transaction."""
        try:
            tool = self.more.get(call.name) or tools.get(call.name)
        except UnknownTool as error:
            return self._settle(self._failed(call, error))
        if tool.effect is tools.Effect.DANGEROUS and not self._may(call):
            return self._refuse(call)
        return self._call_in_transaction(tool, call) if tool.transactional else self._call_outside(tool, call)

    def _may(self, call: ToolCall) -> bool:
        return self.context.interactive and self.consented(call)

    def _refuse(self, call: ToolCall) -> ToolResult:
        """A person who talks is asked by the model; of one who does not, the home is told what is asked for."""
        text = ASK if self.context.interactive else REFUSED
        result = ToolResult(id=call.id, name=call.name, output=text, outcome=ToolOutcome.REFUSED)
        with transaction.atomic():
            self.journal.fence()
            kind_of(self.context.turn).refused(self.context.turn, call)
            return self._settle(result)

    def outcome_unknown(self, call: ToolCall) -> ToolResult:
        """Journal that a call was interrupted."""
        return self._settle(
            ToolResult(id=call.id, name=call.name, output=UNKNOWN, outcome=ToolOutcome.UNKNOWN)
        )

    def injected(self) -> tuple[str, ...]:
        """Take waiting messages along: one fenced transaction marks them as guests and journals their text.

        A model call follows, so the connection goes back to the pool.
        """
        try:
            return self._take_guests()
        finally:
            connection.close()

    def _take_guests(self) -> tuple[str, ...]:
        with transaction.atomic():
            self.journal.fence()
            if not is_persons(self.context.turn):
                return ()  # nobody who writes meanwhile speaks to an automation or to another system
            guests = list(
                Turn.objects.filter(
                    session_id=self.context.turn.session_id,
                    state=TurnState.QUEUED,
                    kind=TurnKind.MESSAGE,
                    on_busy=OnBusy.INJECT,
                    host__isnull=True,
                    cancel_requested_at__isnull=True,
                )
                .order_by("due_at", "id")
                .select_for_update(no_key=True)
            )
            if not guests:
                return ()
            ids, texts = [guest.pk for guest in guests], [guest.content for guest in guests]
            Turn.objects.filter(pk__in=ids, state=TurnState.QUEUED).update(host_id=self.context.turn.pk)
            self.journal.record(StepKind.INJECT, {"texts": texts, "turns": ids})
        return tuple(texts)

    def _call_in_transaction(self, tool: tools.Tool, call: ToolCall) -> ToolResult:
        try:
            return through_deadlocks(lambda: self._effect_and_result(tool, call))
        except (Stale, OperationalError, InterfaceError):
            raise  # whether it was committed shows in the journal; whoever resumes the turn looks there
        except Exception as error:  # noqa: BLE001 - whatever a tool raises; its effect was rolled back, the model is told
            return self._settle(self._failed(call, error))

    def _effect_and_result(self, tool: tools.Tool, call: ToolCall) -> ToolResult:
        with transaction.atomic():
            # the session first, as everybody locks: the tool may need it, and the fence locks the turn
            Session.objects.select_for_update(no_key=True).filter(pk=self.context.session.pk).first()
            self.journal.fence()
            return self._settle(self._succeeded(call, self._run(tool, call)))

    def _call_outside(self, tool: tools.Tool, call: ToolCall) -> ToolResult:
        connection.close()  # back to the pool: the tool may take its time
        try:
            result = self._succeeded(call, self._run(tool, call))
        except Exception as error:  # noqa: BLE001 - whatever a tool raises, the model is told
            result = self._failed(call, error)
        return self._settle(result)

    def _run(self, tool: tools.Tool, call: ToolCall) -> str:
        return tool.run(replace(self.context, call_id=call.id), call.arguments)

    def _succeeded(self, call: ToolCall, output: str) -> ToolResult:
        return ToolResult(id=call.id, name=call.name, output=_storable(output), outcome=ToolOutcome.OK)

    def _failed(self, call: ToolCall, error: Exception) -> ToolResult:
        if not isinstance(error, ToolFailed | UnknownTool):
            log.error("tool_failed", tool=call.name, exc_info=error)
        # a tool's own refusal is for the model; another exception's text may hold anything
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
        return result


def _storable(text: str) -> str:
    """Cut to the limit, without what PostgreSQL cannot hold: NUL and halves of surrogate pairs."""
    return text[:OUTPUT_LIMIT].replace("\x00", "").encode(errors="replace").decode()
