"""Reads of questions for the API: what waits in a session or after a turn, what an execution asked consent for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, F, OuterRef, Q, QuerySet, RowRange, Subquery, Sum, When, Window
from django.db.models.functions import Coalesce, JSONObject
from django.db.models.lookups import Exact, LessThanOrEqual

from agent_core.execution import WAITING, Status
from sessions_app.exceptions import NotFound
from sessions_app.models import ConsentQuestion, ConsentState, ExecutionState, Session, Turn
from sessions_app.postgres.pages import LARGEST_PAGE, bytes_of, how_many_fit, octets
from sessions_app.queue.threads import with_target
from sessions_app.tokens.reach import in_sessions

MOST_WAITING = 20  # questions of one session that are listed


def _plans() -> QuerySet[ExecutionState]:
    rows = ExecutionState.objects.filter(session=OuterRef("target_id"), status__in=WAITING)
    return rows.order_by("-asked_at")


def _chats() -> QuerySet[ConsentQuestion]:
    rows = ConsentQuestion.objects.filter(
        session=OuterRef("target_id"), execution="", state=ConsentState.OPEN
    )
    return rows.order_by("-asked_seq")


def a_question() -> Coalesce:
    """Column: the id of an open question of the session, or of its execution; null without one."""
    return Coalesce(*(Subquery(rows.values("pk")[:1]) for rows in (_plans(), _chats())))


def waiting_plans() -> ArraySubquery:
    """Column: the questions of waiting executions, newest first; those for consent with their calls."""
    consents = ConsentQuestion.objects.filter(pk=OuterRef("question_id"), execution=OuterRef("pk"))
    calls = Subquery(consents.values("calls")[:1])
    columns = {
        "execution": "id",
        "question_id": "question_id",
        "question": "question",
        "status": "status",
        "asked_at": "asked_at",
    }
    return _fitting(_plans(), [F("question"), calls], columns | {"calls": calls})


def waiting_chats() -> ArraySubquery:
    """Column: the open questions for consent of a chat, newest first."""
    columns = {"question_id": "id", "question": "text", "asked_at": "asked_at", "calls": "calls"}
    return _fitting(_chats(), [F("text"), F("calls")], columns)


def _fitting(asked: QuerySet[Any], long: list[Any], columns: dict[str, Any]) -> ArraySubquery:
    """Column: the questions to list, and one more. One that does not fit in a page with the earlier ones is null."""
    size = octets(*long)
    order: Any = asked.query.order_by
    up_to = Window(Sum(size), order_by=order, frame=RowRange(start=None, end=0))
    fits = Q(LessThanOrEqual(up_to, LARGEST_PAGE)) | Q(Exact(up_to, size))
    shown = Case(When(fits, then=JSONObject(**columns, size=size)))
    return ArraySubquery(asked.values(shown=shown)[: MOST_WAITING + 1])


@dataclass(frozen=True, kw_only=True)
class FittingQuestions:
    """The whole questions that fit in a page. `is_more`: there are others."""

    shown: list[dict[str, Any]]
    is_more: bool


def waiting_questions(session: Any) -> FittingQuestions:
    """Return the open questions of plans and chats of a session that was read with them, newest first."""
    of_a_chat = {"execution": None, "status": str(Status.WAITING_CONFIRMATION)}
    chats = [each and of_a_chat | each for each in session.waiting_chats]
    asked = [each for each in (*session.waiting_plans, *chats) if each is not None]
    asked.sort(key=lambda each: datetime.fromisoformat(each["asked_at"]), reverse=True)
    shown = asked[: how_many_fit(asked)][:MOST_WAITING]
    return FittingQuestions(shown=shown, is_more=len(shown) < len(session.waiting_plans) + len(chats))


def size_of_waiting() -> Any:
    """Expression: the bytes of the questions that wait in the session that a session shows."""
    shown = Subquery(with_target(Session.objects.filter(pk=OuterRef(OuterRef("pk")))).values("target_id"))
    plans = ExecutionState.objects.filter(session=shown, status__in=WAITING)
    asked = ConsentQuestion.objects.filter(session=shown, state=ConsentState.OPEN)
    return bytes_of(plans, "question") + bytes_of(asked, "text", "calls")


def _consents() -> QuerySet[ConsentQuestion]:
    return ConsentQuestion.objects.filter(session=OuterRef("session"), execution=OuterRef("pk"))


def size_of_consents() -> Any:
    """Expression: the bytes of the questions for consent of an execution."""
    return bytes_of(_consents(), "text", "calls")


def with_consents(rows: QuerySet[ExecutionState]) -> QuerySet[Any]:
    """Annotate the executions with `agent_name`, and `consents`, for `consents_of`."""
    columns = {
        "question_id": "id",
        "question": "text",
        "calls": "calls",
        "state": "state",
        "asked_at": "asked_at",
        "answered_at": "answered_at",
        "answered_by": "answered_by_id",
    }
    asked = _consents().order_by("-asked_seq")
    return rows.annotate(
        agent_name=F("session__agent__name"),
        consents=_fitting(asked, [F("text"), F("calls")], columns),
    )


def consents_of(execution: Any) -> FittingQuestions:
    """Return the newest questions for consent of an execution that fit in a page, with their answers, oldest first."""
    asked = [each for each in execution.consents if each is not None][:MOST_WAITING]
    return FittingQuestions(shown=asked[::-1], is_more=len(asked) < len(execution.consents))


def question(user: AbstractBaseUser, question_id: str) -> ConsentQuestion:
    """Return a question for consent, with `agent_name`. NotFound."""
    mine = ConsentQuestion.objects.filter(in_sessions(user), session__owner_id=user.pk)
    rows = mine.annotate(agent_name=F("session__agent__name"))
    found = None if "\x00" in question_id else rows.filter(pk=question_id).first()
    if found is None:
        raise NotFound("there is no such question")
    return found


@dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """A question that waits for an answer.

    `calls` are the tool calls that a yes allows, each with `name` and `arguments`; none if it is not about consent.
    `execution` is the id of the plan that waits; empty for a question in a chat.
    """

    id: str
    execution: str
    text: str
    calls: tuple[dict[str, Any], ...]


def question_after(turn: Turn) -> OpenQuestion | None:
    """Return the question that waits since this turn ended, which asked it or failed to process the answer."""
    plans = ExecutionState.objects.filter(session=turn.session_id, turn=turn, status__in=WAITING)
    if waiting := plans.order_by("-asked_at").first():
        asked = ConsentQuestion.objects.filter(pk=waiting.question_id, execution=waiting.pk).first()
        calls = tuple(asked.calls) if asked is not None else ()
        return OpenQuestion(id=waiting.question_id, execution=waiting.pk, text=waiting.question, calls=calls)
    of_turn = Q(answered_by=turn) | Q(turn=turn, answered_by__isnull=True)
    rows = ConsentQuestion.objects.filter(
        of_turn, session=turn.session_id, execution="", state=ConsentState.OPEN
    )
    if asked := rows.order_by("-asked_seq").first():
        return OpenQuestion(id=asked.pk, execution="", text=asked.text, calls=tuple(asked.calls))
    return None


def turn_after(turn: Turn, key: str) -> Turn | None:
    """Return the turn that processes the answer to this turn's question: the one with this idempotency key, or the
    one that answered its question for consent.
    """
    answers = Turn.objects.filter(session=turn.session_id)
    if found := answers.filter(idempotency_key=key).first():
        return found
    asked = ConsentQuestion.objects.filter(session=turn.session_id, turn=turn, answered_by__isnull=False)
    asked = asked.exclude(answered_by=turn).order_by("-asked_seq")
    return answers.filter(pk__in=asked.values("answered_by")[:1]).first()
