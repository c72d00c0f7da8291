"""The registered gates (rule 11.6). Plugins import these names from here.

There is no language for conditions: each kind of gate is a Python class with settings of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from automations.exceptions import BadJob

LONGEST_FINDINGS = 20_000  # characters that the turn is shown
LONGEST_REASON = 200  # characters


class GateFailed(Exception):
    """The check could not be made; its turn runs all the same.

    The message may quote what was read, so it is logged only.
    """


class OwnReason(GateFailed):
    """The check could not be made. The message is shown to people and to the model, and quotes nothing that was read.

    Only gates of this app raise it.
    """


@dataclass(frozen=True, kw_only=True)
class Look:
    """The result of a gate's check.

    `findings`: text from outside that the turn is shown; empty: there is nothing to do, because of `reason`, one
    sentence. `seen` is what the gate remembers of it until the next slot: a small JSON object.
    """

    findings: str = ""
    reason: str = ""
    seen: dict[str, Any] = field(default_factory=dict)


class Gate(Protocol):
    """A kind of check."""

    @property
    def kind(self) -> str:
        """The gate's name: the value of `kind` in an automation's `gate`."""

    def checked(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings (without `kind`) as they are stored. BadJob with the code `bad_gate`."""

    def look(self, settings: Mapping[str, Any], seen: Mapping[str, Any], user: str) -> Look:
        """Check once, within seconds. No transaction is open. GateFailed.

        `seen`: what it remembered at the last slot that succeeded or had nothing to do; empty: there was none. `user`:
        the user against whose limit name look-ups count.
        """


_gates: dict[str, Gate] = {}


def register_gate(gate: Gate) -> None:
    """Register a gate, in place of an earlier one of its kind."""
    _gates[gate.kind] = gate


def gate_of(settings: Mapping[str, Any]) -> Gate | None:
    """The gate of an automation's settings; None if no gate of this kind is registered here."""
    return _gates.get(str(settings.get("kind")))


def checked(settings: Any) -> dict[str, Any]:
    """Return an automation's `gate` as it is stored. BadJob."""
    if not isinstance(settings, Mapping):
        raise BadJob("gate must be an object with a kind, or null", code="bad_gate")
    gate = gate_of(settings)
    if gate is None:
        known = ", ".join(sorted(_gates))
        kind = str(settings.get("kind"))[:60]
        raise BadJob(f"there is no gate of the kind {kind!r}; known: {known}", code="bad_gate")
    own = {name: value for name, value in settings.items() if name != "kind"}
    return {"kind": gate.kind, **gate.checked(own)}
