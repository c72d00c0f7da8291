"""Shapes that several resources share, and the deletion of agents and sessions, which automations can block."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers, status
from rest_framework.response import Response

from agent_core.spending import Budget
from interfaces.http.fields import AnyObject, Output
from interfaces.http.query import flag_parameter
from sessions_app.models import DeliveryState
from sessions_app.sessions.delete import Deletion
from sessions_app.spending.caps import budget_of, shown_caps

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
    words = serializers.CharField(default="", help_text="The call in the server's words; empty: it has none.")


class SentOut(Output):  # a delivery, shown with what is delivered
    id = serializers.IntegerField()
    channel = serializers.CharField()
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField()
    last_error = serializers.CharField(allow_null=True)


class SpentOut(Output):  # what turns or runs used and cost
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    usd = serializers.CharField(help_text="US dollars of what has a price.")
    unpriced_tokens = serializers.IntegerField(help_text="Tokens of models without a price.")


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


CAPS = (
    "Caps by period, `run`, `day` and `month`: each `{tokens, usd}` with one of both or both; null removes one. Usd is"
    " a text such as `0.50`."
)


class CapsIn(AnyObject):
    """Caps to merge into those that are set."""

    def __init__(self, **more: Any) -> None:
        super().__init__(required=False, help_text=CAPS, **more)


class AmountOut(Output):
    tokens = serializers.IntegerField()
    usd = serializers.CharField(help_text="US dollars.")


class CapOut(Output):
    tokens = serializers.IntegerField(required=False)
    usd = serializers.CharField(required=False, help_text="US dollars.")
    spent = AmountOut(required=False, help_text="In this day or month so far.")
    resets_at = serializers.DateTimeField(required=False, help_text="When the day or month ends.")


class CapsOut(Output):
    run = CapOut(required=False)
    day = CapOut(required=False)
    month = CapOut(required=False)


@extend_schema_field(CapsOut)
class Caps(serializers.Field[Any, Any, Any, Any]):
    """The caps of a row with what is spent, read once for all rows of a list. `zone` names its attribute."""

    def __init__(self, *, scope: str, zone: str = "", **more: Any) -> None:
        super().__init__(source="*", read_only=True, **more)
        self.scope, self.zone = scope, zone
        self._shown: dict[int, dict[str, Any]] = {}

    def to_representation(self, row: Any) -> dict[str, Any]:
        """Return the caps by period."""
        if id(row) not in self._shown:
            whole = getattr(self.parent.parent, "instance", None)
            rows = whole if isinstance(whole, list) and any(each is row for each in whole) else [row]
            self._shown = dict(zip(map(id, rows), shown_caps(map(self._budget, rows)), strict=True))
        return self._shown[id(row)]

    def _budget(self, row: Any) -> Budget:
        zone = getattr(row, self.zone) if self.zone else "UTC"
        return budget_of(self.scope, getattr(row, "pk", None) or row.id, row.limits, zone=zone)
