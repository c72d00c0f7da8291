"""What agents that plan work off, and what conversations and people hold on to."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agent_core.execution import Status
from sessions_app import memory, preferences, questions, selectors
from sessions_app.api import conditions
from sessions_app.api.base import KEY, ApiView, shown
from sessions_app.api.planner_shapes import (
    AnswerIn,
    ExecutionOut,
    MemoryChanges,
    MemoryOut,
    PreferencesIn,
    PreferencesOut,
)
from sessions_app.api.shapes import TurnOut
from sessions_app.api.turns import accepted
from sessions_app.exceptions import BadInput

STATUSES = [each.value for each in Status]


class ExecutionList(ApiView):
    ordering = ("-created_at", "-id")

    @extend_schema(
        parameters=[OpenApiParameter("status", str, enum=STATUSES)], responses=ExecutionOut(many=True)
    )
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """The executions of a session, the newest first."""
        rows = selectors.executions_of(self.user, session_id)
        status = self.parameter("status")
        if status is not None and status not in STATUSES:
            raise BadInput(f"status must be one of {', '.join(STATUSES)}", code="bad_parameter")
        return self.page(rows if status is None else rows.filter(status=status), ExecutionOut)


class ExecutionDetail(ApiView):
    @extend_schema(responses=ExecutionOut)
    def get(self, _request: Request, execution_id: str) -> Response:
        """One execution: its plan, what it found, its question or answer."""
        found = selectors.execution(self.user, execution_id)
        return shown(ExecutionOut(found).data, found.revision)


class ExecutionCancel(ApiView):
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses=ExecutionOut)
    def post(self, _request: Request, execution_id: str) -> Response:
        """Give up a question that waits; one at work is asked to end with its turn."""
        questions.cancel(selectors.execution(self.user, execution_id))
        found = selectors.execution(self.user, execution_id)
        return shown(ExecutionOut(found).data, found.revision)


class ExecutionAnswer(ApiView):
    refuses = {"post": (409,)}

    @extend_schema(parameters=[KEY], request=AnswerIn, responses={202: TurnOut})
    def post(self, _request: Request, execution_id: str) -> Response:
        """Reply to this very question, whichever else waits; the reply becomes a turn."""
        found = selectors.execution(self.user, execution_id)
        key = conditions.turn_key(conditions.idempotency_key(self.request))
        return accepted(self.user, questions.answer(found, self.read(AnswerIn)["content"], key).pk)


class Memory(ApiView):
    @extend_schema(responses=MemoryOut)
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """What a conversation holds on to beyond its recent messages."""
        found = selectors.memory(self.user, session_id)
        return shown(MemoryOut(found).data, found.revision)

    @extend_schema(request=MemoryChanges, responses=MemoryOut)
    def patch(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Correct parts of it; what is not given stays. Live with the next turn."""
        found = selectors.memory(self.user, session_id)
        revision = conditions.revision_expected(self.request, found.revision)
        given = self.read(MemoryChanges, partial=True, of=MemoryOut)
        if given:
            memory.remember(found.session_id, given, revision=revision)
        return self.get(self.request, session_id)


class Preferences(ApiView):
    @extend_schema(responses=PreferencesOut)
    def get(self, _request: Request, name: str) -> Response:
        """Your standing wishes to an agent."""
        found = preferences.preference(selectors.agent(self.user, name), self.user.pk)
        return shown(PreferencesOut(found).data, found.revision)

    @extend_schema(request=PreferencesIn, responses=PreferencesOut)
    def patch(self, _request: Request, name: str) -> Response:
        """Change them; they are part of every conversation's prompt from the next turn on."""
        agent = selectors.agent(self.user, name)
        before = preferences.preference(agent, self.user.pk)
        revision = conditions.revision_expected(self.request, before.revision)
        given = self.read(PreferencesIn, partial=True, of=PreferencesOut)
        if "content" in given:
            preferences.put_preference(agent, self.user.pk, given["content"], revision=revision)
        return self.get(self.request, name)
