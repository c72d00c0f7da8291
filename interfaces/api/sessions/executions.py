"""Executions and questions of agents that plan, the memory of sessions, and preferences."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agent_core.execution import Status
from interfaces.api.sessions.execution_serializers import (
    AnswerIn,
    ExecutionOut,
    MemoryChanges,
    MemoryOut,
    PreferencesIn,
    PreferencesOut,
    QuestionAnswerIn,
    QuestionOut,
)
from interfaces.api.sessions.turns import ANSWERED, PREFER, turn_response
from interfaces.http import headers
from interfaces.http.base import KEY, ApiView, tagged_response
from interfaces.http.query import Parameter
from interfaces.http.scopes import MANAGE, READ, TALK
from sessions_app.memory import preferences, task_state
from sessions_app.questions import question_reads, questions
from sessions_app.reads import selectors

STATUSES = tuple(each.value for each in Status)


class ExecutionList(ApiView):
    scopes = {"get": READ}
    ordering = ("-created_at", "-id")

    takes = {"get": (Parameter(name="status", choices=STATUSES),)}

    @extend_schema(responses=ExecutionOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """The executions of a session, the newest first."""
        rows = selectors.executions_of(self.user, session_id, self.parameter("status"))
        return self.page(rows, ExecutionOut)


class ExecutionDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=ExecutionOut)
    def get(self, _request: Request, execution_id: str) -> Response:
        """One execution: its plan, observations, question and answer."""
        found = selectors.execution(self.user, execution_id)
        return tagged_response(ExecutionOut(found).data, found.revision)


class ExecutionCancel(ApiView):
    scopes = {"post": TALK}
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses=ExecutionOut)
    def post(self, _request: Request, execution_id: str) -> Response:
        """Cancel an execution. One that waits for an answer is given up; the turn of a running one is asked to end."""
        questions.cancel_question(selectors.execution(self.user, execution_id))
        found = selectors.execution(self.user, execution_id)
        return tagged_response(ExecutionOut(found).data, found.revision)


class ExecutionAnswer(ApiView):
    scopes = {"post": TALK}
    refuses = {"post": (409,)}

    @extend_schema(parameters=[PREFER, KEY], request=AnswerIn, responses=ANSWERED)
    def post(self, _request: Request, execution_id: str) -> Response:
        """Answer the question of this execution, also when others are open. The answer becomes a turn."""
        found = selectors.execution(self.user, execution_id)
        given = self.read(AnswerIn)
        key = headers.turn_key(self.request)
        return turn_response(
            self, questions.answer_question(found, given["content"], key, given.get("question", ""))
        )


class QuestionDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=QuestionOut)
    def get(self, _request: Request, question_id: str) -> Response:
        """A question for consent: its calls in full, and its answer."""
        return tagged_response(QuestionOut(question_reads.question(self.user, question_id)).data)


class QuestionAnswer(ApiView):
    scopes = {"post": TALK}
    refuses = {"post": (409,)}

    @extend_schema(parameters=[PREFER, KEY], request=QuestionAnswerIn, responses=ANSWERED)
    def post(self, _request: Request, question_id: str) -> Response:
        """Answer a question for consent with yes or no. The answer becomes a turn."""
        found = question_reads.question(self.user, question_id)
        key = headers.turn_key(self.request)
        content = self.read(QuestionAnswerIn)["content"]
        return turn_response(self, questions.answer_consent(found, content, key))


class Memory(ApiView):
    scopes = {"get": READ, "patch": MANAGE}

    @extend_schema(responses=MemoryOut)
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """What the session remembers beyond its recent messages."""
        found = selectors.memory(self.user, session_id)
        return tagged_response(MemoryOut(found).data, found.revision)

    @extend_schema(request=MemoryChanges, responses=MemoryOut)
    def patch(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Change the given fields; the next turn sees them."""
        found = selectors.memory(self.user, session_id)
        revision = headers.revision_expected(self.request, found.revision)
        given = self.read(MemoryChanges, partial=True, of=MemoryOut)
        if given:
            task_state.remember(found.session_id, given, revision=revision)
        return self.get(self.request, session_id)


class Preferences(ApiView):
    scopes = {"get": READ, "patch": MANAGE}

    @extend_schema(responses=PreferencesOut)
    def get(self, _request: Request, name: str) -> Response:
        """Your standing instructions for the agent."""
        found = preferences.preference(selectors.agent(self.user, name), self.user.pk)
        return tagged_response(PreferencesOut(found).data, found.revision)

    @extend_schema(request=PreferencesIn, responses=PreferencesOut)
    def patch(self, _request: Request, name: str) -> Response:
        """Change your instructions. They are in the prompt of every session from the next turn."""
        agent = selectors.agent(self.user, name)
        before = preferences.preference(agent, self.user.pk)
        revision = headers.revision_expected(self.request, before.revision)
        given = self.read(PreferencesIn, partial=True, of=PreferencesOut)
        if "content" in given:
            preferences.put_preference(agent, self.user.pk, given["content"], revision=revision)
        return self.get(self.request, name)
