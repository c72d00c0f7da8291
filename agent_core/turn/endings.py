"""Turns the exceptions of a turn into its result. Only Stale and errors of the ports are raised."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from agent_core.exceptions import AgentCoreError, CapReached, ModelError, ModelRefused
from agent_core.text.redact import redact
from agent_core.turn.exchange import Cancelled, Stopped, TimedOut
from agent_core.types import Ending, TurnEvent, TurnResult

ERROR_TEXTS: Final = {
    "model_unavailable": "The model did not answer.",
    "rate_limited": "The model provider is overloaded.",
    "model_refused": "The model provider rejected the request.",
    "model_auth": "The model provider rejected the API key.",
    "model_not_found": "The model provider does not know the model.",
    "model_quota": "The quota of the account at the model provider is used up.",
    "context_too_long": "The conversation is too long for the model.",
    "model_not_configured": "The model is not set up on this server.",
    CapReached.code: "A cap on tokens or money is reached.",
    CapReached.HELD: "Other calls hold what is left of a cap.",
    "timeout": "The time limit was reached.",
    "max_tool_calls": "Too many tool calls.",
    "max_failed_tool_outputs": "Too many tool calls failed.",
    "max_same_failure_signature": "A tool kept failing in the same way.",
    "max_same_tool_intent": "The same tool call was made too often.",
    "invalid_plan": "The model did not make a valid plan.",
    "no_answer": "The model gave no answer.",
    "internal_error": "Something went wrong.",
}
LONGEST_DETAIL: Final = 2000
_LONGEST_LOGGED = 300

log = logging.getLogger(__name__)


class GivenUp(AgentCoreError):
    """A limit of the turn ended it, or there is no valid plan or answer; ``code`` says which.

    ``text`` tells people more than the code does.
    """

    def __init__(self, code: str, detail: str = "", *, text: str = "") -> None:
        super().__init__(detail or code)
        self.code, self.text = code, text


class ModelBroke(AgentCoreError):
    """The model's code raised an exception other than ModelError; this is a bug."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


class RunningTurn(Protocol):
    """A turn in progress."""

    def run(self) -> Generator[TurnEvent, None, None]:
        """Run to the end."""

    def ended(self, ending: Ending, error_text: str = "", /) -> TurnResult:
        """Return the result of a turn that ends like this; `error_text` tells people why it failed."""


def run_to_result(turn: RunningTurn) -> Generator[TurnEvent, None, TurnResult]:
    """Yield the turn's events and return its result. Raises Stale and whatever else a port raises."""
    try:
        yield from turn.run()
    except Stopped:
        return TurnResult(ending=Ending.HANDED_BACK)
    except Cancelled:
        return turn.ended(Ending.CANCELLED)
    except TimedOut as error:
        return _failed(turn, "timeout", error)
    except (GivenUp, CapReached) as error:
        return _failed(turn, error.code, error)
    except ModelError as error:
        _log(error)
        return _failed(turn, error.code, error)
    except ModelBroke as error:
        log.exception("model_broke", exc_info=error.cause)
        return _failed(turn, "internal_error", error.cause)
    return turn.ended(Ending.SUCCEEDED)


def _failed(turn: RunningTurn, code: str, error: Exception) -> TurnResult:
    text = _error_text(code, error)
    return replace(
        turn.ended(Ending.FAILED, text),
        error_code=code,
        error_text=text,
        error_detail=error_detail_for(error),
        provider_message=error.said if isinstance(error, ModelError) else "",
        refused=isinstance(error, ModelRefused) and error.of_input,
        cap=error.cap if isinstance(error, CapReached) else None,
    )


def _error_text(code: str, error: Exception) -> str:
    """Return the text for people: status and reason if known, else the meaning of the code."""
    if isinstance(error, GivenUp | CapReached) and error.text:
        return error.text
    if not isinstance(error, ModelError) or not error.reason:
        return ERROR_TEXTS[code]
    tried = f"; tried {error.tries} times" if error.tries > 1 else ""
    return f"{error.reason}{tried}."


def error_detail_for(error: Exception) -> str:
    """Return class and message for operators, without secrets of the environment."""
    return redact(f"{type(error).__name__}: {error}")[:LONGEST_DETAIL]


def log_failed_call(
    logger: logging.Logger, event: str, error: Exception | None, more: Mapping[str, object]
) -> None:
    """Log that a model call beside the answer failed: a warning, or an error with its trace if it is a bug."""
    bug = error is not None and not isinstance(error, AgentCoreError)
    logger.log(
        logging.ERROR if bug else logging.WARNING, event, exc_info=error if bug else None, extra=dict(more)
    )


def _log(error: ModelError) -> None:
    """Log one line for a turn that a model error ended. The message contains no keys (see llm/errors.py)."""
    detail = " ".join(str(error).split())[:_LONGEST_LOGGED]
    log.warning("model_failed", extra={"code": error.code, "error": type(error).__name__, "detail": detail})
