"""What model calls cost and to which budgets they are charged. The server keeps the accounts: `connections.hooks`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any, Final

MICRO: Final = 1_000_000  # micro-dollars of one US dollar
DEAREST: Final = 1_000_000  # US dollars for a million tokens


def usd_text(micro: int) -> str:
    """Return US dollars with six decimal places."""
    return f"{Decimal(micro) / MICRO:.6f}"


def dollars_text(dollars: Decimal) -> str:
    """Return US dollars for people: with two decimal places, or up to four, or two digits, for less than a dollar."""
    places = 2 if dollars >= 1 or not dollars else max(4, 1 - dollars.adjusted())
    whole, _, part = f"{dollars:,.{places}f}".partition(".")
    return f"{whole}.{part[:2]}{part[2:].rstrip('0')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """US dollars for one token that is read, and for one that is written."""

    input: Decimal
    output: Decimal

    def of(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return US dollars."""
        return self.input * input_tokens + self.output * output_tokens

    def micro_of(self, input_tokens: int, output_tokens: int) -> int:
        """Return micro-dollars, rounded up."""
        return int((self.of(input_tokens, output_tokens) * MICRO).to_integral_value(ROUND_CEILING))


def read_prices(given: object, what: str) -> dict[str, Price]:
    """Read prices, which are US dollars for a million tokens: `{"gpt-5": {"input": "1.25", "output": "10"}}`.

    ValueError says what is wrong; `what` names the keys.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"must be an object of prices by {what}")  # noqa: TRY004 - the caller says what is wrong
    return {str(name): _price(f"the price of {str(name)[:100]!r}", each) for name, each in given.items()}


def _price(what: str, given: object) -> Price:
    if not isinstance(given, Mapping) or set(given) != {"input", "output"}:
        raise ValueError(f"{what} must have input and output, each US dollars for a million tokens")
    both = {}
    for name, value in given.items():
        try:
            both[name] = Decimal(str(value)) if isinstance(value, str | int | float) else Decimal("NaN")
        except InvalidOperation:
            both[name] = Decimal("NaN")
        if not both[name].is_finite() or not 0 <= both[name] <= DEAREST:
            raise ValueError(f"{what}: {name} must be US dollars from 0 to {DEAREST:,}")
    return Price(**{name: value / MICRO for name, value in both.items()})


@dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
    """Tokens read and written, and what they cost; without a price they count as tokens only."""

    tokens: int
    micro_usd: int = 0


NOTHING: Final = Amount(tokens=0)
# Replaces a reservation by what the call used. None: not known, so all that was reserved
Settle = Callable[[Amount | None], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The caps of one subject, such as an agent. `zone`: days and months begin there. `limits`: as they are stored.

    `is_private`: its amounts are not told to the person whose call it stops.
    """

    scope: str
    subject: str
    limits: Mapping[str, Mapping[str, Any]]
    name: str = ""
    zone: str = "UTC"
    is_private: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Which turn makes a call: its claim, its runs (a message's turn is its own run), agent and automations."""

    turn: int
    claim: str
    runs: tuple[str, ...]
    agent: int
    owner: int
    automations: tuple[str, ...] = ()
    budgets: tuple[Budget, ...] = field(default=())
