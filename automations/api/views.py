"""Automations of a session, their runs, and what a schedule would do."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from automations import selectors
from automations.api.shapes import (
    AutomationChanges,
    AutomationOut,
    ExplanationOut,
    NewAutomation,
    PreviewIn,
    PreviewOut,
    RunDetailOut,
    RunOut,
)
from automations.edit import NewJob, bind_job, delete_job, read_schedule, update_job
from automations.explain import explain
from automations.models import CronJob
from automations.schedule_words import preview
from sessions_app.api.base import KEY, ApiView, shown
from sessions_app.api.conditions import revision_expected
from sessions_app.once import Answer
from sessions_app.selectors import agent, session


class AutomationList(ApiView):
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=AutomationOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """The session's automations, the oldest first; in a thread of a unified agent also the primary session's."""
        rows = selectors.automations_of(self.user, session_id)
        return self.page(rows, AutomationOut, of=selectors.automation_of)

    @extend_schema(parameters=[KEY], request=NewAutomation, responses={201: AutomationOut})
    def post(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Bind an automation to the session; in a thread of a unified agent to its primary session."""
        session(self.user, session_id)
        given = self.read(NewAutomation)
        return self.create(lambda: self._made(bind_job(NewJob(session_id=session_id, **given))))

    def _made(self, job: CronJob) -> Answer:
        body = AutomationOut(selectors.automation(self.user, job.pk)).data
        return Answer(body=body, location=f"/api/automations/{job.pk}/")


class AutomationDetail(ApiView):
    refuses = {"patch": (409,), "delete": (409,)}

    @extend_schema(responses=AutomationOut)
    def get(self, _request: Request, job_id: str) -> Response:
        """One automation."""
        automation = selectors.automation(self.user, job_id)
        return shown(AutomationOut(automation).data, automation.revision)

    @extend_schema(request=AutomationChanges, responses=AutomationOut)
    def patch(self, _request: Request, job_id: str) -> Response:
        """Change named fields; `schedule` is replaced whole."""
        automation = selectors.automation_to_change(self.user, job_id)
        revision = revision_expected(self.request, automation.revision)
        given = self.read(AutomationChanges, of=AutomationOut)
        update_job(job_id, given, revision=revision)
        return self.get(self.request, job_id)

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, job_id: str) -> Response:
        """Delete an automation with its runs; a turn of it that runs goes on."""
        automation = selectors.automation_to_change(self.user, job_id)
        delete_job(job_id, revision=revision_expected(self.request, automation.revision))
        return Response(status=status.HTTP_204_NO_CONTENT)


class AutomationExplanation(ApiView):
    @extend_schema(responses=ExplanationOut)
    def get(self, _request: Request, job_id: str) -> Response:
        """Why the last slots did or did not run, what holds now, and when the next ones are."""
        return shown(ExplanationOut(explain(self.user, job_id)).data)


class RunList(ApiView):
    ordering = ("-scheduled_for", "-run_id")

    @extend_schema(responses=RunOut(many=True))
    def get(self, _request: Request, job_id: str) -> Response:
        """The automation's runs, the latest slot first."""
        return self.page(selectors.runs_of(self.user, job_id), RunOut)


class RunDetail(ApiView):
    @extend_schema(responses=RunDetailOut)
    def get(self, _request: Request, run_id: str) -> Response:
        """One run, with the prompt that its model was shown."""
        return shown(RunDetailOut(selectors.run(self.user, run_id)).data)


class SchedulePreview(ApiView):
    refuses = {"post": (404,)}

    @extend_schema(request=PreviewIn, responses=PreviewOut)
    def post(self, _request: Request) -> Response:
        """The next slots of a schedule, and the schedule in words."""
        given = self.read(PreviewIn)
        now = datetime.now(UTC)
        zone = agent(self.user, given["agent"]).timezone if "agent" in given else "UTC"
        schedule = read_schedule(given["schedule"], zone, now)
        found = preview(schedule, given.get("after", now), given.get("count", 5), zone=zone)
        body = {"next": [slot.isoformat() for slot in found.next], "words": found.words}
        return Response(PreviewOut(body | {"warnings": found.warnings}).data)
