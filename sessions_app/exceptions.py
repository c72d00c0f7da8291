"""The errors of this app. The docstring is the default message; `code` is stable and public."""

from __future__ import annotations

from typing import Any


class SessionsError(Exception):
    """The request was refused."""

    code = "refused"

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or (self.__doc__ or "").strip())
        self.details = details


class NoThreadFree(Exception):
    """No thread of the web process became free in time."""


class NotWaiting(SessionsError):
    """The question is closed and cannot be answered any more."""

    code = "question_closed"


class QuestionTaken(SessionsError):
    """Another answer to this question is being processed; wait for its turn to end."""

    code = "question_taken"


class ExecutionEnded(SessionsError):
    """The execution has already ended."""

    code = "execution_ended"


class BadInput(SessionsError):
    """The input is not valid."""

    code = "bad_input"

    def __init__(self, message: str = "", *, code: str = "bad_input", **details: Any) -> None:
        super().__init__(message, **details)
        self.code = code


class TooLarge(SessionsError):
    """The input is too large."""

    code = "too_large"


class NotFound(SessionsError):
    """The resource does not exist."""

    code = "not_found"


class SessionBusy(SessionsError):
    """The session is busy with another turn."""

    code = "session_busy"


class SessionClosed(SessionsError):
    """The session is closed and accepts no input."""

    code = "session_closed"


class OwnerInactive(SessionsError):
    """The account that this belongs to is inactive."""

    code = "owner_inactive"


class SessionExists(SessionsError):
    """The agent already has a session with this key."""

    code = "session_exists"


class AgentExists(SessionsError):
    """The owner already has an agent with this name."""

    code = "agent_exists"


class RevisionConflict(SessionsError):
    """The resource was changed by somebody else; read it again."""

    code = "revision_conflict"


class IdempotencyMismatch(SessionsError):
    """This idempotency key was already used with another body; use a new key."""

    code = "idempotency_mismatch"


class HistoryDiverged(SessionsError):
    """The client's history is not the session's."""

    code = "history_diverged"


class TurnEnded(SessionsError):
    """The turn has already ended."""

    code = "turn_ended"


class NotDead(SessionsError):
    """Only a failed delivery can be sent again."""

    code = "not_failed"


class TooManyHooks(SessionsError):
    """The agent has the maximum number of hooks; delete one first."""

    code = "too_many_hooks"


class TooSoon(SessionsError):
    """The same was done a moment ago; wait a little."""

    code = "throttled"
    retry_after = 0  # seconds, if they are known


class TooManyStreams(SessionsError):
    """The user has too many open streams; close one and try again."""

    code = "too_many_streams"
    retry_after = 10  # seconds; the server may take so long to notice that a window was closed


class TooManyTickets(SessionsError):
    """Too many stream tickets are open; use them, or wait until they expire."""

    code = "too_many_tickets"
    retry_after = 60  # seconds; all have expired by then


class TooManyTokens(SessionsError):
    """The user has the maximum number of tokens; revoke one first."""

    code = "too_many_tokens"


class TooManyAgents(SessionsError):
    """The user has the maximum number of agents; delete one first."""

    code = "too_many_agents"


class TooManySessions(SessionsError):
    """The user has the maximum number of sessions; delete some first."""

    code = "too_many_sessions"


class StorageFull(SessionsError):
    """The user's conversations hold as many bytes as a user may store; delete some."""

    code = "storage_full"


class InsufficientScope(SessionsError):
    """The token does not allow this."""

    code = "insufficient_scope"


class BeyondLimit(SessionsError):
    """The token is limited to one agent or session, and this is not a part of it."""

    code = "beyond_limit"


class TooManyWaiting(SessionsError):
    """Too many messages wait in the session; send it later."""

    code = "too_many_waiting"
    retry_after = 10  # seconds; some of them have been answered by then


class UnknownHook(SessionsError):
    """The hook does not exist, or the token is not the hook's."""

    code = "not_authenticated"


class BadSignature(SessionsError):
    """The signature does not match the request body; sign the exact bytes with the hook's token."""

    code = "bad_signature"


class StaleRequest(SessionsError):
    """Webhook-Timestamp must be the time in seconds since 1970, at most 300 seconds from now."""

    code = "stale_request"


class UnreadableSecret(SessionsError):
    """The stored secret cannot be read, because SECRET_KEY has changed; enter it again."""

    code = "secret_unreadable"


class ConnectionExists(SessionsError):
    """The owner already has a connection with this name."""

    code = "connection_exists"


class ConnectionInUse(SessionsError):
    """Agents use the connection; change their models first."""

    code = "connection_in_use"


class BotExists(SessionsError):
    """The agent already has a Telegram bot; delete it first."""

    code = "bot_exists"


class BotTaken(SessionsError):
    """This Telegram bot belongs to another agent; make another one."""

    code = "bot_taken"


class TelegramAway(SessionsError):
    """Telegram cannot be reached; try again."""

    code = "telegram_away"


class PooledConnection(SessionsError):
    """DATABASE_LOCK_URL goes through a connection pooler; session locks need a direct connection."""

    code = "pooled_connection"
