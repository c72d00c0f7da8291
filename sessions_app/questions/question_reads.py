"""Reads of questions for the API: what waits in a session or after a turn, what an execution asked consent for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import F, Q, QuerySet
from sqlalchemy.dialects.postgresql import ARRAY

from agent_core.execution import WAITING
from sessions_app.models import ConsentQuestion, ConsentState, ExecutionState, Turn
from sessions_app.models.turn_input import AUTOMATION_NAME
from sessions_app.postgres.pages import LARGEST_PAGE
from sessions_app.postgres.rows import equals, existing
from sessions_app.postgres.statements import Statement, table
from sessions_app.tokens.reach import in_sessions

MOST_SHOWN = 20  # questions of one session or execution

_plan, _asked = table(ExecutionState), table(ConsentQuestion)
_SESSIONS: Any = sa.any_(sa.bindparam("sessions", type_=ARRAY(sa.Uuid())))


@dataclass(frozen=True, kw_only=True)
class FittingQuestions:
    """The newest whole questions that fit in a page. `is_more`: there are others."""

    shown: list[dict[str, Any]]
    is_more: bool


def with_questions(sessions: list[Any]) -> list[Any]:
    """Set `waiting` of rows of `shown_sessions`: the `FittingQuestions` that are open, the newest first."""
    targets = {each.target_id for each in sessions if each.waiting_size}
    found = _read(_WAITING, "session_id", sessions=list(targets)) if targets else {}
    for each in sessions:
        each.waiting = found.get(each.target_id, _NONE)
    return sessions


def with_consents(executions: Iterable[Any]) -> list[Any]:
    """Set `consents` of executions: the `FittingQuestions` for consent with their answers, the oldest first."""
    rows = list(executions)
    of = {"sessions": [each.session_id for each in rows], "executions": [each.pk for each in rows]}
    found = _read(_CONSENTS, "execution", **of)
    for each in rows:
        asked = found.get(each.pk, _NONE)
        each.consents = FittingQuestions(shown=asked.shown[::-1], is_more=asked.is_more)
    return rows


def _read(statement: Statement, by: str, **params: Any) -> dict[Any, FittingQuestions]:
    found = defaultdict(list)
    for row in statement.all(**params):
        found[getattr(row, by)].append(row._asdict() | {"calls": json.loads(row.calls or "[]")})
    return {
        key: FittingQuestions(shown=shown, is_more=len(shown) < shown[0]["total"])
        for key, shown in found.items()
    }


def open_questions(session: Any) -> Any:
    """Select the open questions of a session, by its id, with `size` in bytes; those for consent with their calls."""
    consent = _asked.alias("consent")
    statuses: list[Any] = [sa.literal_column(f"'{status}'") for status in WAITING]
    of_plans = (
        sa.select(
            *(_plan.c.session_id, _plan.c.id.label("execution"), _plan.c.question_id, _plan.c.question),
            *(_plan.c.status, _plan.c.asked_at, _plan.c.asked_seq, consent.c.calls),
            _size(_plan.c.question, consent.c.calls),
        )
        .outerjoin(consent, sa.and_(consent.c.id == _plan.c.question_id, consent.c.execution == _plan.c.id))
        .where(_plan.c.session_id == session, _plan.c.status.in_(statuses))
        .correlate_except(_plan, consent)
    )
    of_chats = (
        sa.select(
            *(_asked.c.session_id, sa.null(), _asked.c.id, _asked.c.text),
            *(sa.literal("waiting_confirmation"), _asked.c.asked_at, _asked.c.asked_seq, _asked.c.calls),
            _size(_asked.c.text, _asked.c.calls),
        )
        .where(_asked.c.session_id == session, _asked.c.execution == "", _asked.c.state == ConsentState.OPEN)
        .correlate_except(_asked)
    )
    return sa.union_all(of_plans, of_chats)


def _size(*columns: Any) -> Any:
    return sa.func.octet_length(sa.func.concat(*columns)).label("size")


def _consents() -> Any:
    """Select the questions for consent of `executions` of `sessions`, with `size` in bytes."""
    return sa.select(
        *(_asked.c.execution, _asked.c.id.label("question_id"), _asked.c.text.label("question")),
        *(_asked.c.calls, _asked.c.state, _asked.c.asked_at, _asked.c.asked_seq, _asked.c.answered_at),
        *(_asked.c.answered_by_id.label("answered_by"), _size(_asked.c.text, _asked.c.calls)),
    ).where(
        _asked.c.session_id == _SESSIONS,
        _asked.c.execution == sa.any_(sa.bindparam("executions", type_=ARRAY(sa.Text()))),
    )


def _fitting(asked: Any, by: str) -> Any:
    """Select, for each value of `by`, the newest questions that fit in a page, with their `total` number."""
    rows = asked.subquery()
    group = rows.c[by]
    order = rows.c.asked_at.desc(), rows.c.execution.is_(None), rows.c.asked_seq.desc()
    newest = partial(sa.over, partition_by=group, order_by=order)
    numbered = sa.select(
        rows,
        newest(sa.func.row_number()).label("n"),
        newest(sa.func.sum(rows.c.size), rows=(None, 0)).label("up_to"),
        sa.over(sa.func.count(), partition_by=group).label("total"),
    ).subquery()
    fits = sa.or_(numbered.c.n == 1, numbered.c.up_to <= LARGEST_PAGE)
    return sa.select(numbered).where(numbered.c.n <= MOST_SHOWN, fits).order_by(numbered.c.n)


def _sizes() -> Any:
    asked = _consents().subquery()
    return sa.select(asked.c.execution, sa.func.sum(asked.c.size)).group_by(asked.c.execution)


_NONE = FittingQuestions(shown=[], is_more=False)
_WAITING = Statement(lambda: _fitting(open_questions(_SESSIONS), "session_id"))
_CONSENTS = Statement(lambda: _fitting(_consents(), "execution"))
CONSENT_SIZES = Statement(_sizes)


def scheduled(question_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of these questions, say of those of scheduled turns until when they can be answered, and what asked."""
    if not question_ids:
        return {}
    rows = ConsentQuestion.objects.filter(pk__in=question_ids, expires_at__isnull=False)
    columns = rows.values_list("pk", "expires_at", f"turn__{AUTOMATION_NAME}")
    return {pk: {"expires_at": at, "asked_by": name or ""} for pk, at, name in columns}


def questions_of(user: AbstractBaseUser, state: str | None = None) -> QuerySet[ConsentQuestion]:
    """Return the user's questions for consent, with `agent_name`, or those in this state."""
    mine = ConsentQuestion.objects.filter(in_sessions(user), session__owner_id=user.pk)
    rows = mine.annotate(agent_name=F("session__agent__name"))
    return rows.filter(state=state) if state else rows


def question(user: AbstractBaseUser, question_id: str) -> ConsentQuestion:
    """Return a question for consent, with `agent_name`. NotFound."""
    return existing(questions_of(user).filter(equals("pk", question_id)), "there is no such question")


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
