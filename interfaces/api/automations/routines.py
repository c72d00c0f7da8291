"""Endpoints of routines and their runs."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from automations.models import CronJob
from automations.routines import reads
from automations.routines.edit import NewRoutine, add_routine, remove_routine, update_routine
from interfaces.api.automations.routine_serializers import NewRoutineIn, RoutineChanges, RoutineOut
from interfaces.api.automations.serializers import RunOut
from interfaces.http.base import KEY, ApiView, tagged_response
from interfaces.http.headers import revision_expected
from interfaces.http.query import flag_parameter
from interfaces.http.scopes import READ, SCHEDULE
from sessions_app.idempotency import StoredAnswer
from sessions_app.reads import selectors

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
        return self.create(lambda: self._made(add_routine(NewRoutine(agent_id=agent.pk, **given))))

    def _made(self, job: CronJob) -> StoredAnswer:
        body: Any = RoutineOut(reads.routine(self.user, job.pk)).data
        return StoredAnswer(body=body, location=f"/api/routines/{job.pk}/")


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
