"""Reads for the doors. Every one starts from the user who asks: what is another's does not exist (invariant 10)."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, CharField, Exists, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, JSONObject, Left, NullIf

from agent_core.execution import WAITING
from sessions_app.documents import shown as shown_document
from sessions_app.exceptions import NotFound
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Delivery,
    Document,
    ExecutionState,
    Hook,
    MailboxEvent,
    Message,
    Session,
    SessionState,
    TaskState,
    Turn,
    TurnState,
)
from sessions_app.unified import with_behind

MOST_NAMESAKES = 5  # agents of one name that a refusal lists
LOOKED_BACK = 100  # messages at the end of a history in which its last visible words are looked for
LONGEST_LOOK = 1_000  # characters of one of them
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
    """Every document an agent may have, as it is now; one that was never written is of revision 0. NotFound."""
    return [_as_it_is(each) for each in _written(user, agent_name)]


def document(user: AbstractBaseUser, agent_name: str, name: str) -> Document:
    """One of them. NotFound."""
    for found in _written(user, agent_name):
        if found.name == name:
            return _as_it_is(found)
    raise NotFound("there is no such document")


def _written(user: AbstractBaseUser, agent_name: str) -> list[Document]:
    owner = agent(user, agent_name)
    written = {row.name: row for row in Document.objects.filter(agent=owner, agent__owner_id=user.pk)}
    names = [*DOCUMENTS, *sorted(set(written) - set(DOCUMENTS))]
    return [written.get(name) or Document(agent=owner, name=name, revision=0) for name in names]


def _as_it_is(document: Document) -> Document:
    """With what stands behind it, and `basis`: what a writer has seen then; None for one that is only text."""
    shown = shown_document(document)
    document.basis = shown.basis if shown else None
    document.content = shown.content if shown else document.content
    return document


def sessions(user: AbstractBaseUser) -> QuerySet[Any]:
    """The user's sessions with `agent_name`, `behind`, `last_words` (see _last_words) and `shown_state`.

    `behind` is the id of the session that it shows now. The state shown of an open one is active or idle.
    """
    # two probes, because each partial index knows one state only
    running = Exists(Turn.objects.filter(session=OuterRef("pk"), state=TurnState.RUNNING))
    queued = Exists(Turn.objects.filter(session=OuterRef("pk"), state=TurnState.QUEUED))
    shown = Case(
        When(~Q(state=SessionState.OPEN), then=F("state")),
        When(running | queued, then=Value("active")),
        default=Value("idle"),
        output_field=CharField(),
    )
    rows: QuerySet[Session] = with_behind(Session.objects.filter(owner_id=user.pk))
    last_seq = Subquery(Session.objects.filter(pk=OuterRef("behind")).values("last_seq"))
    asked = ExecutionState.objects.filter(session=OuterRef("behind"), status__in=WAITING)
    question = JSONObject(execution="id", question="question", status="status")
    return rows.annotate(
        waiting=Subquery(asked.annotate(it=question).values("it")[:1]),
        shown_state=shown,
        agent_name=F("agent__name"),
        shown_seq=last_seq,
        last_words=_last_words(),
    )


def _last_words() -> Subquery:
    """The beginning of what a person or the assistant said last; null when that lies far back or is nowhere.

    It is looked for in the history that the session shows; an automation's trigger is not said by anybody.
    The range of seqs bounds the look at a long history.
    """
    said = Message.objects.filter(
        session=OuterRef("behind"),
        seq__gt=OuterRef("shown_seq") - LOOKED_BACK,
        role__in=["user", "assistant"],
    ).exclude(metadata__has_key="_automation_turn")
    text = said.annotate(text=Left("content", LONGEST_LOOK)).filter(text__regex=r"[^[:space:]]")
    return Subquery(text.order_by("-seq").values("text")[:1])


def session(user: AbstractBaseUser, session_id: uuid.UUID, *, lock: bool = False) -> Session:
    """One session of the user; `lock`: nobody changes it until the transaction ends. NotFound."""
    rows = sessions(user).filter(pk=session_id)
    found: Session | None = (rows.select_for_update(no_key=True, of=("self",)) if lock else rows).first()
    if found is None:
        raise NotFound("there is no such session")
    return found


def entered(user: AbstractBaseUser, session_id: uuid.UUID) -> Any:
    """One session of the user with `behind`, the id of the session that it shows now. NotFound."""
    found = sessions(user).filter(pk=session_id).first()
    if found is None:
        raise NotFound("there is no such session")
    return found


def messages(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[Message]:
    """The history that a session shows. NotFound."""
    behind = entered(user, session_id).behind
    rows = Message.objects.filter(session_id=behind, session__owner_id=user.pk)
    return rows.annotate(shown_deliveries=with_deliveries("message_id", OuterRef("pk")))


def turns(user: AbstractBaseUser) -> QuerySet[Turn]:
    """The user's turns, each with `reply`: its last words, or its host's when it was taken along by one."""
    speaker = Coalesce(OuterRef("host_id"), OuterRef("pk"))
    said = Message.objects.filter(turn_id=speaker, role="assistant")
    reply = said.exclude(content="").order_by("-seq").values("content")[:1]
    sent = with_deliveries("message__turn_id", speaker)
    return Turn.objects.filter(session__owner_id=user.pk).annotate(
        reply=Subquery(reply), shown_deliveries=sent
    )


def turns_of(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[Turn]:
    """The turns that a session shows. NotFound."""
    return turns(user).filter(session_id=entered(user, session_id).behind)


def turn(user: AbstractBaseUser, turn_id: int) -> Turn:
    """One turn of the user. NotFound."""
    found = turns(user).filter(pk=turn_id).first()
    if found is None:
        raise NotFound("there is no such turn")
    return found


def deliveries(user: AbstractBaseUser) -> QuerySet[Any]:
    """The user's deliveries, each with `seq` and `turn` of its message; those of deleted sessions are nobody's."""
    rows = Delivery.objects.filter(session__owner_id=user.pk)
    return rows.annotate(seq=F("message__seq"), turn=F("message__turn_id"))


def deliveries_of(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[Any]:
    """What leaves the server of the session that is shown. NotFound."""
    return deliveries(user).filter(session_id=entered(user, session_id).behind)


def delivery(user: AbstractBaseUser, delivery_id: int) -> Any:
    """One of them. NotFound."""
    found = deliveries(user).filter(pk=delivery_id).first()
    if found is None:
        raise NotFound("there is no such delivery")
    return found


def with_deliveries(message: str, of: Any) -> ArraySubquery:
    """A column: `{id, channel, state, attempts, last_error}` of each delivery whose `message` is `of` the row."""
    rows = Delivery.objects.filter(**{message: of}).order_by("id")
    shown = JSONObject(
        id="id",
        channel="channel",
        state="state",
        attempts="attempts",
        last_error=NullIf("last_error", Value("")),
    )
    return ArraySubquery(rows.values(shown=shown))


def executions_of(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[ExecutionState]:
    """What an agent that plans has worked off in the session that is shown. NotFound."""
    behind = entered(user, session_id).behind
    return ExecutionState.objects.filter(session_id=behind, session__owner_id=user.pk)


def execution(user: AbstractBaseUser, execution_id: str) -> ExecutionState:
    """One of them. NotFound."""
    rows = ExecutionState.objects.filter(session__owner_id=user.pk)
    found = None if "\x00" in execution_id else rows.filter(pk=execution_id).first()
    if found is None:
        raise NotFound("there is no such execution")
    return found


def memory(user: AbstractBaseUser, session_id: uuid.UUID) -> TaskState:
    """What the session that is shown holds on to; what was never written is empty, of revision 0. NotFound."""
    behind = entered(user, session_id).behind
    found = TaskState.objects.filter(session_id=behind, session__owner_id=user.pk).first()
    if found is None:
        found = TaskState(session_id=behind, revision=0)
        found.updated_at = None  # type: ignore[assignment]  # never
    return found


def mailbox(user: AbstractBaseUser, session_id: uuid.UUID) -> QuerySet[MailboxEvent]:
    """What other sessions' work told this one and the one behind it, each with `state`. NotFound."""
    behind = entered(user, session_id).behind
    state = Case(
        When(acknowledged_at__isnull=False, then=Value("acknowledged")),
        When(dropped_at__isnull=False, then=Value("dropped")),
        default=Value("pending"),
        output_field=CharField(),
    )
    rows = MailboxEvent.objects.filter(target_id__in={session_id, behind}, target__owner_id=user.pk)
    return rows.annotate(state=state)


def hooks_of(user: AbstractBaseUser, agent_name: str) -> QuerySet[Hook]:
    """The agent's hooks, each with `agent_name`. NotFound."""
    return _hooks(user).filter(agent=agent(user, agent_name))


def hook(user: AbstractBaseUser, hook_id: str) -> Hook:
    """One hook of the user. NotFound."""
    found = _hooks(user).filter(pk=hook_id).first()
    if found is None:
        raise NotFound("there is no such hook")
    return found


def _hooks(user: AbstractBaseUser) -> QuerySet[Hook]:
    return Hook.objects.filter(agent__owner_id=user.pk).annotate(agent_name=F("agent__name"))


def agent_called(name: str) -> Agent:
    """The agent of this name, or of `user/name` where several users have one. NotFound."""
    owner, _, rest = name.partition("/")
    found = list(
        Agent.objects.filter(Q(name=name) | Q(name=rest, owner__username=owner))
        .select_related("owner")
        .order_by("owner__username")[:MOST_NAMESAKES]
    )
    if not found:
        raise NotFound(f"there is no agent {name!r}")
    if len(found) > 1:
        names = ", ".join(f"{agent.owner.get_username()}/{agent.name}" for agent in found)
        raise NotFound(f"several users have an agent {name!r}: say which of {names}")
    return found[0]
