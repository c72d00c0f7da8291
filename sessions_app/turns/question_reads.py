"""Reads of questions for the API: what waits in a session, what an execution asked consent for, one question."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import JSONObject

from agent_core.execution import WAITING
from sessions_app.exceptions import NotFound
from sessions_app.models import ConsentQuestion, ConsentState, ExecutionState

MOST_WAITING = 20  # questions of one session that are listed


def waiting_plans() -> ArraySubquery:
    """Column: the questions of waiting executions, newest first; those for consent with their calls."""
    asked = ExecutionState.objects.filter(session=OuterRef("target_id"), status__in=WAITING)
    calls = ConsentQuestion.objects.filter(pk=OuterRef("question_id"), execution=OuterRef("pk")).values(
        "calls"
    )
    shown = JSONObject(
        execution="id",
        question_id="question_id",
        question="question",
        status="status",
        asked_at="asked_at",
        calls=Subquery(calls[:1]),
    )
    return ArraySubquery(asked.order_by("-asked_at").values(shown=shown)[:MOST_WAITING])


def waiting_chats() -> ArraySubquery:
    """Column: the open questions for consent of a chat, newest first."""
    asked = ConsentQuestion.objects.filter(
        session=OuterRef("target_id"), execution="", state=ConsentState.OPEN
    )
    shown = JSONObject(question_id="id", question="text", asked_at="asked_at", calls="calls")
    return ArraySubquery(asked.order_by("-asked_seq").values(shown=shown)[:MOST_WAITING])


def with_consents(rows: QuerySet[ExecutionState]) -> QuerySet[Any]:
    """Annotate the executions with `consents`: their questions for consent, oldest first, with the answers."""
    asked = ConsentQuestion.objects.filter(session=OuterRef("session"), execution=OuterRef("pk"))
    shown = JSONObject(
        question_id="id",
        question="text",
        calls="calls",
        state="state",
        asked_at="asked_at",
        answered_at="answered_at",
        answered_by="answered_by_id",
    )
    return rows.annotate(consents=ArraySubquery(asked.order_by("asked_seq").values(shown=shown)))


def question(user: AbstractBaseUser, question_id: str) -> ConsentQuestion:
    """Return a question for consent. NotFound."""
    rows = ConsentQuestion.objects.filter(session__owner_id=user.pk)
    found = None if "\x00" in question_id else rows.filter(pk=question_id).first()
    if found is None:
        raise NotFound("there is no such question")
    return found
