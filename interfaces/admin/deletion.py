"""Deletion in two steps: automations that block it are listed, and deleted only after a confirmation.

This replaces Django's pages, which would cascade under a running turn, and read all dependent rows to list them.
"""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from automations.models import CronJob, ExecutionMode
from interfaces.admin.base import M, PageAdmin
from interfaces.admin.panels import change_url
from sessions_app.exceptions import NotFound, SessionsError
from sessions_app.sessions.delete import Blocker, Deletion

TEMPLATE = "admin/rondo/delete.html"
MOST_AT_ONCE = 50  # each waits for its running turn to end


def jobs_of(agent_ids: Collection[int]) -> tuple[Blocker, ...]:
    """Jobs bound to sessions of these agents, and their routines: they block the agents' deletion."""
    bound = Q(session__isnull=False) | ~Q(execution_mode=ExecutionMode.SESSION)
    jobs = CronJob.objects.filter(bound, agent_id__in=agent_ids).order_by("created_at", "id")
    return tuple(Blocker(id=job.pk, name=job.name, enabled=job.enabled) for job in jobs)


class TwoStepDelete(PageAdmin[M]):
    """Rows that `remove` deletes, one or several at once."""

    actions: Sequence[Any] | None = ("delete_selected",)  # in place of Django's action of this name

    def also_deleted(self, obj: M) -> str:
        """Say in a sentence what else is deleted with the row."""
        return ""

    def refusal(self, obj: M) -> str:
        """Why the row cannot be deleted here; empty when it can."""
        return ""

    def blockers(self, obj: M) -> Sequence[Blocker]:
        """The automations that block the deletion."""
        return ()

    def remove(self, obj: M, *, with_dependents: bool) -> Deletion:
        """Delete the row, with its blockers if `with_dependents`."""
        raise NotImplementedError

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> Any:
        # no transaction: `remove` waits for a running turn and commits by itself
        row = self.get_object(request, unquote(object_id))
        if row is None:
            messages.error(request, f"This {self.opts.verbose_name} does not exist.")
            return HttpResponseRedirect(reverse("admin:index"))
        if not self.has_delete_permission(request, row):
            raise PermissionDenied
        return self._two_steps(request, [row], {})

    @admin.action(description="Delete the selected %(verbose_name_plural)s", permissions=["delete"])
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[M]) -> HttpResponse | None:
        rows = list(queryset[: MOST_AT_ONCE + 1])
        if len(rows) > MOST_AT_ONCE:
            self.message_user(request, f"Delete at most {MOST_AT_ONCE} at once.", messages.ERROR)
            return None
        if not all(self.has_delete_permission(request, row) for row in rows):
            raise PermissionDenied
        hidden = {"action": "delete_selected", "index": request.POST.get("index", "0")}
        return self._two_steps(request, rows, hidden)

    def _two_steps(self, request: HttpRequest, rows: list[M], hidden: dict[str, str]) -> HttpResponse:
        chosen = [self._shown(row) for row in rows]
        blocker_ids = sorted(blocker.id for each in chosen for blocker, _url in each["blockers"])
        if "confirmed" not in request.POST:
            return self._page(request, chosen, blocker_ids, hidden)
        with_dependents = request.POST.get("delete_automations") == "yes"
        # the person must have seen exactly those that block now
        agreed = with_dependents and sorted(request.POST.getlist("shown")) == blocker_ids
        if blocker_ids and not agreed:
            return self._page(request, chosen, blocker_ids, hidden, status=HTTPStatus.CONFLICT)
        deleted = [row for row in rows if self._try_remove(request, row, with_dependents)]
        if deleted:
            self.log_deletions(request, deleted)  # type: ignore[arg-type]  # it only iterates over them
            names = ", ".join(str(row) for row in deleted)
            self.message_user(request, f"Deleted: {names}.", messages.SUCCESS)
        if len(deleted) < len(rows) and not hidden:
            return HttpResponseRedirect(request.path)
        meta = self.opts
        return HttpResponseRedirect(reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist"))

    def _shown(self, row: M) -> dict[str, Any]:
        blockers = [
            (each, reverse("admin:automations_cronjob_change", args=[each.id])) for each in self.blockers(row)
        ]
        return {
            "row": row,
            "url": change_url(row),
            "also_deleted": self.also_deleted(row),
            "refusal": self.refusal(row),
            "blockers": blockers,
        }

    def _try_remove(self, request: HttpRequest, row: M, with_dependents: bool) -> bool:
        try:
            deletion = self.remove(row, with_dependents=with_dependents)
        except NotFound:
            return True  # somebody else deleted it meanwhile
        except SessionsError as refusal:
            self.message_user(request, f"{row} was not deleted: {refusal}.", messages.ERROR)
            return False
        if not deletion.deleted:
            names = ", ".join(f"{blocker.name} ({blocker.id})" for blocker in deletion.blockers)
            text = f"{row} was not deleted. These automations block it: {names}."
            self.message_user(request, text, messages.ERROR)
        if deletion.moved_ids:
            text = f"These routines now report to the primary session: {', '.join(deletion.moved_ids)}."
            self.message_user(request, text, messages.INFO)
        return deletion.deleted

    def _page(
        self,
        request: HttpRequest,
        rows: list[dict[str, Any]],
        blocker_ids: list[str],
        hidden: dict[str, str],
        status: int = HTTPStatus.OK,
    ) -> HttpResponse:
        name = self.opts.verbose_name if len(rows) == 1 else self.opts.verbose_name_plural
        context = {
            **self.admin_site.each_context(request),
            "title": f"Delete {name}",
            "subtitle": None,
            "opts": self.opts,
            "name": name,
            "rows": rows,
            "refused": any(each["refusal"] for each in rows),
            "blocker_ids": blocker_ids,
            "again": status == HTTPStatus.CONFLICT,
            "hidden": hidden,
            "checkbox": ACTION_CHECKBOX_NAME,
            "chosen": [each["row"].pk for each in rows] if hidden else [],
        }
        return TemplateResponse(request, TEMPLATE, context, status=status)
