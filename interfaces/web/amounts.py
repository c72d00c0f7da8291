"""Numbers and amounts of money as a person reads them, for the templates."""

from __future__ import annotations

from decimal import Decimal

from django import template

from agent_core.spending import dollars_text

register = template.Library()


@register.filter
def grouped(number: int) -> str:
    """`280,000`."""
    return f"{number:,}"


@register.filter
def dollars(usd: str) -> str:
    """US dollars as they are stored, such as `0.120000`: `$0.12`."""
    return f"${dollars_text(Decimal(usd))}"
