"""Connections to model providers: the user's own can be changed, the server's can be used."""

from __future__ import annotations

from urllib.parse import quote

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from interfaces.api.agents.connection_serializers import (
    ConnectionChanges,
    ConnectionOut,
    ConnectionTestIn,
    ConnectionTestOut,
    NewConnection,
)
from interfaces.http.base import KEY, ApiView
from interfaces.http.headers import basis_expected, etag_with_basis
from interfaces.http.scopes import MANAGE, READ
from sessions_app.allowance import take_allowance
from sessions_app.connections import edit, reads
from sessions_app.connections.check import TESTS, call_once
from sessions_app.exceptions import TooSoon
from sessions_app.idempotency import StoredAnswer
from sessions_app.models import Connection


class ConnectionList(ApiView):
    scopes = {"get": READ, "post": MANAGE}
    within_limits = {"get"}
    ordering = ("name", "id")
    refuses = {"post": (409,)}

    @extend_schema(responses=ConnectionOut(many=True))
    def get(self, _request: Request) -> Response:
        """Your connections and the server's, by name."""
        return self.page(reads.connections(self.user), ConnectionOut)

    @extend_schema(parameters=[KEY], request=NewConnection, responses={201: ConnectionOut})
    def post(self, _request: Request) -> Response:
        """Create a connection of your own. Agents name its models as `<name>:<model>`."""
        given = self.read(NewConnection)
        name = given.pop("name")
        return self.create(lambda: self._made(edit.add_connection(self.user, name, given)))

    def _made(self, row: Connection) -> StoredAnswer:
        body = ConnectionOut(reads.connection(self.user, row.name)).data
        return StoredAnswer(body=body, location=f"/api/connections/{quote(row.name)}/")


class ConnectionDetail(ApiView):
    scopes = {"get": READ, "patch": MANAGE, "delete": MANAGE}
    refuses = {"delete": (409,)}

    @extend_schema(responses=ConnectionOut)
    def get(self, _request: Request, connection: str) -> Response:
        """One connection of your own, or the server's of this name."""
        row = reads.connection(self.user, connection)
        body = ConnectionOut(row).data
        return Response(body, headers={"ETag": etag_with_basis(str(row.revision), body)})

    @extend_schema(request=ConnectionChanges, responses=ConnectionOut)
    def patch(self, _request: Request, connection: str) -> Response:
        """Change a connection of your own. Another address or provider needs the secret again."""
        row = reads.own_connection(self.user, connection)
        changes = self.read(ConnectionChanges, partial=True, of=ConnectionOut)
        edit.update_connection(row.pk, changes, revision=self._revision_expected(row))
        return self.get(self.request, connection)

    @extend_schema(responses={204: None})
    def delete(self, _request: Request, connection: str) -> Response:
        """Delete a connection of your own. 409 while agents use it."""
        row = reads.own_connection(self.user, connection)
        edit.delete_connection(row.pk, revision=self._revision_expected(row))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _revision_expected(self, row: Connection) -> int | None:
        return None if basis_expected(self.request, str(row.revision)) is None else row.revision


class ConnectionTest(ApiView):
    scopes = {"post": MANAGE}

    @extend_schema(request=ConnectionTestIn, responses=ConnectionTestOut)
    def post(self, _request: Request, connection: str) -> Response:
        """Call a model of the connection once, within 30 s. A call that fails is a result, not an error."""
        row = reads.connection(self.user, connection)
        model = self.read(ConnectionTestIn).get("model", "")
        if wait := take_allowance(f"test-model:{self.user.pk}", TESTS):
            raise TooSoon(f"Too many tests; try again in {wait:.0f} seconds.")
        return Response(ConnectionTestOut(call_once(row, model)).data)
