"""Panels below the fields of an admin page, links, and cells of tables. All of them are bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import Model
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from interfaces.admin.unfold import display

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

    `wide`: on the dashboard it takes the whole width.
    """

    title: str
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    text: str | None = None
    more: str = ""
    note: str = ""
    wide: bool = False


def table_panel(
    title: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    more: str = "",
    note: str = "",
    wide: bool = False,
) -> Panel:
    """A panel with a table; the caller bounds the rows."""
    return Panel(title=title, headers=headers, rows=list(rows), more=more, note=note, wide=wide)


def verbatim(title: str, text: str) -> Panel:
    """A panel with a text, with its line breaks and spaces."""
    return Panel(title=title, text=text)


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


def sent_as_line(row: Any) -> str:
    """The state of each delivery of a row with `shown_deliveries`, on one line."""
    return ", ".join(f"{each['channel']}: {each['state']}" for each in row.shown_deliveries) or "-"


def link(row: Model, text: str = "") -> SafeString:
    """A link to a row's page."""
    return link_to(change_url(row), text or str(row))


def link_to(url: str, text: Any) -> SafeString:
    """A link."""
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', url, text)


def label(state: str, text: str = "") -> SafeString:
    """A state as a coloured label with its name, or another text."""
    shown = {"text": text or state, "type": LABELS.get(state), "size": "md"}
    return mark_safe(render_to_string("unfold/helpers/label.html", shown))  # noqa: S308 - it escapes the text


@admin.display(description="session", ordering="session_id")
def session_link(row: Any) -> SafeString:
    """A column with a link to the row's session."""
    return link(row.session)


@display(description="state", label=LABELS)
def state_label(row: Any) -> str:
    """A column with the row's state as a coloured label."""
    return str(row.state)


def list_url(model: type[Model], **filters: Any) -> str:
    """The URL of a model's list with these filters."""
    meta = model._meta
    return f"{reverse(f'admin:{meta.app_label}_{meta.model_name}_changelist')}?{urlencode(filters)}"
