"""Translates a model provider's errors: status and cause in our words, and one line of the provider's own (rule 3.6).

Our words are for everybody. The provider's are kept apart, for the owner alone, without secrets and without what they
repeat of the request.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import ssl
from collections.abc import Iterator
from http.client import responses
from typing import Any, Final
from urllib.parse import unquote

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
from agent_core.connections import REJECTED, USED_UP, named_model
from agent_core.exceptions import CONTEXT_TOO_LONG, ModelError, ModelRefused, ModelUnavailable, causes
from agent_core.llm.protocol import ModelCall
from agent_core.text.formats import status_phrase
from agent_core.text.redact import HIDDEN, SHORTEST, redact, secrets_of

LONGEST_REASON: Final = 200  # characters of a provider's message that people see
_SHARED: Final = 12  # letters and digits in a row that a message shares with the request are not shown
_SHORTEST_SHARED: Final = 3  # of a text of the request, which is shorter than that
_DEEPEST: Final = 5  # levels of an error object
_LONG_TOKEN = re.compile(  # possibly a key
    r"(?<![\w*.+/=-])(?=[\w*.+/=-]*\d)(?=[\w*.+/=-]*[A-Za-z])[\w*.+/=-]{24,}"
)
_IDENTIFIER = re.compile(r"[A-Za-z][\w.-]{0,63}")
_HIDDEN_RUN = re.compile(r"\0+")
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


def error_body(error: Exception) -> dict[str, Any]:
    """The error object in the response body; {} if there is none. Mistral's client keeps the body as text."""
    bodies = (getattr(each, "body", None) for each in causes(error))
    body: Any = next((each for each in bodies if each), None)
    if isinstance(body, str | bytes):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            is_text = isinstance(body, str) and len(body) <= LONGEST_REASON and "<" not in body  # no page
            return {"message": body} if is_text else {}
    if isinstance(body, list) and body:  # Google
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    return body if isinstance(body, dict) else {}


def message_of(body: Any) -> str:
    """The text of an error object: its `message`, `detail` or `error`, or the first fault of a validation."""
    for _ in range(_DEEPEST):
        if isinstance(body, list) and body:
            body = body[0]
        if not isinstance(body, dict):
            break
        where = body.get("loc")
        if isinstance(where, list) and isinstance(body.get("msg"), str):
            return f"{body['msg']}: {'.'.join(map(str, where))}"
        body = body.get("message") or body.get("detail") or body.get("error")
    return body if isinstance(body, str) else ""


def provider_message(
    error: Exception, call: ModelCall | None, secrets: tuple[str, ...], reason: str = ""
) -> str:
    """One line of the provider's message, or else its error code; empty if there is neither.

    `reason`: our own words for the error. They are no repetition where an update about an earlier such error has them.
    """
    if call is None:
        return ""
    body = error_body(error)
    message, code = message_of(body), body.get("code") or body.get("type")
    if message and not _hides_a_secret(message, secrets):
        line = one_line(message, LONGEST_REASON, secrets, call, reason)
        if any(map(str.isalnum, line)):
            return line.rstrip(".")
    is_plain = isinstance(code, str) and _IDENTIFIER.fullmatch(code)
    return str(code) if is_plain and one_line(str(code), LONGEST_REASON, secrets, call) == code else ""


def one_line(
    text: str, longest: int, secrets: tuple[str, ...], call: ModelCall | None = None, reason: str = ""
) -> str:
    """One line of printable characters, without secrets and without what it repeats of the call but our `reason`."""
    text = "".join(each if each.isprintable() else " " for each in text[: 20 * longest])
    line = _LONG_TOKEN.sub("***", redact(" ".join(text.split()), more=secrets))
    if call is not None:
        line = _without_repeats(line, call, _squeezed(reason))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _hides_a_secret(text: str, more: tuple[str, ...]) -> bool:
    """Whether a text contains a secret with other characters in between, or percent-encoded."""
    secrets = (*secrets_of(os.environ), *more)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    said = _squeezed(unquote(text[: 20 * LONGEST_REASON]))
    return any(len(key) >= SHORTEST and key in said for key in map(_squeezed, secrets))


def _without_repeats(line: str, call: ModelCall, reason: str) -> str:
    """Replace each piece that stands in the request, in any spelling, with an ellipsis.

    A short text of the request is replaced only where it stands as words of its own: "hi" is part of many words.
    """
    letters = [(letter, place) for place, each in enumerate(line) for letter in _squeezed(each)]
    said = "".join(letter for letter, _ in letters)
    pieces = {said[start : start + _SHARED] for start in range(len(said) - _SHARED + 1)}
    repeated: set[str] = set()
    for whole in map(_squeezed, _texts(call)):
        text = whole.replace(reason, "\0") if reason else whole
        if _SHORTEST_SHARED <= len(text) < _SHARED:
            repeated.add(text)
        else:
            repeated |= {piece for piece in pieces if piece in text}
    hidden: set[int] = set()
    for piece in repeated:
        for found in re.finditer(f"(?={re.escape(piece)})", said):
            first, last = letters[found.start()][1], letters[found.start() + len(piece) - 1][1]
            inside = line[max(first - 1, 0) : first] + line[last + 1 : last + 2]
            if len(piece) == _SHARED or not any(map(str.isalnum, inside)):
                hidden.update(range(first, last + 1))
    masked = "".join("\0" if place in hidden else each for place, each in enumerate(line))
    return _HIDDEN_RUN.sub("…", masked)


def _texts(call: ModelCall) -> Iterator[str]:
    yield call.system_prompt
    for entry in call.entries:
        yield entry.content
        for result in entry.results:
            yield result.output
        for asked in entry.calls:
            yield from (str(value) for value in asked.arguments.values())
    for tool in call.tools:
        yield tool.description


def _squeezed(text: str) -> str:
    return _NOT_ALPHANUMERIC.sub("", text).lower()


_LONGEST_MESSAGE: Final = 1000  # characters of the message that operators see
_LONGEST_NAME: Final = 100
_OUT_OF_TIME: Final = {408, 504, 524}
_TRY_AGAIN: Final = {408, 409, 425, 429}
_TOO_LONG = re.compile(  # messages of servers that send no known error code
    r"(?:prompt|input) is too long|available context size|context (?:length|window) (?:is )?exceeded"
    r"|(?:maximum|maximal|the) (?:context|prompt|input) length|(?:model|context) token limit|context overflow"
    r"|exceeds? the (?:model's )?(?:maximum )?context|max_new_tokens` must be <=|too large for model with",
    re.IGNORECASE,
)
# Google, as a 400
_BAD_KEY = re.compile(r"API key (?:is )?(?:expired|not valid|invalid|missing)", re.IGNORECASE)
_INPUT = re.compile(r"(?:messages|input|contents|prompt)\b")  # a parameter of what the request says
_BLAMES_INPUT = re.compile(  # codes and messages that name a place in it, or the filter that it did not pass
    r"\b(?:messages|input|contents)[.\[]+\d|content.(?:exists.risk|policy|filter)"
    r"|data.?inspection|invalid.prompt|inappropriate|flagged|moderation",
    re.IGNORECASE,
)
OVERLOADED: Final = "The model provider is overloaded"
# errors that the client raises for an unexpected answer, such as an HTML page or other JSON
UNREADABLE: Final = (UnexpectedModelBehavior, ValueError, TypeError, AttributeError, LookupError)
_FINAL: Final[tuple[tuple[type[ModelAPIError], str, str], ...]] = (  # the first match: code and reason
    (ModelQuotaExceededError, "model_quota", USED_UP),
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

    `secrets`: the connection's secrets, to be removed, beside those of the process.
    """
    text = f"{type(error).__name__}: {error}"[: 20 * _LONGEST_MESSAGE]
    text = redact(text, more=secrets)[:_LONGEST_MESSAGE]
    translation = _translation(error, text, secrets)
    translation.said = provider_message(error, call, secrets, translation.reason)
    translation.is_free = _reached_no_model(error)
    return translation


def _reached_no_model(error: Exception) -> bool:
    """Whether surely no model has answered: the address was not reached, or its answer was an error status.

    After a status that means a timeout, a model may have answered.
    """
    if isinstance(error, ModelHTTPError):
        return 300 <= error.status_code < 600 and error.status_code not in _OUT_OF_TIME
    if isinstance(error, UserError) or _redirect(error):
        return True
    unreached = (NotPublic, ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)
    return any(isinstance(each, unreached) for each in causes(error))


def _translation(error: Exception, text: str, secrets: tuple[str, ...]) -> ModelError:
    if isinstance(error, UserError):
        return ModelRefused(text)
    if is_final(error):
        code, why = _rejection(error, secrets)
        refused = ModelRefused(text, code=code, reason=f"{REJECTED} ({_status(error)}{why})")
        refused.of_bytes = isinstance(error, ModelHTTPError) and error.status_code == 413
        refused.of_input = code == ModelRefused.code and _blames_the_input(error)
        return refused
    code, reason = _outage(error)
    return ModelUnavailable(text, code=code, reason=reason, retry_after=_retry_after(error))


def _blames_the_input(error: Exception) -> bool:
    """Whether a rejection names a message as its cause. One that names nothing may be about a setting."""
    if isinstance(error, ContentFilterError):
        return True
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
    if isinstance(error, ContentFilterError):
        return ModelRefused.code, "its content filter"
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
