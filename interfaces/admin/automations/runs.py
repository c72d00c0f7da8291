"""The admin pages of runs: outcome, prompt, diagnostics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.contrib import admin
from django.db.models import OuterRef, QuerySet
from django.http import HttpRequest

from automations.models import CronJob, RunRecord
from automations.runs.describe import CANCELLED, FAILED, GAPS
from interfaces.admin.automations.explanation import in_words
from interfaces.admin.big_table import BigTable, TimeRange, ValueFilter, end_of_range
from interfaces.admin.panels import Panel, as_json, link, sent_as_line, state_label, verbatim
from interfaces.admin.unfold import AutocompleteSelectFilter
from sessions_app.reads.selectors import with_deliveries

MOST_JOBS = 20  # automations whose name has what is searched for


class ReasonFilter(ValueFilter):
    title, parameter_name = "reason", "reason__exact"

    def values(self) -> Iterable[str]:
        return sorted({*GAPS, *CANCELLED, *FAILED})


@admin.register(RunRecord)
class RunRecordAdmin(BigTable[RunRecord]):
    list_display = [
        "scheduled_for", "of_what", "agent", state_label, "delivered", "reason", "attempt", "lag_ms", "duration_ms",
        "answer", "finished_at",
    ]  # fmt: skip
    list_select_related = ["job", "job__agent", "scheduled_message__session__agent"]
    list_filter = [
        "state", ReasonFilter, ("job__agent", AutocompleteSelectFilter), ("created_at", TimeRange),
        ("not_before", admin.EmptyFieldListFilter),
    ]  # fmt: skip
    bounded_by, read_by_index = "created_at", ("job__id__exact", "session__id__exact", "not_before__isempty")
    search_fields = [
        "=run_id", "=job__id", "=scheduled_message__id", "=session__id", "=session__key", "=session_key", "job__name",
    ]  # fmt: skip
    search_help_text = (
        "Run id, automation or message id, session id or key, or a part of the automation's name"
    )
    ordering = ["-created_at", "-run_id"]
    exclude = ["rendered_prompt", "prompt_variables", "error_detail", "snapshot"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RunRecord]:
        sent = with_deliveries("message__turn_id", OuterRef("turn_id"))
        rows = super().get_queryset(request).annotate(shown_deliveries=sent)
        if request.resolver_match and str(request.resolver_match.url_name).endswith("_changelist"):
            return rows.defer("rendered_prompt", "prompt_variables", "error_detail", "snapshot")
        return rows

    def newest(self, request: HttpRequest) -> QuerySet[RunRecord]:
        end = end_of_range(request.GET, "created_at_to")
        return RunRecord.objects.filter(created_at__lte=end) if end else RunRecord.objects.all()

    def with_parts(
        self,
        queryset: QuerySet[RunRecord],
        names: Sequence[str],  # noqa: ARG002 - only the automation's name
        term: str,
    ) -> QuerySet[RunRecord]:
        # the jobs first: a join would compare the name of each run's job
        jobs = CronJob.objects.order_by()
        for word in term.split():
            jobs = jobs.filter(name__icontains=word)
        return queryset.filter(job__in=list(jobs.values_list("pk", flat=True)[:MOST_JOBS]))

    @admin.display(description="automation or message")
    def of_what(self, obj: RunRecord) -> str:
        if obj.scheduled_message is not None:
            return link(obj.scheduled_message, f"message {obj.scheduled_message}")
        return link(obj.of_job)

    @admin.display(description="agent")
    def agent(self, obj: RunRecord) -> str:
        if obj.scheduled_message is not None:
            return str(obj.scheduled_message.session.agent)
        return str(obj.of_job.agent)

    @admin.display(description="delivery")
    def delivered(self, obj: RunRecord) -> str:
        return sent_as_line(obj)

    @admin.display(description="answer or error")
    def answer(self, obj: RunRecord) -> str:
        return (obj.error or obj.response_summary)[:80] or "-"

    def lead(self, obj: RunRecord) -> Iterable[Panel]:
        yield verbatim("What happened", in_words(obj))
        if obj.error_detail:
            yield verbatim("Error, for operators", obj.error_detail)

    def panels(self, obj: RunRecord) -> Iterable[Panel]:
        yield verbatim("Rendered prompt", obj.rendered_prompt)
        yield verbatim("Prompt variables", as_json(obj.prompt_variables))
        yield verbatim("What was run", as_json(obj.snapshot))
