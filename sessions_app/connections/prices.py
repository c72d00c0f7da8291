"""What turns cost, by the models that replied to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from agent_core.connections import prefix_of
from agent_core.prices import price_of
from sessions_app.connections.usable import names_connection
from sessions_app.models import Connection

FREE = "offline"
MOST_PRICED = 200  # models whose prices are looked up for one answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """Tokens that a model read and wrote for the agents of a user."""

    owner_id: int
    model: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """US dollars of what has a price. `is_partial`: the price of some of the models is not known."""

    dollars: Decimal
    is_partial: bool

    def __str__(self) -> str:
        """`$0.42`; `at least $0.42` when some has no price, and `unknown` when nothing has one."""
        if self.is_partial and not self.dollars:
            return "unknown"
        places = 2 if self.dollars >= 1 or not self.dollars else 4
        return f"{'at least ' if self.is_partial else ''}${self.dollars:,.{places}f}"


def costs_of(groups: Iterable[Iterable[Used]]) -> list[Cost]:
    """What each group costs, with one query in all."""
    given = [[each for each in group if each.input_tokens or each.output_tokens] for group in groups]
    providers = _providers({each.owner_id for group in given for each in group if _is_of_connection(each)})
    return [_cost(group, providers) for group in given]


def _is_of_connection(used: Used) -> bool:
    return bool(used.model) and used.model != FREE and names_connection(used.model)


def _providers(owners: set[int]) -> dict[tuple[int | None, str], str]:
    if not owners:
        return {}
    rows = Connection.objects.filter(owner__in=owners) | Connection.objects.filter(owner=None)
    return {
        (owner, name): provider for owner, name, provider in rows.values_list("owner", "name", "provider")
    }


def _cost(group: list[Used], providers: dict[tuple[int | None, str], str]) -> Cost:
    dollars, is_partial = Decimal(0), len(group) > MOST_PRICED
    for used in group[:MOST_PRICED]:
        if used.model == FREE:
            continue
        prefix = prefix_of(used.model)
        own, shared = providers.get((used.owner_id, prefix)), providers.get((None, prefix))
        price = price_of(own or shared or prefix, used.model[len(prefix) + 1 :])
        if price is None:
            is_partial = True
        else:
            dollars += price.of(used.input_tokens, used.output_tokens)
    return Cost(dollars=dollars, is_partial=is_partial)
