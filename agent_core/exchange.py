"""One exchange with the model: streams it into the turn's thread, tries again, wakes at once."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Generator

from agent_core import loop, models
from agent_core.control import Signal, TurnControl
from agent_core.exceptions import AgentCoreError, ModelRefused, ModelUnavailable, Stale
from agent_core.models import ModelCall, ModelReply, clean_reply, clean_text
from agent_core.policy import TurnPolicy
from agent_core.types import EventType, TurnEvent

_LONGEST_BACKOFF_SECONDS = 30.0
_WOKEN = object()


class Cancelled(AgentCoreError):
    """The turn was cancelled."""


class Stopped(AgentCoreError):
    """The turn is to be handed back."""


class TimedOut(AgentCoreError):
    """The turn took longer than it may."""


class Watch:
    """The turn's control and its deadline, asked together."""

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
        """Wait, and raise as ``check`` does as soon as there is a reason."""
        self.control.wait(min(seconds, self.remaining()))
        self.check()


class Exchange:
    """One model call with all its tries. ``text`` is what the latest try has said so far."""

    def __init__(
        self,
        *,
        model: str,
        call: ModelCall,
        policy: TurnPolicy,
        watch: Watch,
        labels: dict[str, int],
    ) -> None:
        self._model = model
        self._call = call
        self._policy = policy
        self._watch = watch
        self._labels = labels
        self.text = ""

    def run(self) -> Generator[TurnEvent, None, ModelReply]:
        """Yield deltas, and a status before each further try; return the reply.

        Raises ModelUnavailable after the last try, ModelRefused, ModelNotConfigured, or as ``Watch.check`` does.
        """
        for number in range(1, self._policy.max_attempts + 1):
            self.text = ""
            try:
                return (yield from self._try(number))
            except ModelUnavailable as error:
                if number == self._policy.max_attempts:
                    raise
                wait = self._backoff(number, error.retry_after)
            yield self._status(number + 1, wait)
            self._watch.sleep(wait)
        raise AssertionError("max_attempts is at least 1")

    def _try(self, number: int) -> Generator[TurnEvent, None, ModelReply]:
        items: queue.SimpleQueue[object] = queue.SimpleQueue()
        model = models.resolve(self._model)
        self._watch.check()
        future = loop.submit(_pump(model, self._call, items.put))
        try:
            with self._watch.control.waking(lambda: items.put(_WOKEN)):
                while True:
                    item = self._next(items)
                    if isinstance(item, ModelReply):
                        return clean_reply(item)
                    if isinstance(item, str) and item:
                        said = clean_text(item)
                        self.text += said
                        yield self._delta(said, number)
        finally:
            future.cancel()

    def _next(self, items: queue.SimpleQueue[object]) -> object:
        try:
            item = items.get(timeout=self._watch.remaining())
        except queue.Empty:
            item = _WOKEN
        self._watch.check()
        if isinstance(item, BaseException):
            raise item
        return item

    def _backoff(self, number: int, retry_after: float | None) -> float:
        wait = self._policy.backoff_seconds * 2.0 ** (number - 1)
        return min(max(wait, retry_after or 0.0), _LONGEST_BACKOFF_SECONDS)

    def _delta(self, text: str, number: int) -> TurnEvent:
        content = {"text": text, **self._labels, "try": number}
        return TurnEvent(type=EventType.LLM_DELTA, content=content)

    def _status(self, number: int, wait: float) -> TurnEvent:
        content = {
            "status": "retrying",
            "text": "The model did not answer; trying again.",
            **self._labels,
            "try": number,
            "of": self._policy.max_attempts,
            "wait_seconds": round(wait, 3),
        }
        return TurnEvent(type=EventType.STATUS, content=content)


async def _pump(model: models.Model, call: ModelCall, put: Callable[[object], None]) -> None:
    """Hand each item over to the turn's thread. An error is an item, too."""
    try:
        async for item in model.stream(call):
            put(item)
        put(ModelRefused("The model's stream ended without a reply."))
    except Exception as error:  # noqa: BLE001 - whatever it is, the turn's thread judges it
        put(error)
