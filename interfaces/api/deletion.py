"""Deletion of agents and sessions, which automations can block."""

from __future__ import annotations

from rest_framework import serializers, status
from rest_framework.response import Response

from interfaces.http.fields import Output
from interfaces.http.query import flag_parameter
from sessions_app.sessions.delete import Deletion

DELETE_AUTOMATIONS = flag_parameter(
    "delete_automations", "Also delete the automations that block the deletion."
)


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
    deleted_automations = serializers.ListField(child=serializers.CharField())
    moved_routines = serializers.ListField(
        child=serializers.CharField(),
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
