"""The health of an automation: failures of its runs, and problems of the next one."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from automations.models import Attention
from automations.models.health import PAUSED_AFTER, SLOWED_AFTER
from interfaces.http.fields import Output, TextOrNull

BACKOFF_UNTIL = f"No slot before this time is run, because the last {SLOWED_AFTER} runs or more failed."
PAUSED_REASON = (
    f"`failing`: the server has paused it, after {PAUSED_AFTER} failed runs or three days of failing."
)


ATTENTIONS = tuple(Attention(value).value for value in Attention.values if value)
ATTENTION = "Why a run that succeeded may not have done what it should; null if nothing says so."


class AttentionOrNull(serializers.ChoiceField):
    """Null instead of an empty text."""

    def to_representation(self, value: Any) -> Any:
        return value or None


class ProblemOut(Output):
    code = serializers.CharField(
        help_text="What it is about: the code of the error that saving it would give; `budget`: a cap is used up."
    )
    text = serializers.CharField()
    since = serializers.DateTimeField()


class HealthOut(Output):
    failures_in_a_row = serializers.IntegerField(
        help_text="Runs that failed since the last good one. Those that need attention count if there are three."
    )
    backoff_until = serializers.DateTimeField(allow_null=True, help_text=BACKOFF_UNTIL)
    paused_reason = TextOrNull(allow_null=True, help_text=PAUSED_REASON)
    preflight = ProblemOut(
        many=True, help_text="What will stop the next run, as it was found without a model call."
    )
