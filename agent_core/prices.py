"""What tokens cost: by the operator's own prices, else by the price table of an installed package. Nothing is fetched.

The table has list prices in US dollars, some of them higher for long requests. Discounts for cached input are not known
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final

from agent_core.connections import OWN, PREFIXES, Connection, Provider, provider_and_name
from agent_core.spending import Price

ALL: Final = "*"  # in place of a model's name: all others
FREE: Final = "offline"  # the model that costs nothing
_LONG: Final = 128_000  # tokens; a request of at most so many has the usual price
_SAMPLES: Final = {
    False: 1_000,
    True: 1_000_000,
}  # tokens whose price is looked up: of a usual and of a long request
_WITHOUT_PRICE: Final = frozenset({"litellm", "ollama", "vllm", OWN})  # what they cost, their operator knows

_own: dict[str, Price] = {}


def use_own_prices(prices: Mapping[str, Price]) -> None:
    """Set the process's own prices by `<provider>:<model>`, or `<provider>:*` for all others of a provider."""
    _own.clear()
    _own.update(prices)
    price_of.cache_clear()


def price_of_call(model: str, connection: Connection | None, input_tokens: int = 0) -> Price | None:
    """The price of a model string's tokens: the connection's own, else that of its provider's model."""
    provider, name = provider_and_name(model, connection)
    if (provider, name) == (OWN, FREE):
        return Price(input=Decimal(0), output=Decimal(0))
    given = connection.prices if connection is not None else {}
    return given.get(name) or given.get(ALL) or price_of(provider, name, is_long=input_tokens > _LONG)


@lru_cache(maxsize=1_000)
def price_of(provider: str, model: str, *, is_long: bool = False) -> Price | None:
    """The price of a provider's model; None if nobody has given one."""
    if own := _own.get(f"{provider}:{model}") or _own.get(f"{provider}:{ALL}"):
        return own
    if provider in _WITHOUT_PRICE or not provider:
        return None
    # imported here: the table takes half a second to load
    from genai_prices import Usage, calc_price

    name, size = PREFIXES.get(provider, Provider()).priced or provider, _SAMPLES[is_long]
    try:
        read = calc_price(Usage(input_tokens=size), model, provider_id=name)
        both = calc_price(Usage(input_tokens=size, output_tokens=size), model, provider_id=name)
    except LookupError:
        return None
    return Price(input=read.input_price / size, output=both.output_price / size)
