"""Task states: what is kept of conversations beyond their recent messages, and what of it is not in MEMORY.md yet."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, PositiveIntegerField, Q, QuerySet, Value, When
from django.db.models.functions import Now

from agent_core.memory.task_state import LONGEST_ITEM, MOST_ITEMS, TaskStateData
from sessions_app.exceptions import BadInput, NotFound, RevisionConflict
from sessions_app.models import ClosedBecause, ConsentQuestion, ExecutionState, Session, TaskState

TEXTS = ("current_goal", "active_flow", "last_decision")
LISTS = ("open_loops", "important_facts")
_EMPTY = Q(**dict.fromkeys(TEXTS, ""), **{name: [] for name in LISTS})


def remember(session_id: uuid.UUID, changes: Mapping[str, Any], *, revision: int | None = None) -> TaskState:
    """Change named parts of a session's task state; creates it if needed.

    `revision` is the one that it must have, 0 if there is none yet. BadInput, NotFound, RevisionConflict.
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
            transaction.get_connection().check_constraints()  # raises here if the session is gone
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


def clear_conversation(session_id: uuid.UUID) -> None:
    """Clear a conversation for `/clear`: empty the window and task state, and close what waits. Messages stay."""
    Session.objects.filter(pk=session_id).update(window_from_seq=F("last_seq") + 1)
    empty: dict[str, Any] = dict.fromkeys(TEXTS, "") | {name: [] for name in LISTS}
    TaskState.objects.filter(session_id=session_id).exclude(_EMPTY).update(
        **empty, revision=F("revision") + 1, updated_at=Now()
    )
    ExecutionState.objects.filter(session_id=session_id).close_all()
    ConsentQuestion.objects.filter(session_id=session_id).close(ClosedBecause.CLEAR)


def unconsolidated(agent_id: int) -> QuerySet[TaskState]:
    """Return the agent's task states that changed since they were merged into MEMORY.md, oldest first."""
    return (
        TaskState.objects.filter(session__agent_id=agent_id, revision__gt=F("consolidated_revision"))
        .exclude(_EMPTY)
        .order_by("updated_at", "session_id")
    )


def mark_consolidated(revisions: Mapping[str, int]) -> None:
    """Store that these revisions, by session, were merged into MEMORY.md. Later changes are still to be merged."""
    whens = [When(session_id=session_id, then=Value(number)) for session_id, number in revisions.items()]
    if whens:
        TaskState.objects.filter(session_id__in=revisions).update(
            consolidated_revision=Case(
                *whens, default=F("consolidated_revision"), output_field=PositiveIntegerField()
            )
        )


def stored_state(session_id: uuid.UUID) -> TaskState | None:
    """Return the session's task state, if it has one."""
    return TaskState.objects.filter(session_id=session_id).first()


def task_state_of(state: TaskState | None) -> TaskStateData:
    """Convert a stored task state to data; None gives an empty one."""
    if state is None:
        return TaskStateData()
    return TaskStateData.from_json({name: getattr(state, name) for name in TEXTS + LISTS})


def replace_state(session_id: uuid.UUID, new: TaskStateData, *, instead_of: int) -> bool:
    """Replace the task state with this revision (0: there is none yet). False if it was changed meanwhile."""
    values = new.to_json()
    if instead_of == 0:
        row = TaskState(session_id=session_id, **values)
        TaskState.objects.bulk_create([row], ignore_conflicts=True)
        return TaskState.objects.filter(session_id=session_id, revision=1, **values).exists()
    mine = TaskState.objects.filter(session_id=session_id, revision=instead_of)
    return bool(mine.update(**values, revision=F("revision") + 1, updated_at=Now()))
