"""Charges a model call to its budgets: the dearest that it can cost is reserved before it, and settled after it.

A text has at most as many tokens as bytes, and a reply at most as many as the request allows, so that no budget is
exceeded whatever the tokenizer. What a request repeats of the turn's last one was counted by the provider.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from agent_core import connections
from agent_core.connections import CallSettings, Connection
from agent_core.exceptions import CapReached, ModelError
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.prices import price_of_call
from agent_core.spending import NOTHING, Amount, Settle
from agent_core.types import TOKENS, Entry, TurnRequest

OUTPUT_TOKENS: Final = 4_096  # of a reply under a cap, if the agent's settings do not say how long it may be
REASONING_TOKENS: Final = 32_000  # the same of a model that reasons
HELD_SECONDS: Final = 20.0  # how long a call waits for room that others have reserved
_PAUSE = 0.5
_OF_REQUEST, _OF_TOOLS, _OF_ENTRY = 200, 1_000, 16  # tokens that providers add
_DEAREST_IMAGE = 4 * TOKENS


@dataclass(kw_only=True, slots=True)
class Counted:
    """The last request of a turn to a model, and the tokens that its provider counted."""

    model: str = ""
    call: ModelCall | None = None
    tokens: int = 0

    def most_tokens(self, model: str, call: ModelCall) -> int:
        """The most tokens that a request can have."""
        before, whole = self.call, _most_of(call)
        if before is None or model != self.model or not self.tokens or not _goes_on(before, call):
            return whole
        added = sum(map(_most_of_entry, call.entries[len(before.entries) :]))
        return min(whole, self.tokens + added + _OF_REQUEST)


@dataclass(kw_only=True, slots=True)
class Charge:
    """A call in progress. ``call`` is what is sent: under a cap its reply is bounded."""

    model: str
    connection: Connection | None
    call: ModelCall
    counted: Counted
    is_heard: bool = False  # the model has said something
    used: Amount | None = None  # None: not known

    def took(self, reply: ModelReply) -> ModelReply:
        """Note what the reply used, and return it with its cost. It stays unknown if the provider did not count it."""
        usage = reply.usage
        price = price_of_call(self.model, self.connection, usage.input_tokens)
        micro = price.micro_of(usage.input_tokens, usage.output_tokens) if price else 0
        says_nothing = not (reply.text or reply.calls)
        if usage.input_tokens and (usage.output_tokens or says_nothing):
            self.used = Amount(tokens=usage.input_tokens + usage.output_tokens, micro_usd=micro)
            self.counted.model, self.counted.call = self.model, self.call
            self.counted.tokens = usage.input_tokens
        return replace(reply, usage=replace(usage, micro_usd=micro))


@contextmanager
def charged(
    request: TurnRequest,
    model: str,
    connection: Connection | None,
    call: ModelCall,
    counted: Counted,
    sleep: Callable[[float], None],
) -> Iterator[Charge]:
    """Reserve the dearest cost of a call, and settle it when the block ends. CapReached, and what `sleep` raises.

    An error of which it is not known whether a model was reached costs all that was reserved, as a signal does.
    """
    charge = Charge(model=model, connection=connection, call=call, counted=counted)
    settle = _reserve(charge, request, sleep)
    try:
        yield charge
    except ModelError as error:
        charge.used = NOTHING if error.is_free and not charge.is_heard else None
        raise
    finally:
        if settle is not None:
            settle(charge.used)


def _reserve(charge: Charge, request: TurnRequest, sleep: Callable[[float], None]) -> Settle | None:
    """Reserve what the call can cost; None: no budget applies to it."""
    account, known = request.account, charge.connection
    found = (*(account.budgets if account else ()), *([known.budget] if known and known.budget else ()))
    budgets = tuple(each for each in found if each.limits)
    if not budgets:
        return None
    charge.call = _bounded(charge.call)
    amount, until = _dearest(charge), time.monotonic() + HELD_SECONDS
    while True:
        try:
            return connections.hooks.reserve(account, budgets, amount)
        except CapReached as reached:
            if not reached.is_held or time.monotonic() > until:
                raise
        sleep(_PAUSE)


def _bounded(call: ModelCall) -> ModelCall:
    """The call with a bound on its reply. A form is not bound by the settings: one that is cut could not be read."""
    settings = call.settings
    most = longest_reply(settings if call.form is None else replace(settings, max_tokens=None))
    return replace(call, settings=replace(settings, max_tokens=most), is_bounded=True)


def longest_reply(settings: CallSettings) -> int:
    """The most tokens that a reply under a cap can have."""
    return settings.max_tokens or (OUTPUT_TOKENS if settings.reasoning in ("", "off") else REASONING_TOKENS)


def _dearest(charge: Charge) -> Amount:
    read = charge.counted.most_tokens(charge.model, charge.call)
    written = charge.call.settings.max_tokens or OUTPUT_TOKENS
    price = price_of_call(charge.model, charge.connection, read)
    return Amount(tokens=read + written, micro_usd=price.micro_of(read, written) if price else 0)


def _goes_on(before: ModelCall, call: ModelCall) -> bool:
    """Whether a request repeats all of an earlier one."""
    same = (before.system_prompt, before.tools, before.form) == (call.system_prompt, call.tools, call.form)
    return same and call.entries[: len(before.entries)] == before.entries


def _most_of(call: ModelCall) -> int:
    tools = (*call.tools, *([call.form] if call.form is not None else ()))
    texts = (call.system_prompt, *(tool.as_text for tool in tools))
    of_tools = _OF_TOOLS if tools else 0
    return _OF_REQUEST + of_tools + sum(map(_bytes, texts)) + sum(map(_most_of_entry, call.entries))


def _most_of_entry(entry: Entry) -> int:
    texts = [entry.content, *(result.output for result in entry.results)]
    texts += [f"{call.name} {call.id} {call.unparsed or call.arguments}" for call in entry.calls]
    pieces = 1 + len(entry.results) + len(entry.calls)
    return _OF_ENTRY * pieces + sum(map(_bytes, texts)) + _DEAREST_IMAGE * len(entry.images)


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
