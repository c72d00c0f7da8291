"""What tokens cost, by the price table of an installed package. Nothing is fetched.

The prices are list prices in US dollars of requests of usual size: discounts for cached input are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

from agent_core.connections import PREFIXES, Provider

_SAMPLE: Final = 1_000  # tokens whose price is looked up: larger requests may have another price
_WITHOUT_PRICE: Final = frozenset({"litellm", "ollama", "vllm"})  # what they cost, their operator knows


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """US dollars for one token that is read, and for one that is written."""

    input: Decimal
    output: Decimal

    def of(self, input_tokens: int, output_tokens: int) -> Decimal:
        """What so many tokens cost."""
        return self.input * input_tokens + self.output * output_tokens


@lru_cache(maxsize=1_000)
def price_of(provider: str, model: str) -> Price | None:
    """The price of a provider's model; None if the table has none."""
    if provider in _WITHOUT_PRICE or not provider:
        return None
    # imported here: the table takes half a second to load
    from genai_prices import Usage, calc_price

    try:
        both = (Usage(input_tokens=_SAMPLE), Usage(output_tokens=_SAMPLE))
        name = PREFIXES.get(provider, Provider()).priced or provider
        read, written = (calc_price(each, model, provider_id=name).total_price / _SAMPLE for each in both)
    except LookupError:
        return None
    return Price(input=read, output=written)
