"""One model call with its retries, streamed into the turn's thread. A signal interrupts it at once."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

from opentelemetry.trace import SpanKind

from agent_core import connections, models, process
from agent_core.connections import Connection, model_attributes
from agent_core.exceptions import (
    CONTEXT_TOO_LONG,
    NO_QUOTA,
    NOT_FOUND,
    AgentCoreError,
    CapReached,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    Stale,
)
from agent_core.llm import protocol
from agent_core.llm.protocol import ModelCall, ModelReply, Thought, clean_reply
from agent_core.telemetry import spans
from agent_core.text.json_values import clean_text, split_half
from agent_core.turn import request_size
from agent_core.turn.charge import Charge, Counted, charged
from agent_core.turn.control import Signal, TurnControl
from agent_core.types import NOTES, Ended, Entry, Role, TurnEvent, TurnEventType, TurnRequest

LONGEST_WAIT_SECONDS = 30.0  # between two tries; if the provider asks for more, there is no other try
SHORTER = 0.75  # of the tokens of a rejected request that was too long for the model
_SHARE, _LEAST_SHARE = (
    0.4,
    1 / 6,
)  # of the turn's time left, but at least of the longest silence: see _patience()
_WOKEN = object()


class Cancelled(AgentCoreError):
    """The turn was cancelled."""


class Stopped(AgentCoreError):
    """The worker stops, and hands the turn back to the queue."""


class TimedOut(AgentCoreError):
    """The turn reached its time limit."""


class Watch:
    """Checks the turn's signals and its deadline. ``model`` is the one that replied last; ``fell_back``: as in
    ``TurnResult``.
    """

    def __init__(self, control: TurnControl, timeout_seconds: float) -> None:
        self.control = control
        self.counted = Counted()
        self.model = self.fell_back = ""
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
    """One model call with its retries.

    The request's fallback model is asked if its model gave nothing in all its attempts and may work later, has no quota
    left, or does not exist.
    """

    request: TurnRequest
    call: ModelCall
    watch: Watch
    labels: dict[str, int]
    _pieces: list[str] = field(default_factory=list)  # of the latest attempt's text
    _gave: bool = False  # some text or thought
    _tries: int = 0
    _is_last: bool = False  # no other try can follow

    @property
    def text(self) -> str:
        """The text of the latest attempt so far."""
        return "".join(self._pieces)

    def run(self) -> Generator[TurnEvent, None, ModelReply]:
        """Yield deltas, and a status before each retry; return the reply.

        Raises ModelUnavailable after the last attempt, ModelRefused, ModelNotConfigured, or as ``Watch.check`` does.
        """
        request = self.request
        try:
            return (yield from self._ask(request.model))
        except ModelError as error:
            may_fall_back = isinstance(error, ModelUnavailable) or error.code in (NO_QUOTA, NOT_FOUND)
            if not may_fall_back or self._gave or request.fallback_model in ("", request.model):
                raise
            first = error
        yield self._status(0.0, first.reason, f"asking the fallback model {request.fallback_model}")
        try:
            return (yield from self._ask(request.fallback_model, first.reason or first.code))
        except CapReached:
            raise _no_further(first) from None
        except ModelError as error:
            raise _of_both(first, error) from None

    def _ask(self, model: str, fell_back: str = "") -> Generator[TurnEvent, None, ModelReply]:
        """Ask one model until it replies, at most ``max_attempts`` times."""
        policy = self.request.policy
        connection, name = connections.connection_of(model, self.request.connections)
        failed: ModelError | None = None
        for number in range(1, policy.max_attempts + 1):
            is_last_model = model == (self.request.fallback_model or self.request.model)
            self._is_last = is_last_model and number == policy.max_attempts
            try:
                reply = yield from self._within_context(model, connection)
            except CapReached:
                if failed is None:
                    raise
                _report(connection, failed, name)
                raise _no_further(failed) from None
            except ModelError as error:
                error.tries, failed = number, error
                if number == policy.max_attempts or not self._is_worth_a_wait(error):
                    _report(connection, error, name)
                    raise
                backoff = policy.backoff_seconds * 2.0 ** (number - 1)
                wait = max(min(backoff, LONGEST_WAIT_SECONDS), getattr(error, "retry_after", None) or 0.0)
                why = error.reason
            else:
                _report(connection, None, name)
                self.watch.model, self.watch.fell_back = model, fell_back
                return reply
            yield self._status(wait, why)
            self.watch.sleep(wait)
        raise AssertionError("max_attempts is at least 1")

    def _within_context(
        self, model: str, connection: Connection | None
    ) -> Generator[TurnEvent, None, ModelReply]:
        """One attempt. A request that is longer than the model's context is shortened and sent again."""
        key = request_size.model_key(model, self.request.connections)
        call, first = request_size.fit_call(self.call, key), self._tries + 1
        with request_size.learning(key) as lesson:
            while True:
                self._pieces = []
                self._tries += 1
                try:
                    return (yield from self._traced(model, connection, call))
                except ModelRefused as error:
                    if error.code != CONTEXT_TOO_LONG:
                        raise
                    lesson.keep &= not (error.of_bytes and any(entry.images for entry in call.entries))
                    size = request_size.of_call(call)
                    if size > request_size.LEAST_LEARNED:
                        request_size.learn(key, int(size * SHORTER))
                        call = request_size.fit_call(self.call, key)
                    if request_size.of_call(call) >= size:
                        lesson.keep &= self._tries == first  # else its length was not the cause
                        raise
                    yield self._status(0.0, error.reason, "leaving out older messages and trying again")

    def _is_worth_a_wait(self, error: ModelError) -> bool:
        """Whether a further try may help. A wait that is too long for the turn is added to the reason."""
        if not isinstance(error, ModelUnavailable):
            return False
        asked = error.retry_after or 0.0
        if asked <= min(LONGEST_WAIT_SECONDS, self.watch.remaining()):
            return True
        if error.reason:
            error.reason += f", and asks to wait {min(asked, 1e9):,.0f} s"
        return False

    def _traced(
        self, name: str, connection: Connection | None, call: ModelCall
    ) -> Generator[TurnEvent, None, ModelReply]:
        """One attempt with its span."""
        named = model_attributes(name, connection)
        about: spans.Attributes = {"gen_ai.operation.name": "chat", **named, "rondo.try": self._tries}
        with spans.span(f"chat {named['gen_ai.request.model']}", about, kind=SpanKind.CLIENT) as span:
            reply = yield from self._attempt(name, connection, call)
            span.set_attribute("gen_ai.usage.input_tokens", reply.usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", reply.usage.output_tokens)
            return reply

    def _attempt(
        self, name: str, connection: Connection | None, call: ModelCall
    ) -> Generator[TurnEvent, None, ModelReply]:
        model = models.resolve(name, self.request.connections)
        _admit(connection)
        self.watch.check()
        with charged(self.request, name, connection, call, self.watch.counted, self.watch.sleep) as charge:
            return (yield from self._stream(model, charge))

    def _stream(self, model: protocol.Model, charge: Charge) -> Generator[TurnEvent, None, ModelReply]:
        items: queue.SimpleQueue[object] = queue.SimpleQueue()
        future = process.submit(_pump(model, replace(charge.call, patience=self._patience()), items.put))
        try:
            with self.watch.control.waking(lambda: items.put(_WOKEN)):
                while True:
                    item = self._next(items)
                    charge.is_heard = True
                    if isinstance(item, ModelReply):
                        reply = charge.took(clean_reply(item))
                        self.watch.control.used += reply.usage
                        return reply
                    if isinstance(item, str) and item:
                        self._pieces.append(clean_text(item))
                        yield self._piece(TurnEventType.LLM_DELTA, self._pieces[-1])
                    elif isinstance(item, Thought):
                        yield self._piece(TurnEventType.LLM_THOUGHT, clean_text(item.text))
        finally:
            future.cancel()

    def _patience(self) -> float:
        """How long the model may send nothing, so that the turn has time for another try."""
        longest = connections.hooks.silence()
        if self._is_last:
            return longest
        return min(longest, max(_SHARE * self.watch.remaining(), _LEAST_SHARE * longest))

    def _next(self, items: queue.SimpleQueue[object]) -> object:
        try:
            item = items.get(timeout=self.watch.remaining())
        except queue.Empty:
            item = _WOKEN
        self.watch.check()
        if isinstance(item, BaseException):
            raise item
        return item

    def _piece(self, kind: TurnEventType, text: str) -> TurnEvent:
        self._gave = True
        return TurnEvent(type=kind, content={"text": text, **self.labels, "try": self._tries})

    def _status(self, wait: float, why: str, then: str = "trying again") -> TurnEvent:
        of = self.request.policy.max_attempts
        content = {
            "status": "retrying",
            "text": f"{why or 'The model did not answer'}; {then}.",
            **self.labels,
            "try": self._tries + 1,
            "of": of if self._tries < of else self._tries + of,
            "wait_seconds": round(wait, 3),
        }
        return TurnEvent(type=TurnEventType.STATUS, content=content)


def _of_both(first: ModelError, error: ModelError) -> ModelError:
    """The error of a model and then of its fallback model. It is one that may pass, if one of the two may."""
    may_pass = isinstance(first, ModelUnavailable) and not isinstance(error, ModelUnavailable)
    reason = error.reason
    if first.reason and reason:
        reason = f"{first.reason}. The fallback model failed too: {reason}"
    both = first if may_pass else error
    both.reason, both.said, both.tries = reason, error.said or first.said, error.tries
    return both


def _no_further(error: ModelError) -> ModelError:
    """The error of the last request, when a cap allows no other: the turn fails by that error, and may be repeated."""
    if error.reason:
        error.reason += ", and a cap allows no other try"
    return error


def _admit(connection: Connection | None) -> None:
    """Raise ModelUnavailable if the connection has made as many calls as it may in this minute."""
    if connection is None or not connection.requests_per_minute:
        return
    if wait := connections.hooks.admit(connection):
        reason = (
            f"The connection {connection.name!r} allows {connection.requests_per_minute} requests per minute"
        )
        raise ModelUnavailable(code="rate_limited", reason=reason, retry_after=wait)


def _report(connection: Connection | None, error: ModelError | None, model: str) -> None:
    """Report that the connection failed or works again, if its stored state says otherwise.

    That one model answers says nothing of another one that its provider does not know.
    """
    if connection is None:
        return
    if error is None:
        said, counts = "", connections.concerns(connection.error, model)
    else:
        said, counts = error.reason or error.code, connections.says_of(connection, error, model)
    if counts and said != connection.error:
        connections.hooks.report(connection, said)


async def _pump(model: protocol.Model, call: ModelCall, put: Callable[[object], None]) -> None:
    """Pass each item to the turn's thread, errors included."""
    half = ""
    try:
        async for item in model.stream(call):
            if isinstance(item, str):
                item, half = split_half(half + item)  # noqa: PLW2901
            put(item)
        put(
            ModelRefused(
                "The model's stream ended without a reply.", reason="The model provider sent no reply"
            )
        )
    except Exception as error:  # noqa: BLE001 - the turn's thread raises it
        put(error)


def ask_once(request: TurnRequest, watch: Watch, *, system_prompt: str, message: str) -> ModelReply:
    """Make one model call that people do not see, and return the reply.

    Raises ModelRefused if the reply is not whole, else as ``Exchange.run`` does.
    """
    events = Exchange(
        request=request,
        call=ModelCall(system_prompt=system_prompt, entries=(Entry(role=Role.USER, content=message),)),
        watch=watch,
        labels={},
    ).run()
    while True:
        try:
            next(events)
        except StopIteration as end:
            reply: ModelReply = end.value
            if reply.ended_by is not Ended.STOP:
                raise ModelRefused(reason=NOTES[reply.ended_by].rstrip(".")) from None
            return reply
