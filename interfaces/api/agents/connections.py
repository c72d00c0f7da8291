"""Connections to model providers: the user's own can be changed, the server's can be used.

The secret is only read from a request, never written into an answer.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from agent_core.connections import PROVIDERS
from interfaces.api.shared import CAPS, Caps, CapsOut, Revised, Texts
from interfaces.http.auth import MANAGE, READ
from interfaces.http.base import KEY, ApiView, tagged_response
from interfaces.http.fields import AnyObject, Input, Items, Output, Text
from interfaces.http.headers import revision_expected
from sessions_app.connections import edit, usable
from sessions_app.connections.check import TESTS, call_once
from sessions_app.connections.edit import LONGEST_SECRET, LONGEST_URL, MOST_MODELS
from sessions_app.exceptions import TooSoon
from sessions_app.limits.request_rate import take_allowance
from sessions_app.models import Connection

PROVIDER = f"One of {', '.join(f'`{name}`' for name in PROVIDERS)}; some need an extra of Rondo."
BASE_URL = "Empty: the provider's own address. Null for a connection of the server."
MODELS = "Names of the models that may be used; empty: all."
LIMITS = f"`requests_per_minute` of all agents together; 0: no limit. {CAPS}"
PRICES = "US dollars for a million tokens by model, each `{input, output}`; `*` is for all others."


class ConnectionChanges(Input):
    example = {"models": ["gpt-5", "gpt-5-mini"], "limits": {"requests_per_minute": 60}}
    provider = Text(required=False, help_text=PROVIDER)
    base_url = Text(required=False, allow_blank=True, max_length=LONGEST_URL, help_text=BASE_URL)
    secret = Text(
        required=False,
        allow_blank=True,
        max_length=LONGEST_SECRET,
        help_text="The API key. It is stored encrypted and never shown; empty removes it.",
    )
    models = Items(child=Text(), required=False, max_length=MOST_MODELS, help_text=MODELS)
    limits = AnyObject(required=False, help_text=LIMITS)
    prices = AnyObject(required=False, help_text=PRICES)


class NewConnection(ConnectionChanges):
    example = {"name": "work", "provider": "openai-chat", "secret": "the-api-key", "models": ["gpt-5"]}
    name = Text(max_length=40, help_text="Agents name its models as `<name>:<model>`.")
    provider = Text(help_text=PROVIDER)


class LimitsOut(CapsOut):
    requests_per_minute = serializers.IntegerField()


@extend_schema_field(LimitsOut)
class ConnectionLimits(Caps):
    """The caps of a connection, and its limit of requests. What is spent of the server's is not shown."""

    def to_representation(self, row: Connection) -> dict[str, Any]:
        """Return the limits."""
        caps = super().to_representation(row) if row.owner_id is not None else {}
        return {"requests_per_minute": row.requests_per_minute, **caps}


class ConnectionOut(Revised):
    name = serializers.CharField()
    owner = serializers.SerializerMethodField(
        help_text="`you`, or `server`: all users may use it and nobody changes it here."
    )
    provider = serializers.CharField()
    base_url = serializers.SerializerMethodField(help_text=BASE_URL)
    models = Texts(source="allowed_models", help_text=MODELS)
    limits = ConnectionLimits(scope="connection", help_text=LIMITS)
    prices = serializers.DictField(help_text=PRICES)
    has_secret = serializers.SerializerMethodField()
    last_error = serializers.CharField(
        help_text="Why its last call failed; empty when it succeeded or there was none."
    )
    state_since = serializers.DateTimeField(
        allow_null=True, help_text="When its calls began to succeed, or to fail."
    )

    def get_owner(self, row: Connection) -> str:
        return "server" if row.owner_id is None else "you"

    def get_base_url(self, row: Connection) -> str | None:
        return None if row.owner_id is None else row.base_url

    def get_has_secret(self, row: Connection) -> bool:
        return bool(row.secret_ciphertext)


class ConnectionTestIn(Input):
    example = {"model": "gpt-5"}
    model = Text(required=False, help_text="The first allowed model when not given.")


class ConnectionTestOut(Output):
    ok = serializers.SerializerMethodField()
    model = serializers.CharField()
    error = serializers.CharField(help_text="The provider's status and reason; empty when the model replied.")
    milliseconds = serializers.IntegerField()

    def get_ok(self, tested: Any) -> bool:
        return not tested.error


class ConnectionList(ApiView):
    scopes = {"get": READ, "post": MANAGE}
    within_limits = {"get"}
    ordering = ("name", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=ConnectionOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your connections and the server's, by name."""
        return self.page(usable.connections(self.user), ConnectionOut)

    @extend_schema(parameters=[KEY], request=NewConnection, responses={201: ConnectionOut})
    def post(self, _request: Request) -> Response:
        """Create a connection of your own. Agents name its models as `<name>:<model>`."""
        given = self.read(NewConnection)
        name = given.pop("name")
        return self.create(
            lambda: (
                ConnectionOut(
                    usable.connection(self.user, edit.add_connection(self.user, name, given).name)
                ).data
            ),
            "/api/connections/{name}/",
        )


class ConnectionDetail(ApiView):
    scopes = {"get": READ, "patch": MANAGE, "delete": MANAGE}
    refuses = {"delete": (409,)}

    @extend_schema(responses=ConnectionOut)
    def get(self, _request: Request, connection: str) -> Response:
        """Get your connection of this name, or the server's."""
        row = usable.connection(self.user, connection)
        return tagged_response(ConnectionOut(row).data, row.revision, is_volatile=True)

    @extend_schema(request=ConnectionChanges, responses=ConnectionOut)
    def patch(self, _request: Request, connection: str) -> Response:
        """Change a connection of your own. Another address or provider needs the secret again."""
        row = usable.own_connection(self.user, connection)
        changes = self.read(ConnectionChanges, partial=True, of=ConnectionOut)
        edit.update_connection(row.pk, changes, revision=revision_expected(self.request, row.revision))
        return self.get(self.request, connection)

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, connection: str) -> Response:
        """Delete a connection of your own. 409 while agents use it."""
        row = usable.own_connection(self.user, connection)
        edit.delete_connection(row.pk, revision=revision_expected(self.request, row.revision))
        return Response(status=status.HTTP_204_NO_CONTENT)


class ConnectionTest(ApiView):
    scopes = {"post": MANAGE}

    @extend_schema(request=ConnectionTestIn, responses=ConnectionTestOut)
    def post(self, _request: Request, connection: str) -> Response:
        """Call a model of the connection once, within 30 s. A call that fails is a result, not an error."""
        row = usable.connection(self.user, connection)
        model = self.read(ConnectionTestIn).get("model", "")
        if wait := take_allowance(f"test-model:{self.user.pk}", TESTS):
            raise TooSoon(f"Too many tests; try again in {wait:.0f} seconds.")
        return Response(ConnectionTestOut(call_once(row, model)).data)
