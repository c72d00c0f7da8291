"""Every error of this package, in one tree. A class's docstring is its default message."""

from __future__ import annotations

import inspect
from typing import ClassVar


class AgentCoreError(Exception):
    """Something in the agent core went wrong."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or inspect.cleandoc(self.__doc__ or ""))


class Stale(AgentCoreError):
    """This worker no longer owns the turn."""


class PolicyError(AgentCoreError):
    """The turn policy holds an unknown key or a bad value."""


class PromptError(AgentCoreError):
    """The prompt template is missing, or its variables do not match."""


class ToolError(AgentCoreError):
    """A tool could not be used."""


class UnknownTool(ToolError):
    """There is no tool of this name."""


class ToolFailed(ToolError):
    """The tool refused. The message goes to the model, which can act on it."""


class BadServer(AgentCoreError):
    """An MCP server cannot be set up so."""


class ServerFailed(AgentCoreError):
    """An MCP server gave no answer of use.

    The message says why in our words; ``said`` is what the server says of it. ``unsure``: it may have acted.
    """

    def __init__(self, message: str, *, said: str = "", unsure: bool = False) -> None:
        super().__init__(message)
        self.said, self.unsure = said, unsure


class ModelError(AgentCoreError):
    """The model gave no reply."""

    code: ClassVar[str] = "model_refused"  # of the turn that it ends


class ModelUnavailable(ModelError):
    """The model did not answer; asking again may help.

    ``retry_after`` is the wait in seconds that the model's server asked for, if it did.
    """

    code = "model_unavailable"

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message or "The model did not answer; asking again may help.")
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The model refused the request; asking again does not help."""


class ModelNotConfigured(ModelError):
    """The model cannot be used on this server: its name is unknown, or a key or package is missing."""

    code = "model_not_configured"
