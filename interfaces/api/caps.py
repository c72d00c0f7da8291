"""Caps as the API takes and shows them: of agents, automations and connections."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agent_core.spending import Budget
from interfaces.http.fields import AnyObject, Output
from sessions_app.spending.caps import budget_of, shown_caps

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
