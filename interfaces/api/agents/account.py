"""What belongs to a user and to no agent: API tokens, tickets for event streams, and what turns used and cost."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from automations.archives.export import export
from interfaces.api.shared import SpentOut
from interfaces.http.auth import MANAGE, READ
from interfaces.http.base import NO_STORE, ApiView, ZipRenderer
from interfaces.http.download import Download, count_download
from interfaces.http.fields import Input, Items, Moment, OneOf, Output, Text
from interfaces.http.query import TIME, Parameter
from sessions_app.exceptions import BadInput, InsufficientScope, NotFound
from sessions_app.models import ApiToken, TokenScope
from sessions_app.models.access import LONGEST_NAME
from sessions_app.reads import selectors, usage
from sessions_app.tokens.issue import NewToken, issue_ticket, make_token, revoke_tokens


class NewTokenIn(Input):
    example = {"name": "dashboard", "scopes": ["read"]}

    name = Text(max_length=LONGEST_NAME)
    scopes = Items(child=OneOf(choices=TokenScope.choices), min_length=1, max_length=len(TokenScope))
    agent = Text(required=False, allow_null=True, help_text="The name of the agent that it is limited to.")
    session = serializers.UUIDField(
        required=False, allow_null=True, help_text="The session that it is limited to."
    )
    expires_at = Moment(required=False, allow_null=True, help_text="Null: never.")


class TokenOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    prefix = serializers.CharField(help_text="How the token begins.")
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=TokenScope.choices))
    agent = serializers.CharField(
        source="agent.name", allow_null=True, read_only=True, help_text="The agent that it is limited to."
    )
    session = serializers.UUIDField(
        source="session_id", allow_null=True, help_text="The session that it is limited to."
    )
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")


class MadeTokenOut(TokenOut):
    token = serializers.CharField(help_text="It is in this answer only.")


class TicketOut(Output):
    ticket = serializers.CharField()
    expires_at = serializers.DateTimeField()


def _tokens(view: ApiView) -> QuerySet[ApiToken]:
    """The tokens that the request may see and revoke: all of the user's, or the one that it was sent with."""
    rows = ApiToken.objects.filter(user=view.user).select_related("agent")
    used = view.request.auth
    return rows if not isinstance(used, ApiToken) or used.manages_account else rows.filter(pk=used.pk)


def _token(view: ApiView, token_id: str) -> ApiToken:
    found = _tokens(view).filter(pk=token_id).first()
    if found is None:
        raise NotFound("there is no such token")
    return found


class TokenList(ApiView):
    ordering = ("created_at", "id")
    refuses = {"post": (404, 409)}
    scopes = {"get": READ, "post": MANAGE}
    within_limits = {"get"}

    @extend_schema(responses=TokenOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your tokens, the oldest first. A token without `manage`, or with a limit, sees only itself."""
        return self.page(_tokens(self), TokenOut)

    @extend_schema(request=NewTokenIn, responses={201: MadeTokenOut})
    def post(self, request: Request) -> Response:
        """Create a token. It is in this answer only, so the call takes no Idempotency-Key.

        A token makes no token that expires later than itself, and a limited one makes none.
        """
        given = self.read(NewTokenIn)
        self._must_end_first(request, given)
        if given.get("agent") is not None:
            given["agent"] = selectors.agent(self.user, given["agent"])
        if given.get("session") is not None:
            given["session"] = selectors.session(self.user, given["session"])
        row, token = make_token(self.user, NewToken(**given))
        body = TokenOut(_token(self, row.pk)).data | {"token": token}
        headers = {"Location": f"/api/tokens/{row.pk}/", **NO_STORE}
        return Response(body, status=status.HTTP_201_CREATED, headers=headers)

    def _must_end_first(self, request: Request, given: dict[str, Any]) -> None:
        used, end = request.auth, given.get("expires_at")
        if not isinstance(used, ApiToken) or used.expires_at is None:
            return
        if end is None or end > used.expires_at:
            text = f"expires_at must not be later than that of this token, {used.expires_at.isoformat()}"
            raise BadInput(text, code="bad_expires_at")


class TokenDetail(ApiView):
    scopes = {"get": READ, "delete": READ}

    @extend_schema(responses=TokenOut)
    def get(self, _request: Request, token_id: str) -> Response:
        """Get a token."""
        return Response(TokenOut(_token(self, token_id)).data)

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, token_id: str) -> Response:
        """Revoke a token: it is refused at once, and its streams end within a second. Each token may revoke itself."""
        revoke_tokens(ApiToken.objects.filter(pk=_token(self, token_id).pk))
        return Response(status=status.HTTP_204_NO_CONTENT)


class StreamTickets(ApiView):
    scopes = {"post": READ}
    within_limits = {"post"}

    @extend_schema(request=None, responses={201: TicketOut})
    def post(self, request: Request) -> Response:
        """Make a ticket that opens one event stream once, as `?ticket=…`, within 60 s.

        It has the rights of the token that it is made with, and is for browsers, whose EventSource sends no headers.
        A page of this server needs none: its requests have the cookie.
        """
        used = request.auth
        if not isinstance(used, ApiToken):
            raise InsufficientScope("a ticket is made with a token; a browser that is signed in needs none")
        ticket, expires_at = issue_ticket(used)
        body = TicketOut({"ticket": ticket, "expires_at": expires_at}).data
        return Response(body, status=status.HTTP_201_CREATED, headers=NO_STORE)


class Export(ApiView):
    scopes = {"get": READ}
    renderer_classes = [ZipRenderer, JSONRenderer]
    http_method_names = ["get"]

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, _request: Request) -> HttpResponseBase:
        """Get everything of yours as one archive, which is made while it is sent. At most ten in an hour.

        `archive.jsonl` has agents, documents, conversations with their turns, automations, scheduled messages, memory
        and preferences; `conversations/` has each conversation as Markdown. There are no secrets in it.
        """
        count_download(self.user)
        return Download(export(self.user), "rondo.zip", "application/zip")


class UsageRowOut(SpentOut):
    key = serializers.CharField(
        help_text="The agent's name, the id (`shared`: of several routines), the model or the day (UTC)."
    )
    name = serializers.CharField()
    calls = serializers.IntegerField(help_text="Model calls that were answered.")


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
