"""The results of the tools."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, model_validator

from automations.runs.describe import Slot

LONGEST_SHOWN = 20_000  # characters of a message or an update


def _cut(text: str) -> str:
    more = len(text) - LONGEST_SHOWN
    return text if more <= 0 else f"{text[:LONGEST_SHOWN]}… ({more:,} more characters)"


Shown = Annotated[str, AfterValidator(_cut)]
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


class AgentItem(Result):
    name: str
    model: str
    timezone: str
    primary_session: str | None


class AgentList(Result):
    agents: list[AgentItem]


class SessionItem(Result):
    id: str
    agent: str
    type: str
    title: str
    state: str
    preview: str
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


class Appointment(Result):
    """An automation after it was created or changed."""

    id: str
    name: str
    message: str
    schedule: str = Field(description="In words.")
    state: str
    enabled: bool
    next_run_at: datetime | None
    limits: dict[str, Any] = Field(
        description="Its caps by period; of a day and a month also what is spent and when it begins anew."
    )
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
    scheduled_for: datetime
    state: str
    text: str

    @model_validator(mode="before")
    @classmethod
    def _of_slot(cls, shown: Any) -> Any:
        """Use the state of the slot's run as `state`, not the slot's own, which says what became of the slot."""
        if not isinstance(shown, Slot):
            return shown
        return {"scheduled_for": shown.scheduled_for, "state": shown.run_state, "text": shown.text}


class RunsUsage(Result):
    """What the runs of the last 30 days used that asked a model."""

    runs: int
    input_tokens: int
    output_tokens: int
    usd: str = Field(description="US dollars, as far as there was a price.")
    usd_per_run: str
    unpriced_tokens: int = Field(description="Tokens of models without a price.")


class Explanation(Result):
    name: str
    schedule: InWords
    timezone: str
    state: str
    now: str
    next: list[datetime]
    last: list[ExplainedRun]
    warnings: list[str]
    usage: RunsUsage | None = None


class Deleted(Result):
    deleted: str
