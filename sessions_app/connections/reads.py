"""The connections that a user may see."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet

from sessions_app.connections.usable import visible_connections
from sessions_app.exceptions import NotFound
from sessions_app.models import Connection
from sessions_app.tokens.reach import in_account


def connections(user: AbstractBaseUser) -> QuerySet[Connection]:
    """Return the connections that the user may use: own ones and the server's."""
    return visible_connections(user.pk).filter(in_account(user))


def connection(user: AbstractBaseUser, name: str) -> Connection:
    """Return the connection that a model string of the user's agents means by this name. NotFound."""
    rows = connections(user)
    return _first(rows.none() if "\x00" in name else rows.filter(name=name), "there is no such connection")


def own_connection(user: AbstractBaseUser, name: str) -> Connection:
    """Return a connection that the user may change. NotFound."""
    rows = Connection.objects.filter(in_account(user), owner_id=user.pk)
    return _first(rows.none() if "\x00" in name else rows.filter(name=name), "you have no such connection")


def _first(rows: QuerySet[Connection], problem: str) -> Connection:
    found = rows.first()
    if found is None:
        raise NotFound(problem)
    return found
