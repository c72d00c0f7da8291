"""The serializer of a session's open questions."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agent_core.execution import WAITING
from interfaces.http.fields import Output, StoredMoment
from sessions_app.questions.question_reads import waiting_questions


class AskedCallOut(Output):
    name = serializers.CharField()
    arguments = serializers.DictField()


class WaitingOut(Output):
    execution = serializers.CharField(
        allow_null=True, help_text="The execution that waits for the answer; null in a chat."
    )
    question_id = serializers.CharField(allow_null=True)
    question = serializers.CharField()
    status = serializers.ChoiceField(choices=[status.value for status in WAITING])
    asked_at = StoredMoment()
    calls = AskedCallOut(
        many=True, help_text="The calls that a yes allows; empty when the question is not about consent."
    )


def waiting_of(session: Any) -> list[dict[str, Any]]:
    """The open questions of plans and chats that fit in a page, the newest first."""
    asked = waiting_questions(session).shown
    if not asked:
        return []  # as for nearly every session of a list
    shown = [
        each | {"question_id": each["question_id"] or None, "calls": each["calls"] or []} for each in asked
    ]
    return list(WaitingOut(shown, many=True).data)
