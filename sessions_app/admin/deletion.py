"""Deleting in two steps: what is in the way is listed, and goes along only when a person says so.

Django's own pages are replaced: they would cascade under a running turn, and read every row to list it.
"""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from sessions_app.admin import above
from sessions_app.admin.base import M, PageAdmin
from sessions_app.admin.panels import page_of
from sessions_app.delete import Blocker, Deletion
from sessions_app.exceptions import NotFound, SessionsError

TEMPLATE = "admin/rondo/delete.html"
MOST_AT_ONCE = 50  # each waits for its running turn to end


@dataclass(frozen=True, kw_only=True)
class Doomed:
    """A row to delete: what it holds, what is in the way, and why it may not go at all."""

    row: Model
    holds: str
    refusal: str
    blockers: Sequence[Blocker]

    @property
    def url(self) -> str:
        return page_of(self.row)

    @property
    def in_the_way(self) -> list[tuple[Blocker, str]]:
        return [(blocker, above.page_of(blocker.id)) for blocker in self.blockers]


class TwoStepDelete(PageAdmin[M]):
    """Rows that are deleted by a verb, alone or several at once."""

    actions: Sequence[Any] | None = ("delete_chosen",)

    def holds(self, obj: M) -> str:
        """What goes along with the row, in words."""
        return ""

    def refusal(self, obj: M) -> str:
        """Why the row cannot be deleted here; empty when it can."""
        return ""

    def blockers(self, obj: M) -> Sequence[Blocker]:
        """What is in the way."""
        return ()

    def remove(self, obj: M, *, delete_automations: bool) -> Deletion:
        """The verb."""
        raise NotImplementedError

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> Any:
        # not in a transaction: the verb waits for a running turn and commits by itself
        row = self.get_object(request, unquote(object_id))
        if row is None:
            messages.error(request, f"There is no such {self.opts.verbose_name}.")
            return HttpResponseRedirect(reverse("admin:index"))
        if not self.has_delete_permission(request, row):
            raise PermissionDenied
        return self._two_steps(request, [row], {})

    @admin.action(description="Delete the selected %(verbose_name_plural)s", permissions=["delete"])
    def delete_chosen(self, request: HttpRequest, queryset: QuerySet[M]) -> HttpResponse | None:
        rows = list(queryset[: MOST_AT_ONCE + 1])
        if len(rows) > MOST_AT_ONCE:
            self.message_user(request, f"Delete at most {MOST_AT_ONCE} at once.", messages.ERROR)
            return None
        hidden = {"action": "delete_chosen", "index": request.POST.get("index", "0")}
        return self._two_steps(request, rows, hidden)

    def get_actions(self, request: HttpRequest) -> Any:
        found = super().get_actions(request)
        found.pop("delete_selected", None)
        return found

    def delete_model(self, request: HttpRequest, obj: M) -> None:
        self.remove(obj, delete_automations=False)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[M]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def _two_steps(self, request: HttpRequest, rows: list[M], hidden: dict[str, str]) -> HttpResponse:
        doomed = [self._doomed(row) for row in rows]
        if "confirmed" not in request.POST:
            return self._page(request, doomed, hidden)
        if _in_the_way(doomed) and not _agreed(request, doomed):
            return self._page(request, doomed, hidden, status=HTTPStatus.CONFLICT)
        together = request.POST.get("delete_automations") == "yes"
        gone = [row for row in rows if self._removed(request, row, together)]
        if gone:
            self.log_deletions(request, gone)  # type: ignore[arg-type]  # it only walks over them
            self.message_user(request, f"Deleted: {', '.join(str(row) for row in gone)}.", messages.SUCCESS)
        if len(gone) < len(rows) and not hidden:
            return HttpResponseRedirect(request.path)
        meta = self.opts
        return HttpResponseRedirect(reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist"))

    def _doomed(self, row: M) -> Doomed:
        return Doomed(
            row=row, holds=self.holds(row), refusal=self.refusal(row), blockers=tuple(self.blockers(row))
        )

    def _removed(self, request: HttpRequest, row: M, together: bool) -> bool:
        try:
            deletion = self.remove(row, delete_automations=together)
        except NotFound:
            return True  # somebody else was faster
        except SessionsError as refusal:
            self.message_user(request, f"{row} was not deleted: {refusal}.", messages.ERROR)
            return False
        if not deletion.deleted:
            names = ", ".join(f"{blocker.name} ({blocker.id})" for blocker in deletion.blockers)
            self.message_user(request, f"{row} was not deleted: in the way are {names}.", messages.ERROR)
        return deletion.deleted

    def _page(
        self, request: HttpRequest, doomed: list[Doomed], hidden: dict[str, str], status: int = HTTPStatus.OK
    ) -> HttpResponse:
        name = self.opts.verbose_name if len(doomed) == 1 else self.opts.verbose_name_plural
        context = {
            **self.admin_site.each_context(request),
            "title": f"Delete {name}",
            "subtitle": None,
            "opts": self.opts,
            "name": name,
            "doomed": doomed,
            "refused": any(each.refusal for each in doomed),
            "in_the_way": _in_the_way(doomed),
            "again": status == HTTPStatus.CONFLICT,
            "hidden": hidden,
            "checkbox": ACTION_CHECKBOX_NAME,
            "chosen": [each.row.pk for each in doomed] if hidden else [],
        }
        return TemplateResponse(request, TEMPLATE, context, status=status)


def _in_the_way(doomed: list[Doomed]) -> list[str]:
    return sorted(blocker.id for each in doomed for blocker in each.blockers)


def _agreed(request: HttpRequest, doomed: list[Doomed]) -> bool:
    """Whether a person agreed to lose exactly what is in the way now, not what was a moment ago."""
    shown = sorted(request.POST.getlist("shown"))
    return request.POST.get("delete_automations") == "yes" and shown == _in_the_way(doomed)
