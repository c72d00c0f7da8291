"""The rows. Every state is listed once, beside its arrows, and held by a CHECK."""

from sessions_app.models.agent import Agent, Document, Engine
from sessions_app.models.event import Event, EventType, Scope
from sessions_app.models.idempotency import IdempotencyKey
from sessions_app.models.mailbox import MailboxEvent, Priority
from sessions_app.models.message import Message
from sessions_app.models.session import PRIMARY_KEY, ChatType, Session, SessionState, SessionType
from sessions_app.models.turn import Lane, OnBusy, Turn, TurnKind, TurnState, TurnStep
from sessions_app.models.worker import Worker

__all__ = [
    "PRIMARY_KEY",
    "Agent",
    "ChatType",
    "Document",
    "Engine",
    "Event",
    "EventType",
    "IdempotencyKey",
    "Lane",
    "MailboxEvent",
    "Message",
    "OnBusy",
    "Priority",
    "Scope",
    "Session",
    "SessionState",
    "SessionType",
    "Turn",
    "TurnKind",
    "TurnState",
    "TurnStep",
    "Worker",
]
