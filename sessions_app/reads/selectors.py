"""Reads for the API and the admin. Each is limited to the user who asks (invariant 10), and to what a token reaches."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Case, CharField, F, OuterRef, QuerySet, Subquery, Value, When

from sessions_app.agents.documents import view_of
from sessions_app.exceptions import NotFound
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Document,
    ExecutionState,
    Hook,
    MailboxEvent,
    Session,
    TaskState,
    Turn,
)
from sessions_app.models.agent import DOCUMENTS
from sessions_app.postgres.pages import PagedQuery, found_in, search_newest
from sessions_app.postgres.rows import equals, existing, get_or_none
from sessions_app.questions.question_reads import CONSENT_SIZES, with_consents, with_questions
from sessions_app.reads.session_reads import (
    REPLY_SIZES,
    TARGET,
    WAITING_SIZES,
    in_state,
    shown_sessions,
    shown_turns,
)
from sessions_app.tokens import reach

T = TypeVar("T")
NO_SESSION = "there is no such session"
LARGEST_ID = 2**63 - 1  # of the rows of a table


def _first(rows: Iterable[T], missing: str) -> T:
    """Return the first row. NotFound with the text `missing` if there is none."""
    for row in rows:
        return row
    raise NotFound(missing)


def agents(user: AbstractBaseUser, *, to_ask: bool = False) -> QuerySet[Agent]:
    """Return the user's agents, each with `primary_session`, the id of its primary session.

    `to_ask`: those that messages may be sent to; with a limit to a session, the agent of that session.
    """
    primary = Session.objects.filter(agent=OuterRef("pk"), key=PRIMARY_KEY).values("pk")[:1]
    reached = reach.asked_agents(user) if to_ask else reach.in_agents(user, "pk")
    return Agent.objects.filter(reached, owner_id=user.pk).annotate(primary_session=Subquery(primary))


def agent(user: AbstractBaseUser, name: str, *, to_ask: bool = False) -> Agent:
    """Return one agent of the user; `to_ask` as for `agents`. NotFound."""
    return existing(agents(user, to_ask=to_ask).filter(equals("name", name)))


def documents(user: AbstractBaseUser, agent_name: str) -> list[Document]:
    """Return every document an agent may have. One that was never written is empty, with revision 0. NotFound."""
    return [_with_view(each) for each in _stored_documents(user, agent_name)]


def document(user: AbstractBaseUser, agent_name: str, name: str) -> Document:
    """Return one document of an agent. NotFound."""
    named = (each for each in _stored_documents(user, agent_name) if each.name == name)
    return _with_view(_first(named, "there is no such document"))


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
    return PagedQuery(
        parts=[rows],
        order=("created_at", "pk"),
        load=lambda ids: with_questions(shown_sessions(user.pk, ids)),
        sizes=partial(WAITING_SIZES.all, owner=user.pk),
    )


def session(user: AbstractBaseUser, session_id: uuid.UUID, *, lock: bool = False) -> Any:
    """Return one session of the user; `lock` locks its row until the transaction ends. NotFound."""
    if lock:
        get_or_none(Session.objects.select_for_update(no_key=True).filter(pk=session_id, owner_id=user.pk))
    return with_questions([_reached(user, shown_sessions(user.pk, [session_id]))])[0]


def only_session(user: AbstractBaseUser) -> Any | None:
    """Return the session that the request is limited to; None without such a limit. NotFound."""
    only = reach.limit_of(user).session_id
    return None if only is None else session(user, only)


def _reached(user: AbstractBaseUser, rows: Iterable[Any]) -> Any:
    return _first((row for row in rows if reach.reaches_session(user, row)), NO_SESSION)


def session_with_key(user: AbstractBaseUser, agent: Agent, key: str) -> Any:
    """Return the session of one of the user's agents with this key. NotFound."""
    rows = Session.objects.filter(owner_id=user.pk, agent=agent.pk, key=key).order_by().only("pk")
    return session(user, _first(rows, NO_SESSION).pk)


def shown_id(user: AbstractBaseUser, session_id: uuid.UUID) -> uuid.UUID:
    """Return the id of the session that this session of the user shows, which is often itself. NotFound."""
    shown: uuid.UUID = _reached(user, TARGET.all(owner=user.pk, ids=[session_id])).target_id
    return shown


def key_subquery(rows: QuerySet[Any]) -> Subquery:
    """Return the primary key of the one row as a subquery, so that PostgreSQL plans without knowing the value.

    If it knows that a value is common in a table, PostgreSQL may choose another index and read the rows of all others.
    For an unknown value it uses the index that begins with the column.
    """
    return Subquery(rows.order_by().values("pk")[:1])


def owned(user: AbstractBaseUser, session_id: uuid.UUID) -> Subquery:
    """Return one session of the user, by its id, as a subquery."""
    return key_subquery(Session.objects.filter(pk=session_id, owner_id=user.pk))


def turns(user: AbstractBaseUser, *parts: QuerySet[Turn], order: tuple[str, ...]) -> PagedQuery[Turn]:
    """Return the turns of these querysets that are the user's, each as it is shown."""
    return PagedQuery(
        parts=parts,
        order=order,
        load=partial(shown_turns, user.pk),
        sizes=REPLY_SIZES.all,
    )


def turn(user: AbstractBaseUser, turn_id: int) -> Turn:
    """Return one turn of the user. NotFound."""
    rows = shown_turns(user.pk, [turn_id]) if turn_id <= LARGEST_ID else []
    reached: list[Turn] = [row for row in rows if reach.reaches_contents(user, row.session_id)]
    return _first(reached, "there is no such turn")


def as_shown(user: AbstractBaseUser, queued: Turn) -> Turn:
    """Return a turn of the user as `turn` does. One that was just queued is not read again. NotFound."""
    if not queued.is_new:
        return turn(user, queued.pk)
    shown: Any = queued
    shown.reply, shown.shown_deliveries = None, []  # storing it has given it `agent_name`
    return queued


def executions_of(
    user: AbstractBaseUser, session_id: uuid.UUID, status: str | None = None
) -> PagedQuery[ExecutionState]:
    """Return the executions of the session that is shown. NotFound. `status`: only those with this status."""
    target = shown_id(user, session_id)
    rows = ExecutionState.objects.filter(session=owned(user, target))
    return PagedQuery(
        parts=[rows.filter(status=status) if status else rows],
        order=("created_at", "id"),
        load=lambda ids: with_consents(_executions(user).filter(pk__in=ids)),
        sizes=lambda ids: CONSENT_SIZES.all(sessions=[target], executions=ids),
    )


def execution(user: AbstractBaseUser, execution_id: str) -> ExecutionState:
    """Return one execution of the user. NotFound."""
    rows = _executions(user).filter(reach.in_sessions(user), equals("pk", execution_id))
    found: list[ExecutionState] = with_consents(rows)
    return _first(found, "there is no such execution")


def _executions(user: AbstractBaseUser) -> QuerySet[Any]:
    return ExecutionState.objects.filter(session__owner_id=user.pk).annotate(
        agent_name=F("session__agent__name")
    )


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
    return existing(_hooks(user).filter(pk=hook_id))


def _hooks(user: AbstractBaseUser) -> QuerySet[Hook]:
    rows = Hook.objects.filter(reach.in_agents(user), agent__owner_id=user.pk)
    return rows.annotate(agent_name=F("agent__name"))
