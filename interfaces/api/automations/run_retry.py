"""Another attempt of a failed run."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from automations import selectors
from automations.jobs.failing import try_again
from interfaces.api.automations.automations import RunOut
from interfaces.http.auth import SCHEDULE
from interfaces.http.base import ApiView


class RunRetry(ApiView):
    scopes = {"post": SCHEDULE}
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses={202: RunOut})
    def post(self, _request: Request, run_id: str) -> Response:
        """Try a failed run again: it is queued with its next attempt, which has the same input."""
        try_again(selectors.run_record(self.user, run_id).pk)
        body = RunOut(selectors.run_record(self.user, run_id)).data
        return Response(body, status=status.HTTP_202_ACCEPTED)
