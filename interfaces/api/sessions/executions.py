"""Executions and questions of agents that plan, the memory of sessions, and preferences."""

from __future__ import annotations

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agent_core.execution import Status, StepStatus, StepType
from interfaces.api.sessions.turns import ANSWERED, PREFER, turn_response
from interfaces.api.shared import AskedCallOut, InSession, Revised, Texts
from interfaces.http import headers
from interfaces.http.auth import MANAGE, READ, TALK
from interfaces.http.base import KEY, ApiView, tagged_response
from interfaces.http.fields import Input, Items, NonBlankText, Output, StoredMoment, Text, TextOrNull
from interfaces.http.query import Parameter
from sessions_app.agents.documents import preference, put_preference
from sessions_app.memory import task_state
from sessions_app.models import ClosedBecause, ConsentState, TurnKind
from sessions_app.questions import question_reads, questions
from sessions_app.queue.receive import LONGEST_MESSAGE
from sessions_app.reads import selectors
from sessions_app.tokens.reach import limit_of


class StepOut(Output):
    id = serializers.CharField()
    type = serializers.ChoiceField(choices=[each.value for each in StepType])
    title = serializers.CharField()
    status = serializers.ChoiceField(choices=[each.value for each in StepStatus])
    plan = serializers.SerializerMethodField(help_text="The number of its plan.")
    tool = TextOrNull()
    arguments = serializers.DictField()
    instruction = TextOrNull(default="")
    question = TextOrNull()
    confirm = serializers.BooleanField(default=False, help_text="The question is answered by yes or no.")
    consent = serializers.SerializerMethodField(
        help_text="For a tool that needs consent: asked, yes or no; null before the question."
    )
    started_at = StoredMoment(allow_null=True, default=None)
    ended_at = StoredMoment(allow_null=True, default=None)

    def get_plan(self, step: dict[str, Any]) -> int:
        """The id of a step begins with the number of its plan."""
        number = str(step["id"]).partition(".")[0]
        return int(number) if number.isdecimal() else 0

    @extend_schema_field({"type": "string", "enum": ["asked", "yes", "no"], "nullable": True})
    def get_consent(self, step: dict[str, Any]) -> str | None:
        if not step.get("consent"):
            return None
        if step.get("consented"):
            return "yes"
        return "no" if step["status"] == StepStatus.FAILED else "asked"


class ObservationOut(Output):
    kind = serializers.CharField(
        help_text="tool, error, reasoning, question, reply, message, update, or live:NAME."
    )
    text = serializers.CharField()
    step = TextOrNull()


class ConsentOut(Output):
    question_id = serializers.CharField()
    question = serializers.CharField(help_text="The text of the question.")
    calls = AskedCallOut(many=True, help_text="The calls that a yes allows, in full.")
    state = serializers.ChoiceField(choices=ConsentState.choices)
    asked_at = serializers.DateTimeField()
    answered_at = serializers.DateTimeField(allow_null=True)
    answered_by = serializers.IntegerField(allow_null=True, help_text="The turn with the answer.")


CLOSED_BECAUSE = "; ".join(f"`{each.value}`: {each.label}" for each in ClosedBecause if each.value) + "."


class QuestionOut(ConsentOut, InSession):
    question_id = serializers.CharField(source="id")
    question = serializers.CharField(source="text", help_text="The text of the question.")
    answered_by = serializers.IntegerField(source="answered_by_id", allow_null=True)
    turn = serializers.IntegerField(source="turn_id", help_text="The turn that asked it.")
    execution = TextOrNull(help_text="The execution that waits for the answer; null in a chat.")
    run = TextOrNull(help_text="The run that asked; null in a person's turn.")
    expires_at = serializers.DateTimeField(
        allow_null=True, help_text="Until when a scheduled run's question can be answered; else null."
    )
    closed_because = TextOrNull(help_text="Why it was closed without an answer: " + CLOSED_BECAUSE)
    created_at = serializers.DateTimeField(source="asked_at", help_text="The same as `asked_at`.")


class ExecutionOut(InSession, Revised):
    id = serializers.CharField()
    turn = serializers.IntegerField(
        source="turn_id", allow_null=True, help_text="The current or last turn of this execution."
    )
    begun_by = serializers.ChoiceField(
        choices=TurnKind.choices, source="source", help_text="The kind of the turn that started it."
    )
    status = serializers.ChoiceField(choices=[each.value for each in Status])
    request = serializers.CharField()
    goal = serializers.CharField()
    plan = serializers.IntegerField(source="plans", help_text="The number of the current plan.")
    steps = StepOut(many=True)
    current_step = TextOrNull()
    observations = ObservationOut(many=True)
    iterations = serializers.IntegerField()
    question = TextOrNull(help_text="The open question, or the last one.")
    question_id = TextOrNull()
    asked_at = serializers.DateTimeField(allow_null=True, help_text="When the question was asked.")
    consents = ConsentOut(
        many=True,
        source="consents.shown",
        read_only=True,
        help_text="The newest questions for consent and their answers, oldest first: at most 20, of 1 MB together.",
    )
    more_consents = serializers.BooleanField(
        source="consents.is_more",
        read_only=True,
        help_text="Whether there are older ones that `consents` has no room for.",
    )
    reply = TextOrNull()
    final_answer = TextOrNull()
    last_error = TextOrNull()
    closed_by = TextOrNull(help_text="Why it was cancelled while it waited: clear, person or newer.")
    updated_at = serializers.DateTimeField()


class QuestionAnswerIn(Input):
    example = {"content": "yes"}
    content = NonBlankText(help_text=f"1 to {LONGEST_MESSAGE} characters.")


class AnswerIn(QuestionAnswerIn):
    example = {"content": "On Friday."}
    question = Text(
        required=False, help_text="The id of the question that you answer: 409 when another one is open now."
    )


class MemoryChanges(Input):
    example = {"current_goal": "Plan the trip to Lisbon", "open_loops": ["Book a hotel"]}
    current_goal = Text(required=False, allow_blank=True)
    active_flow = Text(required=False, allow_blank=True)
    open_loops = Items(child=Text(), required=False)
    important_facts = Items(child=Text(), required=False)
    last_decision = Text(required=False, allow_blank=True)


class MemoryOut(Output):
    current_goal = serializers.CharField()
    active_flow = serializers.CharField()
    open_loops = Texts()
    important_facts = Texts()
    last_decision = serializers.CharField()
    revision = serializers.IntegerField(help_text="0 before anything was stored.")
    updated_at = serializers.DateTimeField(allow_null=True)


class PreferencesIn(Input):
    example = {"content": "Keep answers short."}
    content = Text(
        allow_blank=True, help_text="Standing instructions as text; they apply from the next turn."
    )


class PreferencesOut(Output):
    content = serializers.CharField()
    revision = serializers.IntegerField(help_text="0 before anything was written.")
    updated_at = serializers.DateTimeField(allow_null=True)


STATUSES = tuple(each.value for each in Status)


class ExecutionList(ApiView):
    scopes = {"get": READ}
    ordering = ("-created_at", "-id")

    takes = {"get": (Parameter(name="status", choices=STATUSES),)}

    @extend_schema(responses=ExecutionOut(many=True))
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """List the executions of a session, the newest first."""
        rows = selectors.executions_of(self.user, session_id, self.parameter("status"))
        return self.page(rows, ExecutionOut)


class ExecutionDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=ExecutionOut)
    def get(self, _request: Request, execution_id: str) -> Response:
        """Get an execution: its plan, observations, question and answer."""
        found = selectors.execution(self.user, execution_id)
        return tagged_response(ExecutionOut(found).data, found.revision)


class ExecutionCancel(ApiView):
    scopes = {"post": TALK}
    refuses = {"post": (409,)}

    @extend_schema(request=None, responses=ExecutionOut)
    def post(self, _request: Request, execution_id: str) -> Response:
        """Cancel an execution. If it waits for an answer, it ends at once; if it runs, its turn is asked to end."""
        questions.cancel_question(selectors.execution(self.user, execution_id))
        found = selectors.execution(self.user, execution_id)
        return tagged_response(ExecutionOut(found).data, found.revision)


class ExecutionAnswer(ApiView):
    scopes = {"post": TALK}
    refuses = {"post": (409,)}

    @extend_schema(parameters=[PREFER, KEY], request=AnswerIn, responses=ANSWERED)
    def post(self, _request: Request, execution_id: str) -> Response:
        """Answer the question of this execution, even if others are open. The answer becomes a turn."""
        found = selectors.execution(self.user, execution_id)
        given = self.read(AnswerIn)
        key = headers.turn_key(self.request)
        about = {"question": given.get("question", ""), "limited": bool(limit_of(self.user))}
        return turn_response(self, questions.answer_question(found, given["content"], key, **about))


class QuestionsOfUser(ApiView):
    scopes = {"get": READ}
    ordering = ("-asked_at", "-id")
    takes = {"get": (Parameter(name="state", choices=tuple(ConsentState.values)),)}

    @extend_schema(responses=QuestionOut(many=True))
    def get(self, _request: Request) -> Response:
        """List your questions for consent in all sessions, the newest first."""
        return self.page(question_reads.questions_of(self.user, self.parameter("state")), QuestionOut)


class QuestionDetail(ApiView):
    scopes = {"get": READ}

    @extend_schema(responses=QuestionOut)
    def get(self, _request: Request, question_id: str) -> Response:
        """Get a question for consent: its calls in full, and its answer."""
        return Response(QuestionOut(question_reads.question(self.user, question_id)).data)


class QuestionAnswer(ApiView):
    scopes = {"post": TALK}
    refuses = {"post": (409,)}

    @extend_schema(parameters=[PREFER, KEY], request=QuestionAnswerIn, responses=ANSWERED)
    def post(self, _request: Request, question_id: str) -> Response:
        """Answer a question for consent with yes or no. The answer becomes a turn."""
        found = question_reads.question(self.user, question_id)
        key = headers.turn_key(self.request)
        content = self.read(QuestionAnswerIn)["content"]
        limited = bool(limit_of(self.user))
        return turn_response(self, questions.answer_consent(found, content, key, limited=limited))


class Memory(ApiView):
    scopes = {"get": READ, "patch": MANAGE}

    @extend_schema(responses=MemoryOut)
    def get(self, _request: Request, session_id: uuid.UUID) -> Response:
        """Get what the session remembers beyond its recent messages."""
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
        """Get your standing instructions for the agent."""
        found = preference(selectors.agent(self.user, name), self.user.pk)
        return tagged_response(PreferencesOut(found).data, found.revision)

    @extend_schema(request=PreferencesIn, responses=PreferencesOut)
    def patch(self, _request: Request, name: str) -> Response:
        """Change your instructions. They are in the prompt of every session from the next turn."""
        agent = selectors.agent(self.user, name)
        before = preference(agent, self.user.pk)
        revision = headers.revision_expected(self.request, before.revision)
        given = self.read(PreferencesIn, partial=True, of=PreferencesOut)
        if "content" in given:
            put_preference(agent, self.user.pk, given["content"], revision=revision)
        return self.get(self.request, name)
