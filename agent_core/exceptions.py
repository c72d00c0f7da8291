"""The exceptions of this package. The first line of a class's docstring is its default message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def causes(error: BaseException, depth: int = 12) -> Iterator[BaseException]:
    """The error, its causes and contexts, and the members of exception groups."""
    yield error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for each in (*inner, error.__cause__, error.__context__):
        if each is not None and depth:
            yield from causes(each, depth - 1)


class AgentCoreError(Exception):
    """Something in the agent core went wrong."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").partition("\n")[0])


class Stale(AgentCoreError):
    """This worker no longer owns the turn."""


class CapReached(AgentCoreError):
    """A cap on tokens or money does not allow the call.

    ``text`` tells people which cap. ``is_held``: the room is reserved by calls that are not settled yet, so the call
    may be allowed soon; its code is ``HELD``. ``cap``: which cap, as a fact for programs.
    """

    code = "budget"
    HELD = "budget_held"

    def __init__(
        self, text: str = "", *, is_held: bool = False, cap: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text)
        self.text, self.is_held, self.cap = text or "A cap is reached.", is_held, cap
        if is_held:
            self.code = self.HELD


class PolicyError(AgentCoreError):
    """The turn policy has an unknown key or an invalid value."""


class PromptError(AgentCoreError):
    """The prompt template is missing, or its variables do not match."""


class ToolError(AgentCoreError):
    """A tool could not be used."""


class UnknownTool(ToolError):
    """There is no tool of this name."""


class ToolFailed(ToolError):
    """The tool failed. The message is for the model, and says what to do."""


class BadServer(AgentCoreError):
    """The settings of an MCP server are not valid."""


class ServerFailed(AgentCoreError):
    """An MCP server failed to answer.

    The message gives our reason, ``said`` the server's own. ``unsure``: the call may have taken effect.
    """

    def __init__(self, message: str, *, said: str = "", unsure: bool = False) -> None:
        super().__init__(message)
        self.said, self.unsure = said, unsure


class ModelError(AgentCoreError):
    """The model gave no reply.

    ``code`` becomes the error code of the turn. ``reason`` is the cause for people, in our own words; it is empty if
    the code says everything. ``said``: one line of the provider's own, for the owner alone, without keys or pieces of
    the prompt. ``tries`` counts the requests made. ``is_free``: the request surely reached no model, so it costs
    nothing.
    """

    code: str = "model_refused"
    said: str = ""
    is_free = False

    def __init__(self, message: str = "", *, code: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.code = code or self.code
        self.reason = reason
        self.tries = 1


class ModelUnavailable(ModelError):
    """The model did not answer; asking again may help.

    ``retry_after`` is the wait in seconds that the provider asked for, if any.
    """

    code = "model_unavailable"

    def __init__(
        self, message: str = "", *, retry_after: float | None = None, code: str = "", reason: str = ""
    ) -> None:
        super().__init__(message, code=code, reason=reason)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The model refused the request; asking again does not help.

    ``of_input``: the provider named the text of the request as the cause, not its settings. ``of_bytes``: the request
    has too many bytes, of which an image has more than its tokens suggest.
    """

    of_input = of_bytes = False


class ModelNotConfigured(ModelError):
    """The model cannot be used on this server: its name is unknown, or a key or package is missing."""

    code = "model_not_configured"
    is_free = True


NOT_FOUND = "model_not_found"
NO_QUOTA = "model_quota"
CONTEXT_TOO_LONG = "context_too_long"
# error codes that say that the model cannot be called, whatever the request
BROKEN_CODES = frozenset({ModelUnavailable.code, "model_auth", NO_QUOTA, NOT_FOUND})
# the same, and that it is not set up
UNUSABLE_CODES = BROKEN_CODES | {ModelNotConfigured.code}
# error codes of failed model calls: a retry may help, or does not help
PASSING_CODES = frozenset({ModelUnavailable.code, "rate_limited"})
FINAL_CODES = frozenset(
    {
        *(ModelRefused.code, ModelNotConfigured.code),
        *("model_auth", NOT_FOUND, NO_QUOTA, CONTEXT_TOO_LONG),
    }
)
