"""The results of the tools."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from automations.runs.describe import Slot
from sessions_app.single_line import one_line

LONGEST_PREVIEW = 100  # characters of the last message of a session
LONGEST_SHOWN = 20_000  # characters of a message or an update


def _cut(text: str) -> str:
    more = len(text) - LONGEST_SHOWN
    return text if more <= 0 else f"{text[:LONGEST_SHOWN]}… ({more:,} more characters)"


Shown = Annotated[str, AfterValidator(_cut)]
OrNull = Annotated[str | None, BeforeValidator(lambda text: text or None)]  # null instead of an empty text
Preview = Annotated[str, BeforeValidator(lambda text: one_line(text or "", LONGEST_PREVIEW))]
InWords = Annotated[str, Field(validation_alias=AliasChoices("schedule", "words"))]  # as our reads name it


class Result(BaseModel):
    """The structured result of a tool; also read from the object that it shows."""

    model_config = ConfigDict(from_attributes=True)


class Question(Result):
    id: str
    text: str
    consent: bool = Field(description="Whether a person must allow tool calls; a program cannot.")


class AskResult(Result):
    """`turn` is the handle for get_answer."""

    turn: int
    session: str
    state: Literal["working", "input_required", "succeeded", "failed", "cancelled"]
    answer: str | None = None
    ended_by: str | None = Field(
        default=None, description="How the answer ended: stop, or length, filter, refusal if it is not whole."
    )
    question: Question | None = None
    error: str | None = None
    usage: dict[str, Any] | None = Field(
        default=None, description="Tokens and requests of its last turn, and `usd` if there was a price."
    )


class AgentItem(Result):
    name: str
    model: str = Field(validation_alias="effective_model")
    timezone: str
    primary_session: Annotated[str | None, BeforeValidator(lambda pk: pk and str(pk))]


class AgentList(Result):
    agents: list[AgentItem]


class SessionItem(Result):
    id: Annotated[str, BeforeValidator(str)] = Field(validation_alias="pk")
    agent: str = Field(validation_alias="agent_name")
    type: str
    title: str
    state: str = Field(validation_alias="shown_state")
    preview: Preview = Field(validation_alias="last_words")
    created_at: datetime


class SessionList(Result):
    sessions: list[SessionItem]


class Opened(Result):
    id: str


class MessageItem(Result):
    seq: int
    role: str
    content: Shown
    created_at: datetime


class MessageList(Result):
    session: str
    messages: list[MessageItem]


class Mail(Result):
    event_type: str
    summary: Shown
    detail: Shown
    state: str
    created_at: datetime


class Mailbox(Result):
    session: str
    updates: list[Mail]


class Problem(Result):
    code: str
    text: str
    since: datetime


class Health(Result):
    failures_in_a_row: int
    backoff_until: datetime | None
    paused_reason: OrNull
    preflight: list[Problem] = Field(description="What will stop the next run.")


class Settings(Result):
    """What an automation or a routine has of its own, and how its runs go."""

    model: str = ""
    fallback_model: str = ""
    max_output_tokens: int | None = None
    allow_tools: list[str] | None = None
    gate: dict[str, Any] | None
    limits: dict[str, Any] = Field(
        description="Its caps by period; of a day and a month also what is spent and when it begins anew."
    )
    health: Health


class Appointment(Settings):
    """An automation after it was created or changed."""

    id: str
    name: str
    message: str
    schedule: str = Field(description="In words.")
    state: str
    enabled: bool
    next_run_at: datetime | None
    warnings: list[str] = Field(description="What will go wrong.")


class AppointmentItem(Result):
    kind: str
    id: str
    name: str
    schedule: InWords
    state: str
    now: str
    next: list[datetime]
    warnings: list[str]


class AppointmentList(Result):
    session: str
    appointments: list[AppointmentItem]


class ExplainedRun(Result):
    run_id: str
    scheduled_for: datetime
    state: str
    attention: OrNull
    text: str

    @model_validator(mode="before")
    @classmethod
    def _of_slot(cls, shown: Any) -> Any:
        """Use the state of the slot's run as `state`, not the slot's own, which says what became of the slot."""
        if not isinstance(shown, Slot):
            return shown
        same = {name: getattr(shown, name) for name in ("run_id", "scheduled_for", "attention", "text")}
        return same | {"state": shown.run_state}


class Spent(Result):
    input_tokens: int
    output_tokens: int
    usd: str = Field(description="US dollars of what has a price.")
    unpriced_tokens: int = Field(description="Tokens of models without a price.")


class RunsUsage(Spent):
    """What the runs of the last 30 days used that asked a model."""

    runs: int
    usd_per_run: str


class Explanation(Result):
    name: str
    schedule: InWords
    timezone: str
    state: str
    now: str
    next: list[datetime]
    last: list[ExplainedRun]
    warnings: list[str]
    settings: Settings | None = None
    usage: RunsUsage | None = None


class RunItem(Result):
    """A run of an automation, a routine or a scheduled message."""

    run_id: str
    agent: str = Field(validation_alias="agent_name")
    session: uuid.UUID | None = Field(validation_alias="session_id")
    automation: str | None = Field(validation_alias="automation_id")
    routine: str | None = Field(validation_alias="routine_id")
    scheduled_message: str | None = Field(validation_alias="scheduled_message_id")
    scheduled_for: datetime
    state: str
    reason: OrNull
    attention: OrNull
    attempt: int
    turn: int | None = Field(validation_alias="turn_id")
    usage: dict[str, Any]
    error: OrNull


class RunList(Result):
    runs: list[RunItem]


class QuestionItem(Result):
    """A question for consent. `run`: the run that asked; null in a person's turn."""

    question_id: str = Field(validation_alias="id")
    question: Shown = Field(validation_alias="text")
    agent: str = Field(validation_alias="agent_name")
    session: uuid.UUID = Field(validation_alias="session_id")
    turn: int = Field(validation_alias="turn_id")
    run: OrNull
    state: str
    asked_at: datetime
    expires_at: datetime | None


class QuestionList(Result):
    questions: list[QuestionItem]


class UsageItem(Spent):
    key: str
    name: str
    calls: int


class UsageSums(Result):
    by: str
    since: datetime
    until: datetime
    complete: bool = Field(description="False: only the newest turns of the period are summed.")
    results: list[UsageItem]


class Deleted(Result):
    deleted: str
