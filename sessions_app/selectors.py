"""Reads for the doors. Every one starts from the user who asks: what is another's does not exist (invariant 10)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Case, CharField, Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Now

from sessions_app.exceptions import NotFound
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Document,
    MailboxEvent,
    Message,
    Session,
    SessionState,
    Turn,
    TurnState,
    Worker,
)

DOCUMENTS = ("AGENTS.md", "USER.md", "MEMORY.md", "SKILLS.md", "HEARTBEAT.md")


def agents(user: AbstractBaseUser) -> QuerySet[Agent]:
    """The user's agents, each with `primary_session`, the id of its primary session."""
    primary = Session.objects.filter(agent=OuterRef("pk"), key=PRIMARY_KEY).values("pk")[:1]
    return Agent.objects.filter(owner_id=user.pk).annotate(primary_session=Subquery(primary))


def agent(user: AbstractBaseUser, name: str) -> Agent:
    """One agent of the user. NotFound."""
    found = None if "\x00" in name else agents(user).filter(name=name).first()
    if found is None:
        raise NotFound("there is no such agent")
    return found


def documents(user: AbstractBaseUser, agent_name: str) -> list[Document]:
    """Every document an agent may have; one that was never written is empty, of revision 0. NotFound."""
    owner = agent(user, agent_name)
    written = {row.name: row for row in Document.objects.filter(agent=owner, agent__owner_id=user.pk)}
    names = [*DOCUMENTS, *sorted(set(written) - set(DOCUMENTS))]
    return [written.get(name) or Document(agent=owner, name=name, revision=0) for name in names]


def document(user: AbstractBaseUser, agent_name: str, name: str) -> Document:
    """One of them. NotFound."""
    for found in documents(user, agent_name):
        if found.name == name:
            return found
    raise NotFound("there is no such document")


def sessions(user: AbstractBaseUser) -> QuerySet[Session]:
    """The user's sessions, each with `agent_name` and `shown_state`: an open one is active or idle."""
    # two probes, because each partial index knows one state only
    running = Exists(Turn.objects.filter(session=OuterRef("pk"), state=TurnState.RUNNING))
    queued = Exists(Turn.objects.filter(session=OuterRef("pk"), state=TurnState.QUEUED))
    shown = Case(
        When(~Q(state=SessionState.OPEN), then=F("state")),
        When(running | queued, then=Value("active")),
        default=Value("idle"),
        output_field=CharField(),
    )
    return Session.objects.filter(owner_id=user.pk).annotate(shown_state=shown, agent_name=F("agent__name"))


def session(user: AbstractBaseUser, session_id: uuid.UUID, *, lock: bool = False) -> Session:
    """One session of the user; `lock`: nobody changes it until the transaction ends. NotFound."""
    rows = sessions(user).filter(pk=session_id)
    found = (rows.select_for_update(no_key=True, of=("self",)) if lock else rows).first()
    if found is None:
        raise NotFound("there is no such session")
    return found


def messages(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[Message]:
    """A session's history. NotFound."""
    session(user, session_id)
    return Message.objects.filter(session_id=session_id, session__owner_id=user.pk)


def turns(user: AbstractBaseUser) -> QuerySet[Turn]:
    """The user's turns, each with `reply`: its last words, or its host's when it was taken along by one."""
    said = Message.objects.filter(turn_id=Coalesce(OuterRef("host_id"), OuterRef("pk")), role="assistant")
    reply = said.exclude(content="").order_by("-seq").values("content")[:1]
    return Turn.objects.filter(session__owner_id=user.pk).annotate(reply=Subquery(reply))


def turns_of(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[Turn]:
    """A session's turns. NotFound."""
    session(user, session_id)
    return turns(user).filter(session_id=session_id)


def turn(user: AbstractBaseUser, turn_id: int) -> Turn:
    """One turn of the user. NotFound."""
    found = turns(user).filter(pk=turn_id).first()
    if found is None:
        raise NotFound("there is no such turn")
    return found


def mailbox(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[MailboxEvent]:
    """What other sessions' work told this one, each with `state`. NotFound."""
    session(user, session_id)
    state = Case(
        When(acknowledged_at__isnull=False, then=Value("acknowledged")),
        When(dropped_at__isnull=False, then=Value("dropped")),
        default=Value("pending"),
        output_field=CharField(),
    )
    rows = MailboxEvent.objects.filter(target_id=session_id, target__owner_id=user.pk)
    return rows.annotate(state=state)


def live_workers(lost_after: float) -> list[list[str]]:
    """The queues that each worker reads which gave a sign of life within `lost_after` seconds. For operators."""
    alive = Worker.objects.filter(heartbeat_at__gt=Now() - timedelta(seconds=lost_after))
    return list(alive.values_list("shards", flat=True))


def open_turns() -> dict[str, int]:
    """How many turns wait and run. For operators."""
    counts: dict[str, Any] = {}
    for state in (TurnState.QUEUED, TurnState.RUNNING):
        counts[str(state)] = Turn.objects.filter(state=state).aggregate(n=Count("id"))["n"]
    return counts
