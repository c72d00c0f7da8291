"""Refusals of this app, in one tree. The docstring is the message; `code` is stable and public."""

from __future__ import annotations

from typing import Any


class SessionsError(Exception):
    """The request was refused."""

    code = "refused"

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or (self.__doc__ or "").strip())
        self.details = details


class NotWaiting(SessionsError):
    """Nothing waits for an answer there."""

    code = "not_waiting"


class ExecutionEnded(SessionsError):
    """It has ended already."""

    code = "execution_ended"


class BadInput(SessionsError):
    """The input is not valid."""

    code = "bad_input"

    def __init__(self, message: str = "", *, code: str = "bad_input", **details: Any) -> None:
        super().__init__(message, **details)
        self.code = code


class NotFound(SessionsError):
    """There is no such thing."""

    code = "not_found"


class SessionBusy(SessionsError):
    """The session is busy with another turn."""

    code = "session_busy"


class SessionClosed(SessionsError):
    """The session takes no more input."""

    code = "session_closed"


class SessionExists(SessionsError):
    """The agent has a session of this key already."""

    code = "session_exists"


class AgentExists(SessionsError):
    """The owner has an agent of this name already."""

    code = "agent_exists"


class RevisionConflict(SessionsError):
    """The resource was changed by somebody else; read it again."""

    code = "revision_conflict"


class IdempotencyMismatch(SessionsError):
    """This idempotency key was used with another body."""

    code = "idempotency_mismatch"


class TurnEnded(SessionsError):
    """The turn has ended already."""

    code = "turn_ended"


class NotDead(SessionsError):
    """Only a delivery that was given up can be sent again."""

    code = "not_failed"


class TooManyHooks(SessionsError):
    """The agent has as many hooks as it may."""

    code = "too_many_hooks"


class UnknownHook(SessionsError):
    """There is no such hook, or the token is not its own."""

    code = "not_authenticated"


class BadSignature(SessionsError):
    """The message is not signed with the hook's token as it came."""

    code = "bad_signature"


class StaleRequest(SessionsError):
    """Webhook-Timestamp must be the time in seconds since 1970, at most 300 seconds from now."""

    code = "stale_request"


class PooledConnection(SessionsError):
    """DATABASE_LOCK_URL leads through a connection pooler; session locks need a direct connection."""

    code = "pooled_connection"
