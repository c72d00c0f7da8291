"""The database models. Each state is listed once, next to its transitions, and enforced by a CHECK."""

from sessions_app.models.access import (
    Allowance,
    ApiToken,
    CalendarAddress,
    Hook,
    IdempotencyKey,
    Invitation,
    SignInLink,
    StreamTicket,
    TokenScope,
)
from sessions_app.models.agent import Agent, Connection, Document, DocumentRevision, Engine, Preference
from sessions_app.models.delivery import DELIVERY_ARROWS, Delivery, DeliveryState
from sessions_app.models.event import Event, EventType, Scope
from sessions_app.models.mailbox import MailboxEvent, Priority
from sessions_app.models.message import Attachment, ClientChat, ClientMessage, Message
from sessions_app.models.process import Counter, Process, ProcessKind, Pruning, Worker
from sessions_app.models.questions import (
    CONSENT_ARROWS,
    EXECUTION_ARROWS,
    ClosedBecause,
    ConsentQuestion,
    ConsentState,
    ExecutionState,
)
from sessions_app.models.session import (
    BACKGROUND,
    PRIMARY_KEY,
    ChatType,
    ReadMark,
    Session,
    SessionState,
    SessionType,
    TaskState,
)
from sessions_app.models.spending import Reservation, Spending, UserLimits
from sessions_app.models.telegram import TelegramBot, TelegramChat, TelegramUpdate
from sessions_app.models.turn import Lane, OnBusy, Turn, TurnKind, TurnState, TurnStep
from sessions_app.models.turn_input import HookSender, TurnInput
from sessions_app.models.user import PushSubscription, UserSettings
