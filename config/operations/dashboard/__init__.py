"""The dashboard of the admin. Each part is shown to people who may view the rows that it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from automations.models import CronJob, RunRecord, ScheduledMessage
from config.operations.dashboard import recent, troubles
from config.operations.dashboard.parts import Part, Tile
from interfaces.admin.panels import Panel
from sessions_app.models import (
    Agent,
    ConsentQuestion,
    Delivery,
    ExecutionState,
    MailboxEvent,
    Session,
    Turn,
    Worker,
)

PARTS: tuple[tuple[tuple[type[Model], ...], Callable[[], Iterator[Part]]], ...] = (
    ((Worker,), troubles.workers_part),
    ((CronJob, RunRecord), troubles.failing),
    ((Turn,), troubles.failed_turns_part),
    ((Delivery,), troubles.dead_deliveries_part),
    ((Turn, ExecutionState, ConsentQuestion, RunRecord, MailboxEvent), troubles.waiting),
    ((RunRecord,), recent.runs_part),
    ((CronJob, ScheduledMessage), recent.next_slots_part),
    ((Turn,), recent.queues),
    ((Delivery,), recent.deliveries),
    ((Session,), recent.heartbeats),
    ((Turn, Agent), recent.tokens),
)


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The context of the admin's first page, with `tiles` and `panels`."""
    parts = [
        part for models, read in PARTS if all(may_view(request, model) for model in models) for part in read()
    ]
    return context | {
        "title": "Dashboard",
        "tiles": [part for part in parts if isinstance(part, Tile)],
        "panels": [part for part in parts if isinstance(part, Panel)],
    }


def may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Whether the person may view this model's list in the admin."""
    return admin.site.get_model_admin(model).has_view_permission(request)
