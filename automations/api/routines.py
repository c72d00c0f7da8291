"""Routines of an agent, and their runs."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from automations import routine_reads
from automations.api.routine_shapes import NewRoutineIn, RoutineChanges, RoutineOut
from automations.api.shapes import RunOut
from automations.models import CronJob
from automations.routines import NewRoutine, add_routine, remove_routine, update_routine
from sessions_app import selectors
from sessions_app.api.base import KEY, ApiView, shown
from sessions_app.api.conditions import revision_expected
from sessions_app.once import Answer

HARD = OpenApiParameter("hard", bool, description="Delete it with its runs; else it is disabled.")


class RoutineList(ApiView):
    ordering = ("created_at", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=RoutineOut(many=True))
    def get(self, _request: Request, name: str) -> Response:
        """The agent's routines, disabled ones too, the oldest first."""
        rows = routine_reads.routines_of(self.user, name)
        return self.page(rows, RoutineOut, of=routine_reads.routine_of)

    @extend_schema(parameters=[KEY], request=NewRoutineIn, responses={201: RoutineOut})
    def post(self, _request: Request, name: str) -> Response:
        """Add a routine: with a schedule, an instant, both, or neither, which is once and at once."""
        agent = selectors.agent(self.user, name)
        given = self.read(NewRoutineIn)
        if (session_id := given.pop("session", None)) is not None:
            selectors.session(self.user, session_id)
            given["session_id"] = session_id
        return self.create(lambda: self._made(add_routine(NewRoutine(agent_id=agent.pk, **given))))

    def _made(self, job: CronJob) -> Answer:
        body: Any = RoutineOut(routine_reads.routine(self.user, job.pk)).data
        return Answer(body=body, location=f"/api/routines/{job.pk}/")


class RoutineDetail(ApiView):
    refuses = {"patch": (409,)}

    @extend_schema(responses=RoutineOut)
    def get(self, _request: Request, routine_id: str) -> Response:
        """One routine."""
        routine = routine_reads.routine(self.user, routine_id)
        return shown(RoutineOut(routine).data, routine.revision)

    @extend_schema(request=RoutineChanges, responses=RoutineOut)
    def patch(self, _request: Request, routine_id: str) -> Response:
        """Change named fields; what is disabled does not run, and what waits of it is cancelled."""
        routine = routine_reads.routine(self.user, routine_id)
        revision = revision_expected(self.request, routine.revision)
        given = self.read(RoutineChanges, of=RoutineOut)
        update_routine(routine_id, given, revision=revision)
        return self.get(self.request, routine_id)

    @extend_schema(parameters=[HARD], responses={204: None})
    def delete(self, _request: Request, routine_id: str) -> Response:
        """Disable a routine, or delete it with its runs; a run that is under way goes on."""
        routine = routine_reads.routine(self.user, routine_id)
        revision = revision_expected(self.request, routine.revision)
        remove_routine(routine_id, hard=self.flag("hard"), revision=revision)
        return Response(status=status.HTTP_204_NO_CONTENT)


class RoutineRuns(ApiView):
    ordering = ("-scheduled_for", "-run_id")

    @extend_schema(responses=RunOut(many=True))
    def get(self, _request: Request, routine_id: str) -> Response:
        """The routine's runs, the latest slot first."""
        return self.page(routine_reads.routine_runs(self.user, routine_id), RunOut)
