"""The arguments of the tools. They are strict: unknown names and wrong types are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, SkipJsonSchema

from automations.jobs.skip import MOST_SKIPPED
from automations.models.job import MOST_DATES
from sessions_app.permits import MOST_ALLOWED
from sessions_app.queue.receive import LONGEST_MESSAGE

LONGEST_WAIT = 50  # seconds; common clients give a call 60
USUAL_WAIT = 40
LONGEST_ANSWER = 10_000  # characters of the answer to a question
LONGEST_NAME = 200  # characters
MOST_LISTED = 100
LARGEST_ID = 2**63 - 1
SESSION = "A session's id. Default: the agent's primary session."
AGENT = "The name of an agent, as list_agents shows it. Default: the only one."
ONCE = "The same key and arguments take effect once, however often they are sent."


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not hold a NUL character")
    return text


_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
Text = Annotated[str, AfterValidator(_without_nul)]
Short = Annotated[Text, Field(min_length=1, max_length=64)]  # a name, an id, a time
Title = Annotated[Text, Field(max_length=LONGEST_NAME)]
Message = Annotated[Text, Field(min_length=1, max_length=LONGEST_MESSAGE)]
SessionId = Annotated[str, Field(min_length=36, max_length=36, pattern=_UUID)]
Positive = Annotated[int, Field(ge=1, le=LARGEST_ID)]
Limit = Annotated[int, Field(ge=1, le=MOST_LISTED)]
Wait = Annotated[int, Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the answer.")]
Key = Annotated[str, Field(min_length=1, max_length=190, pattern="^[ -~]+$")]
Absent = SkipJsonSchema[None]  # an argument that may be left out; null counts as left out


class _Schema(GenerateJsonSchema):
    """JSON schemas without `default: null`, which a parameter of another type must not have."""

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of a field with a default."""
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if key != "default" or value is not None}


class Arguments(BaseModel):
    """The arguments of a tool."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def schema_for_clients(cls) -> dict[str, Any]:
        """The JSON schema as clients get it."""
        return cls.model_json_schema(schema_generator=_Schema)


class Nothing(Arguments):
    """No arguments."""


class Place(Arguments):
    """A conversation, by session or by agent."""

    agent: Short | Absent = Field(default=None, description=AGENT)
    session: SessionId | Absent = Field(default=None, description=SESSION)


class Ask(Place):
    message: Message
    wait_seconds: Wait = USUAL_WAIT
    idempotency_key: Key | Absent = Field(default=None, description=ONCE)


class GetAnswer(Arguments):
    turn: Positive = Field(description="The turn that ask returned.")
    wait_seconds: Wait = USUAL_WAIT


class AnswerQuestion(GetAnswer):
    question: Short = Field(description="The id of the question that was read.")
    answer: Annotated[Text, Field(min_length=1, max_length=LONGEST_ANSWER)]


class StopTurn(Arguments):
    turn: Positive = Field(description="The turn that ask returned.")


class OpenSession(Arguments):
    agent: Short | Absent = Field(default=None, description=AGENT)
    title: Title = ""
    idempotency_key: Key | Absent = Field(default=None, description=ONCE)


class ListSessions(Arguments):
    agent: Short | Absent = Field(default=None, description="Only this agent's.")
    limit: Limit = 20


class ReadSession(Place):
    limit: Limit = 20


class AutomationFields(Arguments):
    """One of `every_seconds`, `cron_expr`, `rrule` and `at`, as for the agents' own tool `cron`."""

    name: Title = Field(default="", description="A short title. Default: the start of the message.")
    every_seconds: Positive | Absent = Field(default=None, description="Repeat at this interval.")
    cron_expr: Title | Absent = Field(default=None, description="Five cron fields, such as '0 9 * * *'.")
    rrule: Title | Absent = Field(
        default=None, description="A rule of RFC 5545, such as 'FREQ=WEEKLY;INTERVAL=2;BYDAY=MO'."
    )
    starts_at: Short | Absent = Field(
        default=None, description="With rrule: the local ISO time from which it counts."
    )
    tz: Short | Absent = Field(
        default=None, description="With cron_expr or rrule: an IANA zone. Default: the agent's."
    )
    except_dates: Annotated[list[Short], Field(max_length=MOST_DATES)] | Absent = Field(
        default=None, description="With cron_expr or rrule: days without a run, such as ['2026-12-24']."
    )
    except_holidays: Short | Absent = Field(
        default=None,
        description="With cron_expr or rrule: no run on the public holidays of a country or a part of it, such as"
        " 'DE' or 'DE-BY'.",
    )
    at: Short | Absent = Field(
        default=None, description="Once, ISO time; without an offset in the agent's zone."
    )
    model: Title | Absent = Field(default=None, description="Asked in place of the agent's model.")
    fallback_model: Title | Absent = Field(
        default=None, description="Asked in place of the agent's fallback model."
    )
    max_output_tokens: Positive | None = Field(
        default=None, description="The most tokens of one reply. Null: the agent's limit."
    )
    allow_tools: Annotated[list[Short], Field(max_length=MOST_ALLOWED)] | None = Field(
        default=None, description="The only tools that its turns are offered. Null: all of the agent's."
    )
    gate: dict[str, Any] | None = Field(
        default=None,
        description='A check before the model: {"kind": "http_changed", "url", "pointer"?} skips a run while the'
        " public address answers as before. Null: none.",
    )
    limits: dict[str, Any] | Absent = Field(
        default=None,
        description='Caps of its runs by period: {"run": {"tokens": 20000}, "day": {"usd": "0.50"}, "month": {…}}.',
    )


class Schedule(AutomationFields, Place):
    message: Message = Field(description="What is to be done then.")
    allow_duplicate: bool = Field(
        default=False, description="Create it though one with the same message and schedule exists."
    )
    idempotency_key: Key | Absent = Field(default=None, description=ONCE)


class OneAutomation(Arguments):
    job_id: Short = Field(description="The id that list_appointments shows.")


class Pause(OneAutomation):
    since: Short | Absent = Field(default=None, description="ISO time; default: now.")
    until: Short | Absent = Field(default=None, description="ISO time; default: until it is resumed.")


class Change(AutomationFields, OneAutomation):
    message: Message | Absent = Field(default=None, description="What is to be done then.")


class Retry(Arguments):
    job_id: Short | Absent = Field(default=None, description="The automation whose last run has failed.")
    run_id: Short | Absent = Field(default=None, description="Instead: a failed run that list_runs shows.")


class ListRuns(Arguments):
    agent: Short | Absent = Field(default=None, description="Only this agent's.")
    session: SessionId | Absent = Field(default=None, description="Only those of this session.")
    state: Literal["queued", "running", "succeeded", "failed", "cancelled", "skipped"] | Absent = None
    attention: Literal["empty", "undelivered", "cut_short", "needs_consent"] | Absent = Field(
        default=None, description="Only those that succeeded, but may not have done what they should."
    )
    limit: Limit = 20


class ListQuestions(Arguments):
    state: Literal["open", "granted", "refused", "closed"] = "open"
    limit: Limit = 20


class Usage(Arguments):
    by: Literal["agent", "automation", "session", "connection", "model", "day"] = "agent"
    since: Short | Absent = Field(
        default=None, description="ISO time with an offset. Default: 30 days before until."
    )
    until: Short | Absent = Field(default=None, description="ISO time with an offset. Default: now.")


class Explain(OneAutomation):
    kind: Literal["automation", "routine", "heartbeat", "message"] = Field(
        default="automation", description="The kind that list_appointments shows."
    )


class Skip(OneAutomation):
    slots: Annotated[int, Field(ge=1, le=MOST_SKIPPED)] | Absent = Field(
        default=None, description="How many runs. Default: 1."
    )
    until: Short | Absent = Field(default=None, description="Instead: all runs before this ISO time.")
    idempotency_key: Key | Absent = Field(default=None, description=ONCE)
