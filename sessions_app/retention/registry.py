"""The registry of retention rules. They are loaded when something is pruned, because SQLAlchemy is slow to import."""

from __future__ import annotations

import threading
from collections.abc import Callable

_loaders: list[Callable[[], None]] = []
_guard = threading.RLock()


def register_rules_loader(load: Callable[[], None]) -> None:
    """Have `load` called before anything is pruned. It registers walks and references to turns."""
    _loaders.append(load)


def load_rules() -> None:
    """Load all rules, once. Concurrent callers wait until they are loaded."""
    with _guard:
        while _loaders:
            _loaders.pop(0)()
