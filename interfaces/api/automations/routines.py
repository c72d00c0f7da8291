"""Endpoints of routines and their runs."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from automations.heartbeats.readiness import WaitReason
from automations.jobs.validate import TASK_TYPES
from automations.models import ExecutionMode, Source
from automations.routines import reads
from automations.routines.edit import NewRoutine, add_routine, remove_routine, update_routine
from interfaces.api.automations.automations import PauseFields, ScheduledOut, TimeoutSeconds
from interfaces.api.automations.runs import RunOut
from interfaces.api.shared import CapsIn
from interfaces.http.auth import READ, SCHEDULE
from interfaces.http.base import KEY, ApiView, tagged_response
from interfaces.http.fields import (
    AnyObject,
    Flag,
    Input,
    NonBlankText,
    OneOf,
    Output,
    Text,
    TextOrNull,
    WholeNumber,
)
from interfaces.http.headers import revision_expected
from interfaces.http.query import flag_parameter
from sessions_app.reads import selectors

MODES = [each for each in ExecutionMode.choices if each[0] != ExecutionMode.SESSION]
SOURCES = [each for each in Source.choices if each[0] != Source.SYSTEM]
SCHEDULE_TEXT = "An interval (`30m`, `1h`, `2d`) or five cron fields; null: run once."
FIRST = (
    "Time of the first run, or of the only run without a schedule. Without an offset: in the routine's zone."
)
INSTRUCTIONS = "The routine's standing instructions. An isolated routine has them in its system prompt."
POLICY = "Limits of one turn, which override the agent's. A change is merged; null removes a limit."


class RoutineFields(Input):
    title = NonBlankText(required=False)
    description = Text(required=False, allow_blank=True)
    instructions = Text(required=False, allow_blank=True, help_text=INSTRUCTIONS)
    schedule = Text(required=False, allow_null=True, allow_blank=True, help_text=SCHEDULE_TEXT)
    next_run_at = Text(required=False, allow_null=True, allow_blank=True, help_text=FIRST)
    execution_mode = OneOf(choices=MODES, required=False)
    timezone = Text(required=False, allow_blank=True, help_text="IANA name; empty: the agent's zone.")
    enabled = Flag(required=False)
    timeout_seconds = TimeoutSeconds(required=False, allow_null=True)
    policy = AnyObject(required=False, help_text=POLICY)
    gate = AnyObject(
        required=False,
        allow_null=True,
        help_text="A check before the model of an isolated routine, as of an automation. Null: none.",
    )
    limits = CapsIn()
    max_retry = WholeNumber(required=False, help_text="Retries of a failed run. Default: 3.")
    task_type = OneOf(choices=TASK_TYPES, required=False, allow_blank=True)


class RoutineChanges(PauseFields, RoutineFields):
    example = {"schedule": "2d", "timeout_seconds": 600}


class NewRoutineIn(RoutineFields):
    example = {
        "title": "Read the news",
        "description": "Collect what is new about PostgreSQL.",
        "schedule": "1d",
        "execution_mode": "isolated",
        "timeout_seconds": 600,
    }
    title = NonBlankText()
    source = OneOf(choices=SOURCES, required=False)  # type: ignore[assignment]  # a field of this name
    allow_duplicate = Flag(required=False)
    session = serializers.UUIDField(
        required=False, allow_null=True, help_text="Session that gets the results; null: the primary one."
    )


class WaitsForOut(Output):
    reason = serializers.ChoiceField(choices=[each.value for each in WaitReason])
    until = serializers.DateTimeField(allow_null=True)


class RoutineOut(ScheduledOut):
    title = serializers.CharField()
    description = serializers.CharField()
    instructions = serializers.CharField(help_text=INSTRUCTIONS)
    schedule = serializers.CharField(allow_null=True, help_text=SCHEDULE_TEXT)
    at = serializers.DateTimeField(allow_null=True, help_text="Time of a one-time routine.")
    timezone = serializers.CharField()
    execution_mode = serializers.ChoiceField(choices=MODES)
    task_type = serializers.ChoiceField(choices=TASK_TYPES)
    source = serializers.ChoiceField(choices=SOURCES)  # type: ignore[assignment]  # a field of this name
    policy = serializers.DictField(help_text=POLICY)
    last_run_at = serializers.DateTimeField(allow_null=True)
    waits_for = WaitsForOut(allow_null=True, help_text="Why a due inline routine has not started.")
    attempt = serializers.IntegerField(help_text="Attempt of the last run; 0 without runs.")
    error = TextOrNull(help_text="Error of the last run.")
    session = serializers.UUIDField(
        allow_null=True, help_text="Session that gets the results; null: the primary one."
    )


HARD = flag_parameter("hard", "Delete the routine with its runs instead of disabling it.")


class RoutineList(ApiView):
    scopes = {"get": READ, "post": SCHEDULE}
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=RoutineOut(many=True))
    def get(self, _request: Request, name: str) -> Response:
        """List the agent's routines, including disabled ones, the oldest first."""
        rows = reads.routines_of(self.user, name)
        return self.page(rows, RoutineOut, of=reads.routine_of)

    @extend_schema(parameters=[KEY], request=NewRoutineIn, responses={201: RoutineOut})
    def post(self, _request: Request, name: str) -> Response:
        """Add a routine with a schedule, a first run, both, or neither: then it runs once, immediately."""
        agent = selectors.agent(self.user, name)
        given = self.read(NewRoutineIn)
        if (session_id := given.pop("session", None)) is not None:
            selectors.shown_id(self.user, session_id)
            given["session_id"] = session_id
        new = NewRoutine(agent_id=agent.pk, **given)
        return self.create(
            lambda: RoutineOut(reads.routine(self.user, add_routine(new).pk)).data, "/api/routines/{id}/"
        )


class RoutineDetail(ApiView):
    scopes = {"get": READ, "patch": SCHEDULE, "delete": SCHEDULE}
    refuses = {"patch": (409,)}
    takes = {"delete": (HARD,)}

    @extend_schema(responses=RoutineOut)
    def get(self, _request: Request, routine_id: str) -> Response:
        """Get a routine."""
        routine = reads.routine(self.user, routine_id)
        return tagged_response(RoutineOut(routine).data, routine.revision)

    @extend_schema(request=RoutineChanges, responses=RoutineOut)
    def patch(self, _request: Request, routine_id: str) -> Response:
        """Change the given fields. Disabling a routine cancels its queued runs."""
        routine = reads.routine(self.user, routine_id)
        revision = revision_expected(self.request, routine.revision)
        given = self.read(RoutineChanges, of=RoutineOut)
        update_routine(routine_id, given, revision=revision)
        return self.get(self.request, routine_id)

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, routine_id: str) -> Response:
        """Disable a routine, or delete it with its runs; a running turn goes on."""
        routine = reads.routine(self.user, routine_id)
        revision = revision_expected(self.request, routine.revision)
        remove_routine(routine_id, hard=self.is_true("hard"), revision=revision)
        return Response(status=status.HTTP_204_NO_CONTENT)


class RoutineRuns(ApiView):
    scopes = {"get": READ}
    ordering = ("-scheduled_for",)  # a job has one run of a slot

    @extend_schema(responses=RunOut(many=True))
    def get(self, _request: Request, routine_id: str) -> Response:
        """List the routine's runs, the latest slot first."""
        return self.page(reads.routine_runs(self.user, routine_id), RunOut)
