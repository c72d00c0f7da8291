"""One model call with its retries, streamed into the turn's thread. A signal interrupts it at once."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from agent_core import event_loop, models
from agent_core.exceptions import AgentCoreError, ModelRefused, ModelUnavailable, Stale
from agent_core.llm import protocol
from agent_core.llm.protocol import ModelCall, ModelReply, clean_reply, clean_text
from agent_core.policy import TurnPolicy
from agent_core.turn import budget
from agent_core.turn.control import Signal, TurnControl
from agent_core.types import Entry, Role, TurnEvent, TurnEventType, TurnRequest

_LONGEST_BACKOFF_SECONDS = 30.0
_WOKEN = object()


class Cancelled(AgentCoreError):
    """The turn was cancelled."""


class Stopped(AgentCoreError):
    """The turn is to be handed back."""


class TimedOut(AgentCoreError):
    """The turn reached its time limit."""


class Watch:
    """Checks the turn's signals and its deadline."""

    def __init__(self, control: TurnControl, timeout_seconds: float) -> None:
        self.control = control
        deadline = time.monotonic() + timeout_seconds
        bound = control.deadline
        self.deadline = deadline if bound is None else min(deadline, bound)

    def remaining(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Raise Stale, Cancelled, Stopped or TimedOut if the turn must not go on."""
        signal = self.control.signal
        if signal is Signal.LOSE:
            raise Stale
        if signal is Signal.CANCEL:
            raise Cancelled
        if signal is Signal.STOP:
            raise Stopped
        if self.remaining() == 0.0:
            raise TimedOut

    def sleep(self, seconds: float) -> None:
        """Sleep, or raise as ``check`` does as soon as there is a reason."""
        self.control.wait(min(seconds, self.remaining()))
        self.check()


@dataclass(kw_only=True, slots=True)
class Exchange:
    """One model call with its retries. ``text`` is the text of the latest attempt so far."""

    model: str
    call: ModelCall
    policy: TurnPolicy
    watch: Watch
    labels: dict[str, int]
    text: str = ""

    def run(self) -> Generator[TurnEvent, None, ModelReply]:
        """Yield deltas, and a status before each retry; return the reply.

        Raises ModelUnavailable after the last attempt, ModelRefused, ModelNotConfigured, or as ``Watch.check`` does.
        """
        self.call = budget.fit_call(self.call)
        for number in range(1, self.policy.max_attempts + 1):
            self.text = ""
            try:
                return (yield from self._attempt(number))
            except ModelUnavailable as error:
                error.tries = number
                if number == self.policy.max_attempts:
                    raise
                wait = max(self.policy.backoff_seconds * 2.0 ** (number - 1), error.retry_after or 0.0)
                wait, why = min(wait, _LONGEST_BACKOFF_SECONDS), error.reason
            yield self._status(number + 1, wait, why)
            self.watch.sleep(wait)
        raise AssertionError("max_attempts is at least 1")

    def _attempt(self, number: int) -> Generator[TurnEvent, None, ModelReply]:
        items: queue.SimpleQueue[object] = queue.SimpleQueue()
        model = models.resolve(self.model)
        self.watch.check()
        future = event_loop.submit(_pump(model, self.call, items.put))
        try:
            with self.watch.control.waking(lambda: items.put(_WOKEN)):
                while True:
                    item = self._next(items)
                    if isinstance(item, ModelReply):
                        return clean_reply(item)
                    if isinstance(item, str) and item:
                        said = clean_text(item)
                        self.text += said
                        content = {"text": said, **self.labels, "try": number}
                        yield TurnEvent(type=TurnEventType.LLM_DELTA, content=content)
        finally:
            future.cancel()

    def _next(self, items: queue.SimpleQueue[object]) -> object:
        try:
            item = items.get(timeout=self.watch.remaining())
        except queue.Empty:
            item = _WOKEN
        self.watch.check()
        if isinstance(item, BaseException):
            raise item
        return item

    def _status(self, number: int, wait: float, why: str) -> TurnEvent:
        content = {
            "status": "retrying",
            "text": f"{why or 'The model did not answer'}; trying again.",
            **self.labels,
            "try": number,
            "of": self.policy.max_attempts,
            "wait_seconds": round(wait, 3),
        }
        return TurnEvent(type=TurnEventType.STATUS, content=content)


async def _pump(model: protocol.Model, call: ModelCall, put: Callable[[object], None]) -> None:
    """Pass each item to the turn's thread, errors included."""
    try:
        async for item in model.stream(call):
            put(item)
        put(
            ModelRefused(
                "The model's stream ended without a reply.", reason="The model provider sent no reply"
            )
        )
    except Exception as error:  # noqa: BLE001 - the turn's thread raises it
        put(error)


def ask_once(request: TurnRequest, watch: Watch, *, system_prompt: str, message: str) -> ModelReply:
    """Make one model call that people do not see, and return the reply. Raises as ``Exchange.run`` does."""
    events = Exchange(
        model=request.model,
        call=ModelCall(system_prompt=system_prompt, entries=(Entry(role=Role.USER, content=message),)),
        policy=request.policy,
        watch=watch,
        labels={},
    ).run()
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
