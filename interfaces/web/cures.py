"""Where a person ends what stopped an appointment or a turn, by the code that is stored of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.urls import reverse

from interfaces.web.formats import register


class Section(NamedTuple):
    """A section of an agent's page, and what a link to it is called. Without an anchor it is another page."""

    anchor: str
    name: str


_MODEL, _CONNECTIONS = Section("model", "Model"), Section("connections", "Connections")
_SPENDING, _TOOLS, _CHANNELS = (
    Section(each, each.capitalize()) for each in ("spending", "tools", "channels")
)
_OWN_MODEL, _OWN_CAPS, _ACCOUNT = Section("", "Model"), Section("", "Caps"), Section("", "Your account")
_QUESTION = Section("", "Answer it")
_FORMS = {"automation": "change-automation", "routine": "change-routine"}  # by the kind of an appointment
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
    "needs_consent": _QUESTION,
    "bad_channel": _CHANNELS,
    "undelivered": _CHANNELS,
    "unknown_timezone": Section("model", "Time zone"),
}
OF_OTHERS = {  # the same of a cap or a model that is not the agent's, by whose it is
    **{f"{code}:automation": _OWN_MODEL for code, section in CURED_IN.items() if section is _MODEL},
    "budget:automation": _OWN_CAPS,
    "budget:connection": _CONNECTIONS,
    "budget:user": _ACCOUNT,
}


@register.filter
def cured_in(codes: str | Iterable[str]) -> Section | None:
    """The section for this code, or for the first of several that has one; None: no section ends it."""
    given = [codes] if isinstance(codes, str) else codes
    found = (OF_OTHERS.get(code) or CURED_IN.get(code.partition(":")[0]) for code in given)
    return next(filter(None, found), None)


@register.simple_tag
def cure(
    codes: str | Iterable[str], agent: str, session: Any = "", kind: str = "", key: str = ""
) -> dict[str, str]:
    """Address and name of the place that ends it; empty: there is none. An appointment's own caps and model stand in
    its form.
    """
    section = cured_in(codes)
    if section is None:
        return {}
    if section is _ACCOUNT:
        return {"url": reverse("account") + "#used", "name": section.name}
    if section is _QUESTION:
        return {"url": reverse("upcoming"), "name": section.name}
    if section.anchor:
        return {
            "url": f"{reverse('agent', args=[agent])}#{section.anchor}",
            "name": f"{section.name} of {agent}",
        }
    if kind not in _FORMS or not session:
        return {}
    return {"url": reverse(_FORMS[kind], args=[session, key]), "name": f"{section.name} of this {kind}"}
