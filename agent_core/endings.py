"""How a turn ends: every trouble but a stale worker becomes a result that people can read."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Final, Protocol

from agent_core.exceptions import AgentCoreError, ModelError
from agent_core.exchange import Cancelled, Stopped, TimedOut
from agent_core.types import Ending, TurnEvent, TurnResult

ERROR_TEXTS: Final = {
    "model_unavailable": "The model did not answer.",
    "model_refused": "The model refused the request.",
    "model_not_configured": "The model is not set up on this server.",
    "timeout": "It took too long.",
    "max_tool_calls": "Too many tool calls.",
    "max_failed_tool_outputs": "Too many tools failed.",
    "max_same_failure_signature": "A tool kept failing in the same way.",
    "max_same_tool_intent": "The same tool call was made too often.",
    "invalid_plan": "No plan could be made of it.",
    "no_answer": "It came to no answer.",
    "internal_error": "Something went wrong.",
}
LONGEST_DETAIL: Final = 2000
_LONGEST_LOGGED = 300

log = logging.getLogger(__name__)


class GivenUp(AgentCoreError):
    """The turn's own rules end it, by a limit or for want of a plan; the code says which."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(detail or code)
        self.code = code


class ModelBroke(AgentCoreError):
    """The model's code raised something that is no ModelError: a bug."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


class Story(Protocol):
    """A turn at work."""

    def run(self) -> Generator[TurnEvent, None, None]:
        """Go on to the end."""

    def ended(self, ending: Ending) -> TurnResult:
        """What there is, when it ends like this."""

    def failed(self, code: str, error: Exception) -> TurnResult:
        """A failure: a short text for people, class and message for operators."""


def told(story: Story) -> Generator[TurnEvent, None, TurnResult]:
    """Yield the story's events and return its result.

    Lets through Stale and whatever else a port raises; every other trouble is a result.
    """
    try:
        yield from story.run()
    except Stopped:
        return TurnResult(ending=Ending.HANDED_BACK)
    except Cancelled:
        return story.ended(Ending.CANCELLED)
    except TimedOut as error:
        return story.failed("timeout", error)
    except GivenUp as error:
        return story.failed(error.code, error)
    except ModelError as error:
        _log(error)
        return story.failed(error.code, error)
    except ModelBroke as error:
        return story.failed("internal_error", error.cause)
    return story.ended(Ending.SUCCEEDED)


def detail_of(error: Exception) -> str:
    """Class and message, for operators."""
    return f"{type(error).__name__}: {error}"[:LONGEST_DETAIL]


def _log(error: ModelError) -> None:
    """One line per turn that a model ended; the message was rid of keys where it was made."""
    detail = " ".join(str(error).split())[:_LONGEST_LOGGED]
    log.warning("model_failed", extra={"code": error.code, "error": type(error).__name__, "detail": detail})
