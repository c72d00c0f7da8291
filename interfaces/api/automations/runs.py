"""Runs of automations, routines and scheduled messages, and another attempt of a failed one."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from automations import selectors
from automations.jobs.failing import try_again
from automations.models import Attention, RunState
from automations.runs.describe import REASONS
from interfaces.api.shared import DELIVERIES, InSession, SentOut
from interfaces.http.auth import READ, SCHEDULE
from interfaces.http.base import ApiView
from interfaces.http.fields import Output, TextOrNull
from interfaces.http.query import SESSION, Parameter, agent_parameter, search_parameter, time_parameters

ATTENTIONS = tuple(Attention(value).value for value in Attention.values if value)
ATTENTION = "Why a run that succeeded may not have done what it should; null if nothing says so."


class AttentionOrNull(serializers.ChoiceField):
    """Why a run needs attention; null instead of an empty text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(choices=ATTENTIONS, allow_null=True, help_text=ATTENTION, **options)

    def to_representation(self, value: Any) -> Any:
        return value or None


class PromptRefOut(Output):
    id = serializers.CharField()
    version = serializers.IntegerField()
    sha256 = serializers.CharField()


class RunOut(InSession):
    run_id = serializers.CharField()
    session = serializers.UUIDField(
        source="session_id",
        allow_null=True,
        help_text="Where it runs; null before its turn, for an inline routine, and once the session is deleted.",
    )
    automation = serializers.CharField(
        source="automation_id", allow_null=True, help_text="One of these three is set: what it is a run of."
    )
    routine = serializers.CharField(source="routine_id", allow_null=True)
    scheduled_message = serializers.CharField(source="scheduled_message_id", allow_null=True)
    scheduled_for = serializers.DateTimeField()
    state = serializers.ChoiceField(choices=RunState.choices)
    reason = TextOrNull()
    attention = AttentionOrNull()
    slots_from = serializers.DateTimeField(allow_null=True)
    slots_to = serializers.DateTimeField(allow_null=True)
    count = serializers.IntegerField(source="slots_count", allow_null=True)
    moved_to = serializers.DateTimeField(allow_null=True, help_text="Of a slot that was moved: where it is.")
    attempt = serializers.IntegerField()
    not_before = serializers.DateTimeField(
        allow_null=True, help_text="Time of the next attempt, while the run waits for a retry."
    )
    turn = serializers.IntegerField(source="turn_id", allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    lag_ms = serializers.IntegerField(allow_null=True)
    duration_ms = serializers.IntegerField(allow_null=True)
    usage = serializers.DictField(
        help_text="Tokens and requests of its last turn, and `usd` if there was a price."
    )
    prompt_ref = PromptRefOut(allow_null=True)
    error = TextOrNull()
    provider_message = TextOrNull(help_text="What the model's provider said of the error.")
    deliveries = SentOut(many=True, source="shown_deliveries", help_text=DELIVERIES)


class RunDetailOut(RunOut):
    rendered_prompt = TextOrNull()
    prompt_variables = serializers.DictField(allow_null=True)


class RunList(ApiView):
    scopes = {"get": READ}
    ordering = ("-scheduled_for",)  # a job has one run of a slot

    @extend_schema(responses=RunOut(many=True))
    def get(self, _request: Request, job_id: str) -> Response:
        """List the automation's runs, the latest slot first."""
        return self.page(selectors.runs_of(self.user, job_id), RunOut)


class RunsOfUser(ApiView):
    scopes = {"get": READ}
    within_limits = {"get"}
    ordering = ("-place",)
    takes = {
        "get": (
            *(agent_parameter("agent_name"), SESSION),
            Parameter(name="state", choices=tuple(RunState.values)),
            Parameter(name="reason", longest=64),
            Parameter(name="attention", description=ATTENTION, choices=ATTENTIONS),
            *time_parameters("scheduled_for"),
            search_parameter("the name of the automation or the error"),
        )
    }

    @extend_schema(responses=RunOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your runs of automations, routines and scheduled messages, the latest slot first."""
        self.check_value("reason", REASONS, lambda only: selectors.runs_of_user(self.user, only))
        return self.page(selectors.runs_of_user(self.user, self.wanted(), self.term), RunOut)


class RunDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=RunDetailOut)
    def get(self, _request: Request, run_id: str) -> Response:
        """Get a run with the prompt that the model was shown."""
        return Response(RunDetailOut(selectors.run_record(self.user, run_id)).data)


class RunRetry(ApiView):
    scopes = {"post": SCHEDULE}
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses={202: RunOut})
    def post(self, _request: Request, run_id: str) -> Response:
        """Try a failed run again: it is queued with its next attempt, which has the same input."""
        try_again(selectors.run_record(self.user, run_id).pk)
        body = RunOut(selectors.run_record(self.user, run_id)).data
        return Response(body, status=status.HTTP_202_ACCEPTED)
