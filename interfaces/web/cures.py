"""Where on an agent's page a person ends what stopped an appointment or a turn, by the code that is stored of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from interfaces.web.formats import register


class Section(NamedTuple):
    """A section of an agent's page, and what a link to it is called. Without an anchor: the page of what comes."""

    anchor: str
    name: str


_MODEL, _CONNECTIONS = Section("model", "Model"), Section("connections", "Connections")
_SPENDING, _TOOLS, _CHANNELS = (
    Section(each, each.capitalize()) for each in ("spending", "tools", "channels")
)
CURED_IN = {  # by the reason or attention of a run, the code of a problem of preflight, the error of a turn
    "model_auth": _CONNECTIONS,
    "model_quota": _MODEL,
    "model_not_found": _MODEL,
    "model_not_configured": _MODEL,
    "model_refused": _MODEL,
    "context_too_long": _MODEL,
    "bad_model": _MODEL,
    "bad_fallback_model": _MODEL,
    "budget": _SPENDING,
    "budget_held": _SPENDING,
    "bad_allow_tools": _TOOLS,
    "needs_consent": Section("", "Answer it"),
    "bad_channel": _CHANNELS,
    "undelivered": _CHANNELS,
    "unknown_timezone": Section("model", "Time zone"),
}


@register.filter
def cured_in(codes: str | Iterable[str]) -> Section | None:
    """The section for this code, or for the first of several that has one; None: no section ends it."""
    given = [codes] if isinstance(codes, str) else codes
    return next((CURED_IN[code] for code in given if code in CURED_IN), None)
