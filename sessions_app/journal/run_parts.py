"""The parts of a turn's statements that change its run.

Runs belong to the app above, which registers these parts. Claim and first step are one statement each, so a turn and
its run always agree, without a transaction of several statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class RunParts(Protocol):
    """CTEs that write the run of a turn, or the runs that share it.

    Each gets a CTE with `id`, `origin_run` and `origin_attempt` of the turn, or without a row.
    """

    def start(self, claimed: Any) -> Any:
        """The turn was claimed."""

    def keep_prompt(self, fenced: Any) -> Any:
        """The prompt is about to be shown. Parameters: `prompt_ref` and `prompt_variables` (JSON), `prompt_text`."""


_loaders: list[Callable[[], RunParts]] = []


def register_run_parts(load: Callable[[], RunParts]) -> None:
    """Register the parts. `load` is called when the first statement is composed: SQLAlchemy is slow to load."""
    _loaders[:] = [load]


def run_parts() -> RunParts:
    """Return the registered parts."""
    return _loaders[0]()
