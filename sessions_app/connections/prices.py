"""What turns cost: as it was stored with their usage, else by the prices of the models that replied to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agent_core.connections import Connection as Known
from agent_core.connections import prefix_of
from agent_core.prices import FREE, price_of_call
from agent_core.spending import MICRO, dollars_text, read_prices
from agent_core.types import Usage
from sessions_app.connections.usable import names_connection
from sessions_app.models import Connection

MOST_PRICED = 200  # models whose prices are looked up for one answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """Tokens that a model read and wrote for the agents of a user. `micro_usd`: the stored cost; 0: there is none."""

    owner_id: int
    model: str
    input_tokens: int
    output_tokens: int
    micro_usd: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """US dollars of what has a price. `is_partial`: the price of some of the models is not known.

    `unpriced_tokens` are theirs.
    """

    dollars: Decimal
    is_partial: bool
    unpriced_tokens: int = 0

    def __str__(self) -> str:
        """`$0.42`; `at least $0.42` when some has no price, and `unknown` when nothing has one."""
        if self.is_partial and not self.dollars:
            return "unknown"
        return f"{'at least ' if self.is_partial else ''}${dollars_text(self.dollars)}"


NO_COST = Cost(dollars=Decimal(0), is_partial=False)


def used_text(usage: Mapping[str, Any]) -> str:
    """What a turn used, by its stored usage, such as `1,234 tokens, $0.0012`; empty: nothing."""
    used = Usage.from_json(usage)
    tokens = used.input_tokens + used.output_tokens
    cost = Cost(dollars=Decimal(used.micro_usd) / MICRO, is_partial=False)
    return f"{tokens:,} tokens{f', {cost}' if used.micro_usd else ''}" if tokens else ""


def costs_of(groups: Iterable[Iterable[Used]]) -> list[Cost]:
    """Return the cost of each group, with one query in all."""
    given = [[each for each in group if _tokens(each) or each.micro_usd] for group in groups]
    known = _connections({each.owner_id for group in given for each in group if _is_of_connection(each)})
    return [_cost(group, known) for group in given]


def _is_of_connection(used: Used) -> bool:
    return bool(used.model) and not used.micro_usd and used.model != FREE and names_connection(used.model)


def _connections(owners: set[int]) -> dict[tuple[int | None, str], Known]:
    if not owners:
        return {}
    rows = Connection.objects.filter(owner__in=owners) | Connection.objects.filter(owner=None)
    columns = rows.values_list("owner", "name", "provider", "prices")
    return {
        (owner, name): Known(name=name, provider=provider, prices=read_prices(prices, "model"))
        for owner, name, provider, prices in columns
    }


def _cost(group: list[Used], known: dict[tuple[int | None, str], Known]) -> Cost:
    dollars, unpriced = Decimal(0), sum(_tokens(each) for each in group[MOST_PRICED:])
    for used in group[:MOST_PRICED]:
        prefix = prefix_of(used.model)
        connection = known.get((used.owner_id, prefix)) or known.get((None, prefix))
        if used.micro_usd:
            dollars += Decimal(used.micro_usd) / MICRO
        elif price := price_of_call(used.model, connection):
            dollars += price.of(used.input_tokens, used.output_tokens)
        else:
            unpriced += _tokens(used)
    return Cost(dollars=dollars, is_partial=unpriced > 0, unpriced_tokens=unpriced)


def _tokens(used: Used) -> int:
    return used.input_tokens + used.output_tokens
