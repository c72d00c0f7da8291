"""Endpoints of automations, their runs and schedule previews."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from automations import selectors
from automations.jobs.edit import NewJob, bind_job, delete_job, parse_api_schedule, update_job
from automations.jobs.explain import explain
from automations.jobs.skip import skip_slots
from automations.models import CronJob, RunState
from automations.runs.describe import REASONS
from automations.schedules.describe import preview
from interfaces.api.automations.serializers import (
    AutomationChanges,
    AutomationOut,
    ExplanationOut,
    NewAutomation,
    PreviewIn,
    PreviewOut,
    RunDetailOut,
    RunOut,
    SavedAutomationOut,
    SkipIn,
)
from interfaces.http import filters
from interfaces.http.base import KEY, ApiView, tagged_response
from interfaces.http.headers import revision_expected
from interfaces.http.query import Parameter, flag_parameter
from interfaces.http.scopes import READ, SCHEDULE
from sessions_app.idempotency import StoredAnswer
from sessions_app.reads.selectors import agent, shown_id

FILTERS = {
    "agent": "agent__name",
    "session": "session_id",
    "state": "state",
    "enabled": "enabled",
    "since": "created_at__gte",
    "until": "created_at__lt",
}
RUN_FILTERS = {
    "agent": "agent_name",
    "session": "session_id",
    "state": "state",
    "reason": "reason",
    "since": "scheduled_for__gte",
    "until": "scheduled_for__lt",
}


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
        given = self.read(NewAutomation)
        return self.create(lambda: self._made(bind_job(NewJob(session_id=session_id, **given))))

    def _made(self, job: CronJob) -> StoredAnswer:
        return StoredAnswer(body=_saved(self.user, job.pk), location=f"/api/automations/{job.pk}/")


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
            *(filters.AGENT, filters.SESSION, Parameter(name="state", choices=selectors.STATES)),
            flag_parameter("enabled", "Whether it is enabled or paused."),
            *filters.times("created_at"),
            filters.search_in("the name or the message"),
        )
    }

    @extend_schema(responses=AutomationOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your automations in all sessions, the oldest first."""
        rows = selectors.automations_of_user(self.user, self.wanted(FILTERS), self.term)
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
        update_job(job_id, given, revision=revision)
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
        """Explain why the last slots did or did not run, the current state, and the next runs."""
        return tagged_response(ExplanationOut(explain(self.user, job_id)).data)


class AutomationSkip(ApiView):
    scopes = {"post": SCHEDULE}
    refuses = {"post": (409, 412)}

    @extend_schema(parameters=[KEY], request=SkipIn, responses=AutomationOut)
    def post(self, _request: Request, job_id: str) -> Response:
        """Skip the next slots: each is recorded as skipped (`skipped_by_user`), and the next run is the one after."""
        selectors.automation_to_change(self.user, job_id)
        given = self.read(SkipIn)
        return self.create(lambda: self._skipped(job_id, given))

    def _skipped(self, job_id: str, given: dict[str, Any]) -> StoredAnswer:
        # within the idempotent part: a repeated request has the revision from before
        automation = selectors.automation_to_change(self.user, job_id)
        skip_slots(job_id, **given, revision=revision_expected(self.request, automation.revision))
        body = AutomationOut(selectors.automation(self.user, job_id)).data
        return StoredAnswer(body=body, location=f"/api/automations/{job_id}/", status=status.HTTP_200_OK)


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
            *(filters.AGENT, filters.SESSION),
            Parameter(name="state", choices=tuple(RunState.values)),
            Parameter(name="reason", longest=64),
            *filters.times("scheduled_for"),
            filters.search_in("the name of the automation or the error"),
        )
    }

    @extend_schema(responses=RunOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your runs of automations, routines and scheduled messages, the latest slot first."""
        self.check_value("reason", REASONS, lambda only: selectors.runs_of_user(self.user, only))
        return self.page(selectors.runs_of_user(self.user, self.wanted(RUN_FILTERS), self.term), RunOut)


class RunDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=RunDetailOut)
    def get(self, _request: Request, run_id: str) -> Response:
        """Get a run with the prompt that the model was shown."""
        return tagged_response(RunDetailOut(selectors.run_record(self.user, run_id)).data)


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
