"""The two interfaces that delete, as real requests: what a person asks for, and in one word what came of it."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from automations.models import CronJob
from sessions_app.models import Agent, Session
from tests.api.conftest import Caller
from tests.conftest import Person
from tests.tokens import token_of

DELETED, BLOCKED, BUSY, GONE = "deleted", "blocked", "session_busy", "gone"


def caller(person: Person) -> Caller:
    """The person at the API, with connections of their own."""
    return Caller(user=person.user, token=token_of(person.user))


@dataclass(frozen=True, kw_only=True)
class Api:
    """DELETE, and the same with `delete_automations`."""

    person: Person

    def delete(self, row: Session | Agent, *, together: bool = False) -> str:
        path = f"agents/{row.name}" if isinstance(row, Agent) else f"sessions/{row.pk}"
        answer = caller(self.person).delete(f"/api/{path}/{'?delete_automations=true' * together}")
        if answer.status_code == 404:
            return GONE
        body = answer.json()
        if answer.status_code == 200:
            assert body["deleted"] is True
            return DELETED
        assert answer.status_code == 409, answer.content
        return BLOCKED if body.get("blocked_by_automations") else str(body["code"])


@dataclass(frozen=True, kw_only=True)
class Admin:
    """The page's form, sent by somebody who saw what was in the way a moment ago."""

    client: Client

    def delete(self, row: Session | Agent, *, together: bool = False) -> str:
        meta = row._meta
        address = reverse(f"admin:{meta.app_label}_{meta.model_name}_delete", args=[row.pk])
        given: dict[str, Any] = {"confirmed": "yes"}
        if together:
            bound = {"session": row} if isinstance(row, Session) else {"session__agent": row}
            given |= {
                "delete_automations": "yes",
                "shown": list(CronJob.objects.filter(**bound).values_list("pk", flat=True)),
            }
        answer = self.client.post(address, given)
        if answer.status_code == 409:
            return BLOCKED
        assert answer.status_code == 302, answer.content
        said = [str(each) for each in get_messages(answer.wsgi_request)][-1]  # older ones wait to be shown
        words = {
            "Deleted:": DELETED,
            "These automations block it": BLOCKED,
            "did not end in time": BUSY,
            "try again": BUSY,
            "There is no such": GONE,
        }
        return next(outcome for text, outcome in words.items() if text in said)


Interface = Api | Admin


def interface_of(name: str, person: Person) -> Interface:
    """One of the interfaces by name: `api` or `admin`."""
    if name == "api":
        return Api(person=person)
    staff = User.objects.filter(username="root").first() or User.objects.create_superuser("root")
    client = Client()
    client.force_login(staff)
    return Admin(client=client)
