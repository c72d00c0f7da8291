"""Translates a model provider's errors: status and cause in our words, and one line of the provider's own (rule 3.6).

Our words are for everybody. The provider's are kept apart, for the owner alone, without secrets and without what they
repeat of the request.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
from http.client import responses
from typing import Final

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)

from agent_core.addresses import NotPublic
from agent_core.connections import named_model
from agent_core.exceptions import CONTEXT_TOO_LONG, ModelError, ModelRefused, ModelUnavailable
from agent_core.llm.protocol import ModelCall
from agent_core.llm.provider_words import (
    LONGEST_REASON,
    causes,
    error_body,
    message_of,
    one_line,
    provider_message,
)
from agent_core.text.redact import redact
from agent_core.text.status_phrases import status_phrase

_LONGEST_MESSAGE: Final = 1000  # characters of the message that operators see
_LONGEST_NAME: Final = 100
_TRY_AGAIN: Final = {408, 409, 425, 429}
_TOO_LONG = re.compile(  # messages of servers that send no known error code
    r"(?:prompt|input) is too long|available context size|context (?:length|window) (?:is )?exceeded"
    r"|(?:maximum|maximal|the) (?:context|prompt|input) length|(?:model|context) token limit|context overflow"
    r"|exceeds? the (?:model's )?(?:maximum )?context|max_new_tokens` must be <=|too large for model with",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"API key (?:is )?(?:expired|not valid|invalid|missing)", re.IGNORECASE
)  # Google, as a 400
_INPUT = re.compile(r"(?:messages|input|contents|prompt)\b")  # a parameter of what the request says
_BLAMES_INPUT = re.compile(  # codes and messages that name a place in it, or the filter that it did not pass
    r"\b(?:messages|input|contents)[.\[]+\d|content.(?:exists.risk|policy|filter)"
    r"|data.?inspection|invalid.prompt|inappropriate|flagged|moderation",
    re.IGNORECASE,
)
REJECTED: Final = "The model provider rejected the request"
OVERLOADED: Final = "The model provider is overloaded"
# errors that the client raises for an unexpected answer, such as an HTML page or other JSON
UNREADABLE: Final = (UnexpectedModelBehavior, ValueError, TypeError, AttributeError, LookupError)
_FINAL: Final[tuple[tuple[type[ModelAPIError], str, str], ...]] = (  # the first match: code and reason
    (ModelQuotaExceededError, "model_quota", "the account's quota or credit is used up"),
    (ModelContextWindowExceededError, CONTEXT_TOO_LONG, "context length exceeded"),
)
_BY_MESSAGE: Final = (
    (_TOO_LONG, CONTEXT_TOO_LONG, "context length exceeded"),
    (_BAD_KEY, "model_auth", "invalid API key"),
)
_CONNECTION: Final[tuple[tuple[type[BaseException], str], ...]] = (  # the first match
    (NotPublic, "not a public address"),
    (ModelTimeoutError, "timed out"),
    (ConnectionRefusedError, "connection refused"),
    (socket.gaierror, "unknown host name"),
    (ssl.SSLCertVerificationError, "invalid certificate"),
    (ssl.SSLError, "no secure connection"),
    (TimeoutError, "timed out"),
)


def translated(error: Exception, call: ModelCall | None = None, secrets: tuple[str, ...] = ()) -> ModelError:
    """Return our error for one of the client's: ModelUnavailable if a retry may help, else ModelRefused.

    `secrets` are those of the connection; the process's own are known.
    """
    text = f"{type(error).__name__}: {error}"[: 20 * _LONGEST_MESSAGE]
    text = redact(text, more=secrets)[:_LONGEST_MESSAGE]
    translation = _translation(error, text, secrets)
    translation.said = provider_message(error, call, secrets)
    return translation


def _translation(error: Exception, text: str, secrets: tuple[str, ...]) -> ModelError:
    if isinstance(error, UserError):
        return ModelRefused(text)
    if isinstance(error, ContentFilterError):
        return _refused(ModelRefused(text, reason=f"{REJECTED} (its content filter)"), of_input=True)
    if is_final(error):
        code, why = _rejection(error, secrets)
        refused = ModelRefused(text, code=code, reason=f"{REJECTED} ({_status(error)}{why})")
        refused.of_bytes = isinstance(error, ModelHTTPError) and error.status_code == 413
        return _refused(refused, of_input=code == ModelRefused.code and _blames_the_input(error))
    code, reason = _outage(error)
    return ModelUnavailable(text, code=code, reason=reason, retry_after=_retry_after(error))


def _refused(error: ModelRefused, *, of_input: bool) -> ModelRefused:
    error.of_input = of_input
    return error


def _blames_the_input(error: Exception) -> bool:
    """Whether a rejection names a message as its cause. One that names nothing may be of a setting."""
    if not isinstance(error, ModelHTTPError) or error.status_code not in {400, 422}:
        return False
    body = error_body(error)
    param, code = (str(body.get(name) or "") for name in ("param", "code"))
    if param or code.startswith("unsupported"):
        return bool(_INPUT.match(param)) and not code.startswith("unsupported")
    return bool(_BLAMES_INPUT.search(f"{code} {message_of(body)[: 20 * LONGEST_REASON]}"))


def _retry_after(error: Exception) -> float | None:
    """The wait that the provider asked for; None if there is none that can be understood."""
    wait = error.retry_after if isinstance(error, ModelAPIError) else None
    return wait if wait is not None and math.isfinite(wait) and wait >= 0 else None


def is_final(error: Exception) -> bool:
    """Whether a retry cannot help."""
    if isinstance(
        error, UserError | ContentFilterError | ModelQuotaExceededError | ModelRequestRejectedError
    ):
        return True
    if isinstance(error, ModelHTTPError):
        return 400 <= error.status_code < 500 and error.status_code not in _TRY_AGAIN
    return _redirect(error) > 0


def _rejection(error: Exception, secrets: tuple[str, ...]) -> tuple[str, str]:
    """Code and reason of a rejected request."""
    for category, code, words in _FINAL:
        if isinstance(error, category):
            return code, words
    if isinstance(error, ModelAuthenticationError):
        denied = isinstance(error, ModelHTTPError) and error.status_code == 403
        return "model_auth", "the API key has no access" if denied else "invalid API key"
    if isinstance(error, ModelNotFoundError) or error_body(error).get("type") == "invalid_model":
        name = one_line(str(getattr(error, "model_name", "")), _LONGEST_NAME, secrets)
        is_sure = not isinstance(error, ModelNotFoundError) or error.provider_error_code == "model_not_found"
        end = "does not exist" if is_sure else "does not exist there, or the base URL is wrong"
        return "model_not_found", f"{named_model(name)} {end}"
    if isinstance(error, ModelHTTPError) and error.status_code == 413:
        return CONTEXT_TOO_LONG, "the request is too large"
    if status := _redirect(error):
        return ModelRefused.code, f"{status}: it redirects to another address; check the base URL"
    said = message_of(error_body(error))[: 20 * LONGEST_REASON]
    known = (found for pattern, *found in _BY_MESSAGE if pattern.search(said))
    code, words = next(known, (ModelRefused.code, _phrase(error)))
    return code, words


def _outage(error: Exception) -> tuple[str, str]:
    """Code and reason of an error for which a retry may help."""
    if isinstance(error, ModelRateLimitError):
        return "rate_limited", f"{OVERLOADED} ({_status(error)}too many requests)"
    if isinstance(error, ModelConnectionError):
        return ModelUnavailable.code, f"The model provider cannot be reached ({_connection(error)})"
    if isinstance(error, ModelHTTPError):
        is_busy = isinstance(error, ModelUnavailableError | ModelOverloadedError)
        what = OVERLOADED if is_busy else "The model provider failed"
        return ModelUnavailable.code, f"{what} ({_status(error)}{_phrase(error)})"
    if any(isinstance(each, UNREADABLE) for each in causes(error)):
        return ModelUnavailable.code, "The model provider sent an answer that cannot be read"
    if isinstance(error, ModelAPIError):
        return ModelUnavailable.code, "The model provider failed"
    return ModelUnavailable.code, f"The model provider cannot be reached ({_connection(error)})"


def _status(error: Exception) -> str:
    return f"{error.status_code}: " if isinstance(error, ModelHTTPError) else ""


def _redirect(error: Exception) -> int:
    """The status of a redirect, else 0. Redirects are not followed, because they could lead the key elsewhere."""
    statuses = (getattr(each, "status_code", getattr(each, "code", 0)) for each in causes(error))
    return next((status for status in statuses if isinstance(status, int) and 300 <= status < 400), 0)


def _phrase(error: Exception) -> str:
    status = error.status_code if isinstance(error, ModelHTTPError) else 0
    if isinstance(error, ModelOverloadedError) and status not in responses:
        return "overloaded"
    return status_phrase(status).lower() if status in responses else "no reason given"


def _connection(error: Exception) -> str:
    """Why there is no connection, from the first known error in the chain."""
    for each in causes(error):
        for kind, words in _CONNECTION:
            if isinstance(each, kind):
                return words
    return "connection lost"
