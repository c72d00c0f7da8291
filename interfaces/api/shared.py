"""Shapes that several resources share, and the deletion of agents and sessions, which automations can block."""

from __future__ import annotations

from rest_framework import serializers, status
from rest_framework.response import Response

from interfaces.http.fields import Output
from interfaces.http.query import flag_parameter
from sessions_app.models import DeliveryState
from sessions_app.sessions.delete import Deletion

DELIVERIES = "The deliveries of the answer; empty when it stays on the server."
DELETE_AUTOMATIONS = flag_parameter(
    "delete_automations", "Also delete the automations that block the deletion."
)


class Texts(serializers.ListField):
    """A list of texts in an answer."""

    child = serializers.CharField()


class InSession(Output):  # what an agent has in a session
    agent = serializers.CharField(source="agent_name")
    session = serializers.UUIDField(source="session_id")
    created_at = serializers.DateTimeField()


class Revised(Output):  # what people change: edits are checked against its revision
    created_at = serializers.DateTimeField()
    revision = serializers.IntegerField()


class AskedCallOut(Output):
    name = serializers.CharField()
    arguments = serializers.DictField()


class SentOut(Output):  # a delivery, shown with what is delivered
    id = serializers.IntegerField()
    channel = serializers.CharField()
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField()
    last_error = serializers.CharField(allow_null=True)


class BlockerOut(Output):
    id = serializers.CharField()
    name = serializers.CharField()
    enabled = serializers.BooleanField()


class BlockedOut(Output):
    deleted = serializers.BooleanField(help_text="false")
    blocked_by_automations = serializers.BooleanField(help_text="true")
    automations = BlockerOut(many=True)


class DeletedOut(Output):
    deleted = serializers.BooleanField(help_text="true")
    deleted_automations = Texts()
    moved_routines = Texts(
        required=False,
        help_text="Routines of the session that now report to the primary session; left out when there are none.",
    )


def deleted(deletion: Deletion) -> Response:
    """200 with what was deleted, or 409 with the automations that block the deletion."""
    if deletion.deleted:
        moved = {"moved_routines": list(deletion.moved_ids)} if deletion.moved_ids else {}
        return Response({"deleted": True, "deleted_automations": list(deletion.deleted_ids), **moved})
    automations = [{"id": each.id, "name": each.name, "enabled": each.enabled} for each in deletion.blockers]
    body = {"deleted": False, "blocked_by_automations": True, "automations": automations}
    return Response(body, status=status.HTTP_409_CONFLICT)
