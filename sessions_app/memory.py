"""Task states: what sessions hold on to beyond their recent messages, and which of it is not in MEMORY.md yet."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, PositiveIntegerField, Q, QuerySet, Value, When
from django.db.models.functions import Now

from agent_core.memory import LONGEST_ITEM, MOST_ITEMS, Held
from sessions_app.exceptions import BadInput, NotFound, RevisionConflict
from sessions_app.models import ExecutionState, Session, TaskState

TEXTS = ("current_goal", "active_flow", "last_decision")
LISTS = ("open_loops", "important_facts")
_EMPTY = Q(**dict.fromkeys(TEXTS, ""), **{name: [] for name in LISTS})


def remember(session_id: uuid.UUID, changes: Mapping[str, Any], *, revision: int | None = None) -> TaskState:
    """Change named parts of a session's task state, which is made when there is none.

    `revision` is the one that it must have, 0 for none yet. BadInput, NotFound, RevisionConflict.
    """
    for name, value in changes.items():
        _check(name, value)
    try:
        with transaction.atomic():
            TaskState.objects.bulk_create(
                [TaskState(session_id=session_id, revision=0)], ignore_conflicts=True
            )
            mine = TaskState.objects.filter(session_id=session_id)
            if revision is not None:
                mine = mine.filter(revision=revision)
            if not mine.update(**changes, revision=F("revision") + 1, updated_at=Now()):
                raise RevisionConflict
            transaction.get_connection().check_constraints()  # the session may be gone: know it here
    except IntegrityError as error:
        raise NotFound("there is no such session") from error
    return TaskState.objects.get(session_id=session_id)


def _check(name: str, value: Any) -> None:
    if name in TEXTS:
        sound = isinstance(value, str)
    elif name in LISTS:
        sound = isinstance(value, list) and all(isinstance(item, str) for item in value)
    else:
        raise BadInput(f"a task state has no part {name[:60]!r}", code="not_editable")
    if sound and not _fits(value):
        text = f"{name} has at most {MOST_ITEMS} items of {LONGEST_ITEM} characters, without NUL"
        raise BadInput(text, code=f"bad_{name}")
    if not sound:
        raise BadInput(f"{name} must be {'text' if name in TEXTS else 'a list of texts'}", code=f"bad_{name}")


def _fits(value: str | list[str]) -> bool:
    items = [value] if isinstance(value, str) else value
    return len(items) <= MOST_ITEMS and all(
        len(item) <= LONGEST_ITEM and "\x00" not in item for item in items
    )


def clear(session_id: uuid.UUID) -> None:
    """Begin anew, with the commit under way: window, task state and what waits. Messages and preferences stay."""
    Session.objects.filter(pk=session_id).update(window_from_seq=F("last_seq") + 1)
    empty: dict[str, Any] = dict.fromkeys(TEXTS, "") | {name: [] for name in LISTS}
    TaskState.objects.filter(session_id=session_id).exclude(_EMPTY).update(
        **empty, revision=F("revision") + 1, updated_at=Now()
    )
    ExecutionState.objects.filter(session_id=session_id).forget()


def unconsolidated(agent_id: int) -> QuerySet[TaskState]:
    """Task states of the agent's sessions that say something MEMORY.md has not taken in, the oldest first."""
    return (
        TaskState.objects.filter(session__agent_id=agent_id, revision__gt=F("consolidated_revision"))
        .exclude(_EMPTY)
        .order_by("updated_at", "session_id")
    )


def consolidated(revisions: Mapping[str, int]) -> None:
    """Note that MEMORY.md has taken in these revisions, by session. What changed since stays to be taken in."""
    whens = [When(session_id=session_id, then=Value(number)) for session_id, number in revisions.items()]
    if whens:
        TaskState.objects.filter(session_id__in=revisions).update(
            consolidated_revision=Case(
                *whens, default=F("consolidated_revision"), output_field=PositiveIntegerField()
            )
        )


def state_of(session_id: uuid.UUID) -> TaskState | None:
    """The session's task state, if it has one."""
    return TaskState.objects.filter(session_id=session_id).first()


def held(state: TaskState | None) -> Held:
    """A task state as data."""
    return Held() if state is None else Held.from_json({name: getattr(state, name) for name in TEXTS + LISTS})


def replace_state(session_id: uuid.UUID, new: Held, *, instead_of: int) -> bool:
    """Put a new task state in the place of the one with this revision (0: of none). False: it is another by now."""
    values = new.to_json()
    if instead_of == 0:
        row = TaskState(session_id=session_id, **values)
        TaskState.objects.bulk_create([row], ignore_conflicts=True)
        return TaskState.objects.filter(session_id=session_id, revision=1, **values).exists()
    mine = TaskState.objects.filter(session_id=session_id, revision=instead_of)
    return bool(mine.update(**values, revision=F("revision") + 1, updated_at=Now()))
