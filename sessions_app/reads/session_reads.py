"""Reads of sessions for the API, each of a user: how a session is shown, and which session it shows."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, CharField, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Left

from sessions_app.models import Message, Session, SessionState, Turn, TurnState
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.models.turn import OPEN_STATES
from sessions_app.questions.question_reads import waiting_chats, waiting_plans
from sessions_app.queue.threads import with_target

ACTIVE, IDLE = "active", "idle"  # states of an open session, as it is shown
LOOKED_BACK = 100  # newest messages of a history that are searched for its last visible words
LONGEST_LOOK = 1_000  # characters of a message that are read for them


def shown_sessions(owner: Any) -> QuerySet[Any]:
    """Return the user's sessions, each with `agent_name`, `target_id`, `shown_seq`, `last_words` and `shown_state`.

    `target_id` is the session that it shows (see `with_target`). `shown_state` of an open one is active or idle.
    """
    rows: QuerySet[Session] = with_target(Session.objects.filter(owner_id=owner))
    last_seq = Subquery(Session.objects.filter(pk=OuterRef("target_id")).values("last_seq"))
    return rows.annotate(
        shown_state=shown_state(),
        agent_name=F("agent__name"),
        shown_seq=last_seq,
        last_words=_last_words(),
    )


def with_questions(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Annotate rows of `shown_sessions` with what `waiting_questions` reads."""
    found: QuerySet[Any] = rows.annotate(waiting_plans=waiting_plans(), waiting_chats=waiting_chats())
    return found


def shown_state() -> Case:
    """Expression: the state of a session as it is shown."""
    return Case(
        When(~Q(state=SessionState.OPEN), then=F("state")),
        # two probes, because each partial index covers one state only
        default=Coalesce(_active_if(TurnState.RUNNING), _active_if(TurnState.QUEUED), Value(IDLE)),
        output_field=CharField(),
    )


def in_state(rows: QuerySet[Session], state: str, owner: Any) -> QuerySet[Session]:
    """Of a user's sessions, those that are shown in this state (see `shown_state`).

    Not by that expression: PostgreSQL would compute it for each of the user's sessions.
    """
    if state not in (ACTIVE, IDLE):
        return rows.filter(state=state)
    busy = Turn.objects.filter(owner_id=owner, state__in=OPEN_STATES).order_by().values("session")
    opened = rows.filter(state=SessionState.OPEN)
    return opened.filter(pk__in=busy) if state == ACTIVE else opened.exclude(pk__in=busy)


def _active_if(state: TurnState) -> Subquery:
    """Expression: `active` if the session has a turn in this state, else null.

    With EXISTS, or without the order of the queue's index, PostgreSQL may read the turns of all sessions at once.
    """
    turns = Turn.objects.filter(session=OuterRef("pk"), state=state).order_by("lane", "due_at", "id")
    return Subquery(turns.annotate(active=Value(ACTIVE)).values("active")[:1])


def _last_words() -> Subquery:
    """Expression: the beginning of the last message by a person or the assistant; null if it is too far back.

    It is searched in the history that the session shows. An automation's trigger does not count. The range of seqs
    bounds the search in a long history.
    """
    said = Message.objects.filter(
        session=OuterRef("target_id"),
        seq__gt=OuterRef("shown_seq") - LOOKED_BACK,
        role__in=["user", "assistant"],
    ).exclude(metadata__has_key=BY_AUTOMATION)
    text = said.annotate(text=Left("content", LONGEST_LOOK)).filter(text__regex=r"[^[:space:]]")
    return Subquery(text.order_by("-seq").values("text")[:1])
