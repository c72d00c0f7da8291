"""Endpoints of automations and schedule previews."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from automations import selectors
from automations.jobs.edit import NewJob, bind_job, delete_job, parse_api_schedule, update_job
from automations.jobs.explain import explain
from automations.jobs.move import move_slot
from automations.jobs.skip import MOST_SKIPPED, skip_slots
from automations.models import CatchUp, ExecutionMode, Overlap, RunState, ScheduleKind, Source
from automations.models.health import PAUSED_AFTER, SLOWED_AFTER
from automations.models.job import MOST_DATES
from automations.schedules.describe import preview
from automations.selectors import STATES
from interfaces.api.automations.runs import AttentionOrNull
from interfaces.api.shared import Caps, CapsIn, Revised, SpentOut, Texts
from interfaces.http.auth import READ, SCHEDULE
from interfaces.http.base import KEY, ApiView, tagged_response
from interfaces.http.fields import (
    AnyObject,
    Flag,
    Input,
    Moment,
    NonBlankText,
    OneOf,
    Output,
    Text,
    TextOrNull,
    ToolNames,
    WholeNumber,
)
from interfaces.http.headers import revision_expected
from interfaces.http.query import (
    SESSION,
    Parameter,
    agent_parameter,
    flag_parameter,
    search_parameter,
    time_parameters,
)
from sessions_app.reads.selectors import agent, shown_id
from sessions_app.tokens.reach import limit_of

STARTS_AT = "The local time from which the rule counts; it gives the time of day."
_ON_WALL: dict[str, Any] = {
    "timezone": {"type": "string", "example": "Europe/Berlin"},
    "except": {
        "type": "array",
        "items": {"type": "string", "format": "date"},
        "maxItems": MOST_DATES,
        "description": "Days without slots, in the schedule's zone.",
        "example": ["2026-12-24"],
    },
    "except_holidays": {
        "type": "string",
        "description": "A country, or a part of one, on whose public holidays there are no slots.",
        "example": "DE-BY",
    },
}
_KINDS: dict[ScheduleKind, tuple[dict[str, Any], list[str]]] = {
    ScheduleKind.CRON: ({"expr": {"type": "string", "example": "0 9,18 * * 1-5"}, **_ON_WALL}, ["expr"]),
    ScheduleKind.RRULE: (
        {
            "rule": {"type": "string", "example": "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"},
            "starts_at": {"type": "string", "example": "2026-11-30T17:00", "description": STARTS_AT},
            **_ON_WALL,
        },
        ["rule", "starts_at"],
    ),
    ScheduleKind.EVERY: ({"seconds": {"type": "integer", "minimum": 1}}, ["seconds"]),
    ScheduleKind.AT: ({"at": {"type": "string", "format": "date-time"}}, ["at"]),
}
SCHEDULE_SHAPE = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"type": "string", "enum": [kind.value]}, **properties},
            "required": ["kind", *required],
            "additionalProperties": False,
        }
        for kind, (properties, required) in _KINDS.items()
    ]
}


@extend_schema_field(SCHEDULE_SHAPE)
class Schedule(serializers.JSONField):
    """Exactly one schedule."""


@extend_schema_field({"type": "integer", "minimum": 1, "maximum": settings.RONDO_TURN_SECONDS})
class TimeoutSeconds(WholeNumber):
    """Time limit of one turn."""


PING_URL = "Called by GET after each run that succeeded, with `/fail` after one that failed. Empty: none."


MODEL = "Asked in place of the agent's model. Empty: the agent's."
FALLBACK = "Asked in place of the agent's fallback model. Empty: the agent's."
OUTPUT = "The most tokens of one reply; of this and the agent's limit the lower one holds. Null: the agent's."
ALLOW_TOOLS = (
    "The only tools that its turns are offered; each needs the consent that it needs without this list. Null: all of"
    " the agent's."
)
GATE = (
    'A check before the model, such as `{"kind": "http_changed", "url": "https://example.org/", "pointer": "/0"}`: if a'
    " public address answers as at the last slot, the run is skipped (`gate`). Null: none."
)


class PauseFields(Input):
    paused_from = Text(
        required=False,
        allow_null=True,
        help_text="When the pause up to `paused_until` begins; null: at once. Without an offset: in the agent's zone.",
    )
    paused_until = Text(
        required=False,
        allow_null=True,
        help_text="Pause until this ISO time; null ends the pause. Without an offset: in the agent's zone.",
    )


class AutomationFields(Input):
    name: Text = NonBlankText(required=False)
    message = NonBlankText(required=False)
    schedule = Schedule(required=False)
    enabled = Flag(required=False)
    overlap = OneOf(choices=Overlap.choices, required=False)
    catch_up = OneOf(choices=CatchUp.choices, required=False)
    timeout_seconds = TimeoutSeconds(required=False, allow_null=True)
    ends_at = Text(
        required=False,
        allow_null=True,
        help_text="No runs after this ISO time. Without an offset: in the agent's zone.",
    )
    max_runs = WholeNumber(required=False, allow_null=True, help_text="Maximum number of runs.")
    jitter_seconds = WholeNumber(
        required=False, help_text="Delay each run by a fixed amount, up to this many seconds."
    )
    max_retry = WholeNumber(required=False, help_text="Retries of a failed run. Default: 0.")
    ping_url = Text(required=False, allow_blank=True, help_text=PING_URL)
    model = Text(required=False, allow_blank=True, help_text=MODEL)
    fallback_model = Text(required=False, allow_blank=True, help_text=FALLBACK)
    max_output_tokens = WholeNumber(required=False, allow_null=True, help_text=OUTPUT)
    allow_tools = ToolNames(allow_null=True, help_text=ALLOW_TOOLS)
    gate = AnyObject(required=False, allow_null=True, help_text=GATE)
    limits = CapsIn()


class AutomationChanges(PauseFields, AutomationFields):
    example = {"enabled": True, "timeout_seconds": 600}


class NewAutomation(AutomationFields):
    example = {
        "name": "Morning news",
        "message": "Summarise the news of the night.",
        "schedule": {"kind": "cron", "expr": "0 9 * * *", "timezone": "Europe/Berlin"},
        "timeout_seconds": 600,
    }
    name = Text(required=False, allow_blank=True)
    message = NonBlankText()
    schedule = Schedule()
    allow_duplicate = Flag(
        required=False, help_text="Create it though the session has one with the same message and schedule."
    )


class SkipIn(Input):
    example = {"slots": 1}
    slots = WholeNumber(
        required=False, min_value=1, max_value=MOST_SKIPPED, help_text="How many slots to skip."
    )
    until = Text(
        required=False,
        help_text="Skip the slots before this ISO time. Without an offset: in the agent's zone.",
    )


class MoveIn(Input):
    example = {"slot": "2099-01-06T09:00:00+01:00", "to": "2099-01-07T10:00:00+01:00"}
    slot = Text(
        help_text="ISO time of a coming run, or where one was moved. Without an offset: in the agent's zone."
    )
    to = Text(help_text="The ISO time at which it is to run instead.")


BACKOFF_UNTIL = f"No slot before this time is run, because the last {SLOWED_AFTER} runs or more failed."
PAUSED_REASON = (
    f"`failing`: the server has paused it, after {PAUSED_AFTER} failed runs or three days of failing."
)


class ProblemOut(Output):
    code = serializers.CharField(
        help_text="What it is about: the code of the error that saving it would give; `budget`: a cap is used up."
    )
    text = serializers.CharField()
    since = serializers.DateTimeField()


class HealthOut(Output):
    failures_in_a_row = serializers.IntegerField(
        help_text="Runs that failed since the last good one. Those that need attention count if there are three."
    )
    backoff_until = serializers.DateTimeField(allow_null=True, help_text=BACKOFF_UNTIL)
    paused_reason = TextOrNull(help_text=PAUSED_REASON)
    preflight = ProblemOut(
        many=True, help_text="What will stop the next run, as it was found without a model call."
    )


class ScheduledOut(Revised):  # what automations and routines have in common
    id = serializers.CharField()
    agent = serializers.CharField()
    enabled = serializers.BooleanField()
    timeout_seconds = serializers.IntegerField(allow_null=True)
    max_retry = serializers.IntegerField()
    next_run_at = serializers.DateTimeField(allow_null=True)
    paused_from = serializers.DateTimeField(
        allow_null=True, help_text="When the pause up to `paused_until` begins; null once it has begun."
    )
    paused_until = serializers.DateTimeField(
        allow_null=True, help_text="No slot of the pause before this time runs; null when it has passed."
    )
    gate = serializers.DictField(allow_null=True, help_text=GATE)
    health = HealthOut()
    limits = Caps(scope="automation", zone="zone")
    state = serializers.ChoiceField(choices=STATES)
    last_status = serializers.ChoiceField(choices=RunState.choices, allow_null=True)
    pending = serializers.BooleanField()


class AutomationOut(ScheduledOut):
    name = serializers.CharField()
    message = serializers.CharField()
    schedule = Schedule()
    execution_mode = serializers.ChoiceField(choices=ExecutionMode.choices)
    overlap = serializers.ChoiceField(choices=Overlap.choices)
    catch_up = serializers.ChoiceField(choices=CatchUp.choices)
    ends_at = serializers.DateTimeField(allow_null=True)
    max_runs = serializers.IntegerField(allow_null=True)
    jitter_seconds = serializers.IntegerField()
    ping_url = serializers.CharField(help_text=PING_URL)
    model = serializers.CharField(help_text=MODEL)
    fallback_model = serializers.CharField(help_text=FALLBACK)
    max_output_tokens = serializers.IntegerField(allow_null=True, help_text=OUTPUT)
    allow_tools = Texts(allow_null=True, help_text=ALLOW_TOOLS)
    source = serializers.ChoiceField(choices=Source.choices)  # type: ignore[assignment]  # a field of this name
    session = serializers.UUIDField()
    session_key = serializers.CharField()


class SavedAutomationOut(AutomationOut):
    warnings = Texts(help_text="What will go wrong, as `explain/` says it.")


@extend_schema_field({"type": "string", "format": "date-time"})
class LocalMoment(serializers.Field[Any, Any, Any, Any]):
    """An instant with its own offset; DRF's field would convert it to UTC."""

    def to_representation(self, value: datetime) -> str:
        """Return the instant as ISO text with its own offset."""
        return value.isoformat()


class ExplainedRunOut(Output):
    run_id = serializers.CharField()
    scheduled_for = LocalMoment(help_text="The slot, with the offset of the schedule's zone.")
    state = serializers.ChoiceField(choices=RunState.choices, source="run_state")
    reason = TextOrNull()
    slots_from = LocalMoment(allow_null=True)
    slots_to = LocalMoment(allow_null=True)
    moved_to = LocalMoment(allow_null=True, help_text="Of a slot that was moved: where it is.")
    count = serializers.IntegerField(
        allow_null=True, help_text="Skipped slots; null above 1,000 and for other runs."
    )
    attention = AttentionOrNull()
    attempt = serializers.IntegerField()
    text = serializers.CharField(help_text="The result in one sentence.")


class RunsUsageOut(SpentOut):
    runs = serializers.IntegerField(help_text="Those that asked a model.")
    usd_per_run = serializers.CharField()


class ExplanationOut(Output):
    words = serializers.CharField(help_text="The schedule in words, in its own zone.")
    timezone = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    now = serializers.CharField(help_text="The current state in one sentence.")
    next = serializers.ListField(
        child=LocalMoment(),
        help_text="Up to 5 next runs, with the zone's offset.",
    )
    last = ExplainedRunOut(many=True, help_text="The last 20 runs, the latest slot first.")
    warnings = Texts()
    usage = RunsUsageOut(help_text="What its runs of the last 30 days used.")


class PreviewIn(Input):
    example = {
        "schedule": {
            "kind": "rrule",
            "rule": "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO",
            "starts_at": "2026-11-30T09:00",
            "timezone": "Europe/Berlin",
            "except": ["2026-12-28"],
        },
        "count": 5,
    }
    schedule = Schedule()
    agent = Text(
        required=False,
        help_text="One of your agents: its zone is used for a schedule without a zone. Default: UTC.",
    )
    after = Moment(required=False)
    count = WholeNumber(required=False, min_value=1, max_value=50)


class PreviewOut(Output):
    next = Texts(
        help_text="ISO times with the offset of the schedule's zone; an `at` keeps the offset that it was given.",
    )
    words = serializers.CharField()
    warnings = Texts()


class AutomationList(ApiView):
    scopes = {"get": READ, "post": SCHEDULE}
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=AutomationOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """List the session's automations, the oldest first; in a unified thread also the primary session's."""
        rows = selectors.automations_of(self.user, session_id)
        return self.page(rows, AutomationOut, of=selectors.automation_of)

    @extend_schema(parameters=[KEY], request=NewAutomation, responses={201: SavedAutomationOut})
    def post(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Create an automation in the session; in a thread of a unified agent, in the primary session."""
        shown_id(self.user, session_id)
        new = NewJob(session_id=session_id, **({"allow_duplicate": False} | self.read(NewAutomation)))
        is_limited = bool(limit_of(self.user))
        return self.create(
            lambda: _saved(self.user, bind_job(new, is_limited=is_limited).pk), "/api/automations/{id}/"
        )


def _saved(user: User, job_id: str) -> dict[str, Any]:
    """An automation as it was saved, with what will go wrong."""
    return AutomationOut(selectors.automation(user, job_id)).data | {
        "warnings": list(explain(user, job_id).warnings)
    }


class AutomationsOfUser(ApiView):
    scopes = {"get": READ}
    within_limits = {"get"}
    ordering = ("place",)
    takes = {
        "get": (
            *(agent_parameter("agent__name"), SESSION, Parameter(name="state", choices=selectors.STATES)),
            flag_parameter("enabled", "Whether it is enabled or paused."),
            *time_parameters("created_at"),
            search_parameter("the name or the message"),
        )
    }

    @extend_schema(responses=AutomationOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your automations in all sessions, the oldest first."""
        rows = selectors.automations_of_user(self.user, self.wanted(), self.term)
        return self.page(rows, AutomationOut, of=selectors.automation_of)


class AutomationDetail(ApiView):
    scopes = {"get": READ, "patch": SCHEDULE, "delete": SCHEDULE}
    refuses = {"patch": (409,), "delete": (409,)}

    @extend_schema(responses=AutomationOut)
    def get(self, _request: Request, job_id: str) -> Response:
        """Get an automation."""
        automation = selectors.automation(self.user, job_id)
        return tagged_response(AutomationOut(automation).data, automation.revision)

    @extend_schema(request=AutomationChanges, responses=SavedAutomationOut)
    def patch(self, _request: Request, job_id: str) -> Response:
        """Change the given fields; `schedule` is replaced as a whole."""
        automation = selectors.automation_to_change(self.user, job_id)
        revision = revision_expected(self.request, automation.revision)
        given = self.read(AutomationChanges, of=AutomationOut)
        update_job(job_id, given, revision=revision, is_limited=bool(limit_of(self.user)))
        body = _saved(self.user, job_id)
        return tagged_response(body, body["revision"])

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, job_id: str) -> Response:
        """Delete an automation with its runs; a running turn of it goes on."""
        automation = selectors.automation_to_change(self.user, job_id)
        delete_job(job_id, revision=revision_expected(self.request, automation.revision))
        return Response(status=status.HTTP_204_NO_CONTENT)


class AutomationExplanation(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=ExplanationOut)
    def get(self, _request: Request, job_id: str) -> Response:
        """Explain why the last slots did or did not run, the current state, and the next runs, and what they used."""
        explained = vars(explain(self.user, job_id)) | {"usage": selectors.usage_of_runs(job_id)}
        return Response(ExplanationOut(explained).data)


class AutomationSkip(ApiView):
    scopes = {"post": SCHEDULE}
    refuses = {"post": (409, 412)}

    @extend_schema(parameters=[KEY], request=SkipIn, responses=AutomationOut)
    def post(self, _request: Request, job_id: str) -> Response:
        """Skip the next slots: each is recorded as skipped (`skipped_by_user`), and the next run is the one after."""
        selectors.automation_to_change(self.user, job_id)
        given = self.read(SkipIn)
        return self.create(
            lambda: self._skipped(job_id, given), "/api/automations/{id}/", created=status.HTTP_200_OK
        )

    def _skipped(self, job_id: str, given: dict[str, Any]) -> dict[str, Any]:
        # within the idempotent part: a repeated request has the revision from before
        automation = selectors.automation_to_change(self.user, job_id)
        skip_slots(job_id, **given, revision=revision_expected(self.request, automation.revision))
        return AutomationOut(selectors.automation(self.user, job_id)).data


class AutomationMove(ApiView):
    scopes = {"post": SCHEDULE}
    refuses = {"post": (409, 412)}

    @extend_schema(parameters=[KEY], request=MoveIn, responses=AutomationOut)
    def post(self, _request: Request, job_id: str) -> Response:
        """Move one coming run to another time, and back: its slot is recorded as skipped (`moved`)."""
        selectors.automation_to_change(self.user, job_id)
        given = self.read(MoveIn)

        def moved() -> dict[str, Any]:
            # within the idempotent part: a repeated request has the revision from before
            automation = selectors.automation_to_change(self.user, job_id)
            move_slot(job_id, **given, revision=revision_expected(self.request, automation.revision))
            return AutomationOut(selectors.automation(self.user, job_id)).data

        return self.create(moved, "/api/automations/{id}/", created=status.HTTP_200_OK)


class SchedulePreview(ApiView):
    scopes = {"post": READ}
    within_limits = {"post"}
    refuses = {"post": (404,)}

    @extend_schema(request=PreviewIn, responses=PreviewOut)
    def post(self, _request: Request) -> Response:
        """Preview a schedule: its next slots, the schedule in words, and warnings."""
        given = self.read(PreviewIn)
        now = datetime.now(UTC)
        zone = agent(self.user, given["agent"]).timezone if "agent" in given else "UTC"
        schedule = parse_api_schedule(given["schedule"], zone, now)
        found = preview(schedule, given.get("after", now), given.get("count", 5), zone=zone)
        body = {"next": [slot.isoformat() for slot in found.next], "words": found.words}
        return Response(PreviewOut(body | {"warnings": found.warnings}).data)
