"""One environment variable: its name, how it is read, its default and its meaning."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Variable:
    """How one variable is read: `default` None means that it must be set."""

    name: str
    read: Callable[[str], Any]
    default: str | None
    meaning: str


def variable(name: str, read: Callable[[str], Any], default: str | None, meaning: str) -> Any:
    """A field of the configuration that is read from a variable."""
    return field(metadata={"variable": Variable(name=name, read=read, default=default, meaning=meaning)})
