"""Why a form was refused, in the words of its fields: the API's texts begin with the API's names."""

from __future__ import annotations

import re

from interfaces.web.appointments.forms import AutomationForm
from sessions_app.spending.caps import PERIODS, WORDS

LABELS = {
    "base_url": "Address",
    "secret": "API key",
    "models": "Allowed models",
    "limits.requests_per_minute": "Calls per minute",
    "prices": "US dollars for a million tokens",
    "fallback_model": "Fallback model",
    "max_tokens": "Longest reply in tokens",
    "timezone": "Time zone",
    "unified_session": "Unified session",
    "allow_tools": "Tools",
    "events_url": "Address for system events",
    "url": "Address",
    "gate.url": str(AutomationForm.base_fields["gate"].label),
    "gate.pointer": str(AutomationForm.base_fields["gate_pointer"].label),
    **{f"limits.{period}.usd": f"US dollars {WORDS[period]}" for period in PERIODS},
    **{f"limits.{period}.tokens": f"Tokens {WORDS[period]}" for period in PERIODS},
}
_NAME = re.compile(r"([a-z_]+(?:\.[a-z_]+)*)(:?) ")
_PROVIDERS = re.compile(
    r"; providers: [\w ,.:-]+$"
)  # a long list, which the form of connections has to choose from


def in_words(text: str) -> str:
    """The text with the label of the field that it begins with, as a sentence begins."""
    text = _PROVIDERS.sub("; providers are listed under Connections", text)
    found = _NAME.match(text)
    if found and (label := LABELS.get(found[1])):
        return f"{label}{found[2]} {text[found.end() :]}"
    return text[:1].upper() + text[1:]


def beside_field(text: str, name: str) -> str:
    """The text as it stands at the field of this name of the API."""
    found = _NAME.match(text)
    if not found or found[1].partition(".")[0] != name:
        return in_words(text)
    return in_words(text[found.end() :] if found[2] else f"it {text[found.end() :]}")
