"""Reads for the API and the admin. Each is limited to the user who asks (invariant 10), and to what a token reaches."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, CharField, F, Model, OuterRef, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, JSONObject, NullIf

from sessions_app.agents.documents import view_of
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
    TaskState,
    Turn,
)
from sessions_app.models.agent import DOCUMENTS
from sessions_app.postgres.pages import PagedQuery, bytes_of, found_in, search_newest
from sessions_app.questions.question_reads import size_of_consents, size_of_waiting, with_consents
from sessions_app.queue.threads import with_target
from sessions_app.reads.session_reads import in_state, shown_sessions, with_questions
from sessions_app.tokens import reach

M = TypeVar("M", bound=Model)
NO_SESSION = "there is no such session"
LARGEST_ID = 2**63 - 1  # of the rows of a table


def _first(rows: QuerySet[M], missing: str) -> M:
    """Return the first row. NotFound with the text `missing` if there is none."""
    return _found(rows.first(), missing)


def _found(row: M | None, missing: str) -> M:
    if row is None:
        raise NotFound(missing)
    return row


def agents(user: AbstractBaseUser, *, to_ask: bool = False) -> QuerySet[Agent]:
    """Return the user's agents, each with `primary_session`, the id of its primary session.

    `to_ask`: those that messages may be sent to; with a limit to a session, the agent of that session.
    """
    primary = Session.objects.filter(agent=OuterRef("pk"), key=PRIMARY_KEY).values("pk")[:1]
    reached = reach.asked_agents(user) if to_ask else reach.in_agents(user, "pk")
    return Agent.objects.filter(reached, owner_id=user.pk).annotate(primary_session=Subquery(primary))


def agent(user: AbstractBaseUser, name: str, *, to_ask: bool = False) -> Agent:
    """Return one agent of the user; `to_ask` as for `agents`. NotFound."""
    rows = agents(user, to_ask=to_ask)
    return _first(rows.none() if "\x00" in name else rows.filter(name=name), "there is no such agent")


def documents(user: AbstractBaseUser, agent_name: str) -> list[Document]:
    """Return every document an agent may have. One that was never written is empty, with revision 0. NotFound."""
    return [_with_view(each) for each in _stored_documents(user, agent_name)]


def document(user: AbstractBaseUser, agent_name: str, name: str) -> Document:
    """Return one document of an agent. NotFound."""
    for found in _stored_documents(user, agent_name):
        if found.name == name:
            return _with_view(found)
    raise NotFound("there is no such document")


def _stored_documents(user: AbstractBaseUser, agent_name: str) -> list[Document]:
    owner = agent(user, agent_name)
    written = {row.name: row for row in Document.objects.filter(agent=owner, agent__owner_id=user.pk)}
    names = [*DOCUMENTS, *sorted(set(written) - set(DOCUMENTS))]
    return [written.get(name) or Document(agent=owner, name=name, revision=0) for name in names]


def _with_view(document: Document) -> Document:
    """Show the current text of the document's backing and set `basis`. Without a backing, `basis` is None."""
    shown = view_of(document)
    document.basis = shown.basis if shown else None
    document.content = shown.content if shown else document.content
    return document


def sessions(user: AbstractBaseUser, wanted: Mapping[str, Any], term: str = "") -> PagedQuery[Any]:
    """Return the user's sessions with these values of fields, each as it is shown, in the order of creation."""
    rows: QuerySet[Session] = Session.objects.filter(reach.these_sessions(user), owner_id=user.pk)
    fields = dict(wanted)
    if state := fields.pop("shown_state", None):
        rows = in_state(rows, state, user.pk)
    rows = search_newest(rows, found_in(term, "title"), time="created_at").filter(**fields)
    shown = with_questions(shown_sessions(user.pk))
    return PagedQuery(
        parts=[rows],
        order=("created_at", "pk"),
        load=lambda ids: shown.filter(pk__in=ids),
        extra_size=size_of_waiting(),
    )


def session(user: AbstractBaseUser, session_id: uuid.UUID, *, lock: bool = False) -> Any:
    """Return one session of the user; `lock` locks its row until the transaction ends. NotFound."""
    rows = with_questions(shown_sessions(user.pk)).filter(pk=session_id)
    if lock:
        rows = rows.select_for_update(no_key=True, of=("self",))
    return _reached(user, rows)


def only_session(user: AbstractBaseUser) -> Any | None:
    """Return the session that the request is limited to; None without such a limit. NotFound."""
    only = reach.limit_of(user).session_id
    return None if only is None else session(user, only)


def _reached(user: AbstractBaseUser, rows: QuerySet[Session]) -> Any:
    found = rows.order_by().first()
    return _found(found if found is not None and reach.reaches_session(user, found) else None, NO_SESSION)


def session_with_key(user: AbstractBaseUser, agent: Agent, key: str) -> Any:
    """Return the session of one of the user's agents with this key. NotFound."""
    rows = Session.objects.filter(owner_id=user.pk, agent=agent.pk, key=key).order_by().only("pk")
    return session(user, _found(rows.first(), NO_SESSION).pk)


def shown_id(user: AbstractBaseUser, session_id: uuid.UUID) -> uuid.UUID:
    """Return the id of the session that this session of the user shows, which is often itself. NotFound."""
    rows = Session.objects.filter(owner_id=user.pk, pk=session_id).only("pk", "agent")
    shown: uuid.UUID = _reached(user, with_target(rows)).target_id
    return shown


def key_subquery(rows: QuerySet[Any]) -> Subquery:
    """Return the primary key of the one row as a subquery, so that PostgreSQL plans without knowing the value.

    If it knows that a value is common in a table, PostgreSQL may choose another index and read the rows of all others.
    For an unknown value it uses the index that begins with the column.
    """
    return Subquery(rows.order_by().values("pk")[:1])


def _shown_by(user: AbstractBaseUser, session_id: uuid.UUID) -> Subquery:
    """Return the session that this session shows. NotFound."""
    return owned(user, shown_id(user, session_id))


def owned(user: AbstractBaseUser, session_id: uuid.UUID) -> Subquery:
    """Return one session of the user, by its id, as a subquery."""
    return key_subquery(Session.objects.filter(pk=session_id, owner_id=user.pk))


def turns(user: AbstractBaseUser, *parts: QuerySet[Turn], order: tuple[str, ...]) -> PagedQuery[Turn]:
    """Return the turns of these querysets that are the user's, each as it is shown."""
    return PagedQuery(
        parts=parts,
        order=order,
        load=lambda ids: _turns(user).filter(pk__in=ids),
        extra_size=bytes_of(_last_reply(), "content"),
    )


def _last_reply() -> QuerySet[Message]:
    """Return the last answer of a turn, or of its host if it joined one, for a subquery."""
    speaker = Coalesce(OuterRef("host_id"), OuterRef("pk"))
    return Message.objects.filter(turn_id=speaker, role="assistant").exclude(content="").order_by("-seq")[:1]


def _turns(user: AbstractBaseUser) -> QuerySet[Turn]:
    """Return the user's turns, each with `agent_name`, `reply`, the last answer of the turn (of its host, if it joined
    one), and `shown_deliveries`.
    """
    reply = _last_reply().values("content")
    sent = with_deliveries("message__turn_id", Coalesce(OuterRef("host_id"), OuterRef("pk")))
    return (
        Turn.objects.filter(session__owner_id=user.pk)
        .order_by()
        .annotate(agent_name=F("session__agent__name"), reply=Subquery(reply), shown_deliveries=sent)
    )


def turn(user: AbstractBaseUser, turn_id: int) -> Turn:
    """Return one turn of the user. NotFound."""
    found = _turns(user).filter(pk=turn_id).first() if turn_id <= LARGEST_ID else None
    is_reached = found is not None and reach.reaches_contents(user, found.session_id)
    return _found(found if is_reached else None, "there is no such turn")


def as_shown(user: AbstractBaseUser, queued: Turn) -> Turn:
    """Return a turn of the user as `turn` does. One that was just queued is not read again. NotFound."""
    if not queued.is_new:
        return turn(user, queued.pk)
    shown: Any = queued
    shown.reply, shown.shown_deliveries = None, []  # storing it has given it `agent_name`
    return queued


def with_deliveries(message: str, of: Any) -> ArraySubquery:
    """Column: `{id, channel, state, attempts, last_error}` of each delivery whose field `message` equals `of`."""
    rows = Delivery.objects.filter(**{message: of}).order_by("id")
    shown = JSONObject(
        id="id",
        channel="channel",
        state="state",
        attempts="attempts",
        last_error=NullIf("last_error", Value("")),
    )
    return ArraySubquery(rows.values(shown=shown))


def executions_of(
    user: AbstractBaseUser, session_id: uuid.UUID, status: str | None = None
) -> PagedQuery[ExecutionState]:
    """Return the executions of the session that is shown. NotFound. `status`: only those with this status."""
    rows = ExecutionState.objects.filter(session=_shown_by(user, session_id))
    mine = ExecutionState.objects.filter(session__owner_id=user.pk)
    return PagedQuery(
        parts=[rows.filter(status=status) if status else rows],
        order=("created_at", "id"),
        load=lambda ids: with_consents(mine.filter(pk__in=ids)),
        extra_size=size_of_consents(),
    )


def execution(user: AbstractBaseUser, execution_id: str) -> ExecutionState:
    """Return one execution of the user. NotFound."""
    mine = ExecutionState.objects.filter(reach.in_sessions(user), session__owner_id=user.pk)
    rows: QuerySet[ExecutionState] = with_consents(mine)
    rows = rows.none() if "\x00" in execution_id else rows.filter(pk=execution_id)
    return _first(rows, "there is no such execution")


def memory(user: AbstractBaseUser, session_id: uuid.UUID) -> TaskState:
    """Return the task state of the session that is shown. One never written is empty, with revision 0. NotFound."""
    target = shown_id(user, session_id)
    found = TaskState.objects.filter(session_id=target, session__owner_id=user.pk).first()
    if found is None:
        found = TaskState(session_id=target, revision=0)
        found.updated_at = None  # type: ignore[assignment]  # never
    return found


def mailbox(user: AbstractBaseUser, session_id: uuid.UUID) -> PagedQuery[MailboxEvent]:
    """Return the mailbox events of this session and of the one it shows, each with its `state`. NotFound."""
    target = shown_id(user, session_id)
    state = Case(
        When(acknowledged_at__isnull=False, then=Value("acknowledged")),
        When(dropped_at__isnull=False, then=Value("dropped")),
        default=Value("pending"),
        output_field=CharField(),
    )
    source = Session.objects.filter(agent_id=OuterRef("target__agent_id"), key=OuterRef("source_key"))
    its_id, agent = Subquery(source.values("pk")[:1]), F("target__agent__name")
    rows = MailboxEvent.objects.annotate(state=state, source_session=its_id, agent_name=agent)
    parts = [rows.filter(target=owned(user, each)) for each in {session_id, target}]
    return PagedQuery(parts=parts, order=("id",))


def hooks_of(user: AbstractBaseUser, agent_name: str) -> QuerySet[Hook]:
    """Return the agent's hooks, each with `agent_name`. NotFound."""
    return _hooks(user).filter(agent=agent(user, agent_name))


def hook(user: AbstractBaseUser, hook_id: str) -> Hook:
    """Return one hook of the user. NotFound."""
    return _first(_hooks(user).filter(pk=hook_id), "there is no such hook")


def _hooks(user: AbstractBaseUser) -> QuerySet[Hook]:
    rows = Hook.objects.filter(reach.in_agents(user), agent__owner_id=user.pk)
    return rows.annotate(agent_name=F("agent__name"))
