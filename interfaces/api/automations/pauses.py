"""The endpoint that pauses all automations and routines at once."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from automations.appointments.pause_all import pause_all
from interfaces.api.automations.automations import PauseFields
from interfaces.http.auth import SCHEDULE
from interfaces.http.base import ApiView
from interfaces.http.fields import Output
from sessions_app.reads.selectors import session


class PauseIn(PauseFields):
    example = {"paused_from": "2098-12-20T00:00:00+01:00", "paused_until": "2099-01-03T00:00:00+01:00"}
    session = serializers.UUIDField(
        required=False, allow_null=True, help_text="Pause only what belongs to this session."
    )


class PausedOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    revision = serializers.IntegerField()
    before = serializers.DictField(
        help_text="How it stood: a PATCH with this and `If-Match` takes the pause back."
    )


class LeftOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    detail = serializers.CharField(help_text="Why it was left as it is.")


class PauseOut(Output):
    paused = PausedOut(many=True)
    left = LeftOut(many=True)


class Pauses(ApiView):
    scopes = {"post": SCHEDULE}
    within_limits = {"post"}
    refuses = {"post": (404,)}

    @extend_schema(request=PauseIn, responses=PauseOut)
    def post(self, _request: Request) -> Response:
        """Pause all your automations and routines, or those of a session, at most 100 at a time."""
        given = self.read(PauseIn)
        session_id = given.get("session")
        found = pause_all(
            self.user,
            "UTC" if session_id is None else session(self.user, session_id).agent.timezone,
            session_id=session_id,
            begin=given.get("paused_from"),
            until=given.get("paused_until"),
        )
        paused = [
            {"id": job.pk, "name": job.name, "revision": job.revision, "before": found.before[job.pk]}
            for job in found.done
        ]
        left = [{"id": job.pk, "name": job.name, "detail": why} for job, why in found.left]
        return Response(PauseOut({"paused": paused, "left": left}).data)
