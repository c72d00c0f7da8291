"""What all pages share: who may look, instants in UTC with seconds, panels, saving through a verb."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from django import forms
from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateTimeField, Model
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html

from sessions_app.admin.look import InfinitePaginator, ModelAdmin
from sessions_app.admin.panels import Panel
from sessions_app.exceptions import BadInput, SessionsError
from sessions_app.lines import check_line

M = TypeVar("M", bound=Model)
NUL = "\x00"  # no text in PostgreSQL may hold it


def instant(value: datetime | None) -> str:
    """`2026-11-21 09:00:05`, in UTC, on one line; a dash for none."""
    if value is None:
        return "-"
    text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return format_html('<span style="white-space: nowrap">{}</span>', text)


@cache
def _column(name: str) -> Callable[[Any], str]:
    """A column that shows the instant `name`; the same object every time, as Django compares them."""

    @admin.display(description=name.replace("_", " "), ordering=name)
    def shown(row: Any) -> str:
        return instant(getattr(row, name))

    shown.__name__ = name
    return shown


class PageAdmin(ModelAdmin[M]):
    """A page of staff: every one of them sees everybody's rows; to change them takes Django's permission."""

    list_per_page = 50
    show_full_result_count = False
    list_fullwidth = True
    list_filter_submit = True
    change_form_outer_after_template = "admin/rondo/panels.html"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        return None if NUL in object_id else super().get_object(request, object_id, from_field)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        given = [*request.GET.lists(), *request.POST.lists()]
        if any(NUL in value for _name, values in given for value in values):
            return HttpResponseRedirect(f"{request.path}?e=1")  # what Django does with a bad filter
        return super().changelist_view(request, extra_context)

    def get_list_display(self, request: HttpRequest) -> Any:
        return self._timed(super().get_list_display(request))

    def get_readonly_fields(self, request: HttpRequest, obj: M | None = None) -> Any:
        return self._timed(super().get_readonly_fields(request, obj))

    def get_fieldsets(self, request: HttpRequest, obj: M | None = None) -> Any:
        found = super().get_fieldsets(request, obj)
        if obj is not None and not self.has_change_permission(request, obj):
            return [
                (title, {**options, "fields": self._timed(options["fields"])}) for title, options in found
            ]
        return found

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: M | None = None,
    ) -> HttpResponse:
        context["panels"] = [] if obj is None else list(self.panels(obj))
        return super().render_change_form(request, context, add, change, form_url, obj)

    def panels(self, obj: M) -> Iterable[Panel]:
        """What is shown below the fields of one row."""
        return ()

    def _timed(self, names: Iterable[Any]) -> list[Any]:
        """The names, with each that is an instant of the model replaced by its column."""
        return [_column(name) if isinstance(name, str) and self._is_instant(name) else name for name in names]

    def _is_instant(self, name: str) -> bool:
        try:
            return isinstance(self.opts.get_field(name), DateTimeField)
        except FieldDoesNotExist:
            return False


class ReadOnlyAdmin(PageAdmin[M]):
    """Rows that only the server writes."""

    actions: Sequence[Any] | None = ()

    def get_fields(self, request: HttpRequest, obj: M | None = None) -> Any:
        hidden = set(self.get_exclude(request, obj) or ())
        return [field.name for field in self.opts.concrete_fields if field.name not in hidden]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


class BigTable(ReadOnlyAdmin[M]):
    """Tables that grow without end: newest first by primary key, and nobody counts them."""

    paginator = InfinitePaginator
    show_facets = admin.ShowFacets.NEVER
    ordering = ["-pk"]


def one_line(name: str, text: str) -> str:
    """A name or title that a form was given. forms.ValidationError."""
    try:
        return check_line(name, text)
    except BadInput as refusal:
        raise forms.ValidationError(f"{refusal}.", code=refusal.code) from refusal


class VerbForm(ModelForm[M]):
    """A form whose data goes to a verb. The verb's refusal comes back as an error of the field it is about."""

    refusal: SessionsError | None = None
    field_of: dict[str, str] = {}  # code of a refusal → field; other refusals are the whole form's
    seen_revision = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "seen_revision" in self.fields:
            self.fields["seen_revision"].initial = getattr(self.instance, "revision", None)
        self.data = self._readable(self.data)
        self.initial = self._readable(self.initial)

    def _readable(self, given: Any) -> Any:
        """The data without keys of rows that cannot be keys: their widget asks the database for them, and fails."""
        readable = given.copy()
        for name, field in self.fields.items():
            if isinstance(field, forms.ModelChoiceField) and (key := self.add_prefix(name)) in given:
                try:
                    field.to_python(given[key])
                except forms.ValidationError:
                    readable[key] = ""
        return readable

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if self.refusal is not None:
            field = self.field_of.get(self.refusal.code)
            self.add_error(field if field in self.fields else None, str(self.refusal))
        return cleaned

    @property
    def changes(self) -> dict[str, Any]:
        """The fields a person changed, with their values."""
        return {
            name: self.cleaned_data[name]
            for name in self.changed_data
            if name in self.cleaned_data and name != "seen_revision"
        }


class VerbAdmin(PageAdmin[M]):
    """Saves through verbs: `create` and `change`.

    What a verb refuses is rolled back with the whole request; the form is then shown again with the reason.
    """

    form: type[VerbForm[M]] = VerbForm

    def create(self, request: HttpRequest, form: Any) -> M:
        """The verb that makes a row."""
        raise NotImplementedError

    def change(self, request: HttpRequest, obj: M, form: Any) -> None:
        """The verb that changes it; `form.changes` are the changed fields."""
        raise NotImplementedError

    def save_model(self, request: HttpRequest, obj: M, form: Any, change: bool) -> None:
        if change:
            self.change(request, obj, form)
        else:
            obj.pk = self.create(request, form).pk
        obj.refresh_from_db(from_queryset=self.get_queryset(request))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except SessionsError as refusal:
            request.refusal = refusal  # type: ignore[attr-defined]
            return super().changeform_view(request, object_id, form_url, extra_context)

    def get_form(
        self, request: HttpRequest, obj: M | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"refusal": getattr(request, "refusal", None)})
