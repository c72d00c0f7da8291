"""Panels beside the fields of an admin page, links, and cells of tables. All of them are bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import Model
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.formats import localize
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from agent_core.spending import Budget
from sessions_app.spending.caps import shown_caps

WRAPPED = "white-space: pre-wrap; overflow-wrap: anywhere"
LONGEST_CELL = 2_000  # characters of a text shown in a table
LABELS = {  # the colours of states; others are grey
    **dict.fromkeys(("succeeded", "sent", "done", "granted"), "success"),
    **dict.fromkeys(("running", "sending", "scheduled"), "info"),
    **dict.fromkeys(("queued", "pending", "open", "skipped"), "warning"),
    **dict.fromkeys(("failed", "set aside"), "danger"),
}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A table or a text. `note` is a sentence about it, `more` the URL of the full list.

    `leads`: the panel stands above the fields. `wide`: on the dashboard the panel takes the whole width.
    """

    title: str
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    text: str | None = None
    more: str = ""
    note: str = ""
    leads: bool = False
    wide: bool = False


def as_json(value: Any) -> str:
    """A JSON value, indented."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def cell(text: str) -> SafeString:
    """A text in a table, with its line breaks, cut at LONGEST_CELL."""
    shown = text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]} …"
    return format_html('<pre class="text-xs" style="{}">{}</pre>', WRAPPED, shown)


def change_url(row: Model) -> str:
    """The URL of a row's page."""
    meta = row._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])


def list_url(model: type[Model], **filters: Any) -> str:
    """The URL of a model's list with these filters."""
    meta = model._meta
    return f"{reverse(f'admin:{meta.app_label}_{meta.model_name}_changelist')}?{urlencode(filters)}"


def link(row: Model | None, text: Any = None) -> SafeString | str:
    """A link to a row's page; a dash for None."""
    return "-" if row is None else link_to(change_url(row), str(row) if text is None else text)


def link_to(url: str, text: Any) -> SafeString:
    """A link."""
    shown = localize(text)
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, shown)


def instant(value: datetime | None) -> str:
    """A time for a column that is no field of the model: Django formats only those."""
    return localize(value) if value else "-"


@cache  # Django compares columns by identity
def linked(field: str) -> Callable[[Any], Any]:
    """A column with a link to the row that a foreign key names."""

    @admin.display(description=field.replace("_", " "), ordering=field)
    def column(row: Any) -> Any:
        return link(getattr(row, field))

    column.__name__ = f"linked_{field}"
    return column


@cache
def beginning(field: str, length: int, title: str) -> Callable[[Any], str]:
    """A column with the beginning of a text."""

    @admin.display(description=title)
    def column(row: Any) -> str:
        return str(getattr(row, field))[:length]

    column.__name__ = f"beginning_of_{field}"
    return column


def label(state: str, colour: str | None = None) -> SafeString:
    """A state as a coloured label with its name."""
    shown = {"text": state, "type": colour or LABELS.get(state), "size": "md"}
    return mark_safe(render_to_string("unfold/helpers/label.html", shown))  # noqa: S308 - it escapes the text


@admin.display(description="state")
def state_label(row: Any) -> SafeString:
    """A column with the row's state as a coloured label."""
    return label(row.state)


def outcome(state: str, attention: str) -> SafeString:
    """A run's state as a coloured label, with why it needs attention: then it is not shown as a success."""
    return label(f"{state}: {attention.replace('_', ' ')}", "warning") if attention else label(state)


@admin.display(description="delivery")
def delivery_states(row: Any) -> str:
    """A column with the state of each delivery of a row that has `shown_deliveries`."""
    return ", ".join(f"{each['channel']}: {each['state']}" for each in row.shown_deliveries) or "-"


def table(
    title: str, rows: Iterable[Any], columns: Mapping[str, Callable[[Any], Any]], more: str = ""
) -> Panel:
    """A panel with a line for each row. `columns`: by header, what is shown of a row."""
    cells = [[shown(row) for shown in columns.values()] for row in rows]
    return Panel(title=title, headers=[*columns], rows=cells, more=more)


def used_panel(words: str) -> Panel:
    """What a row's turns or runs used and cost."""
    return Panel(title="The last 30 days", text=words)


def spent_panel(budget: Budget) -> Iterable[Panel]:
    """The panel with a row's caps and what is spent of them."""
    [shown] = shown_caps([budget])
    periods = [(period, cap) for period, cap in shown.items() if "spent" in cap]
    if periods:
        yield Panel(
            title="Spent of its caps",
            headers=["period", "tokens", "of", "US dollars", "of", "begins anew (UTC)"],
            rows=[
                [
                    *(period, cap["spent"]["tokens"], cap.get("tokens", "none"), cap["spent"]["usd"]),
                    *(cap.get("usd", "none"), cap["resets_at"]),
                ]
                for period, cap in periods
            ],
        )
