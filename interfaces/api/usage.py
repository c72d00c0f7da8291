"""What the turns of a user used and cost."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.http.auth import READ
from interfaces.http.base import ApiView
from interfaces.http.fields import Output
from interfaces.http.query import TIME, Parameter
from sessions_app.reads import usage


class UsageRowOut(Output):
    key = serializers.CharField(
        help_text="The agent's name, the id (`shared`: of several routines), the model or the day (UTC)."
    )
    name = serializers.CharField()
    calls = serializers.IntegerField(help_text="Model calls that were answered.")
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    usd = serializers.CharField(help_text="US dollars of what has a price.")
    unpriced_tokens = serializers.IntegerField(help_text="Tokens of models without a price.")


class UsageOut(Output):
    by = serializers.ChoiceField(choices=usage.BY)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    complete = serializers.BooleanField(
        help_text=f"False: the period has more than {usage.MOST_SUMMED:,} turns, and only the newest are summed."
    )
    results = UsageRowOut(many=True, help_text=f"At most {usage.MOST_RESULTS:,}, those with the most tokens.")


class UsageOfUser(ApiView):
    scopes = {"get": READ}
    within_limits = {"get"}
    takes = {
        "get": (
            Parameter(name="by", description="Default: agent.", choices=usage.BY),
            Parameter(name="since", description="Default: 30 days before `until`.", format=TIME),
            Parameter(name="until", description="Default: now.", format=TIME),
        )
    }

    @extend_schema(responses=UsageOut)
    def get(self, _request: Request) -> Response:
        """Sum tokens and US dollars of your turns, as far as they are kept."""
        wanted = self.wanted()
        found = usage.usage_of(self.user, **({"by": "agent"} | wanted))
        return Response(UsageOut(found).data)
