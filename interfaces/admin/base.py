"""Base classes of the admin pages: permissions, times in UTC, panels, and saving through the functions of the API."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import FieldDoesNotExist, ObjectDoesNotExist, PermissionDenied
from django.db.models import DateTimeField, Model, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.text import capfirst

from interfaces.admin.panels import Panel
from interfaces.admin.unfold import ModelAdmin
from sessions_app.exceptions import BadInput, SessionsError
from sessions_app.single_line import check_line

M = TypeVar("M", bound=Model)
NUL = "\x00"  # PostgreSQL cannot store it in a text


def instant(value: datetime | None) -> str:
    """`2026-11-21 09:00:05`, in UTC, on one line; a dash for none."""
    if value is None:
        return "-"
    text = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return format_html('<span style="white-space: nowrap">{}</span>', text)


@cache
def _column(name: str) -> Callable[[Any], str]:
    """A column with the time in field `name`. Cached, since Django compares columns by identity."""

    @admin.display(description=name.replace("_", " "), ordering=name)
    def shown(row: Any) -> str:
        return instant(getattr(row, name))

    shown.__name__ = name
    return shown


class GuardedAdmin(ModelAdmin[M]):
    """Rejects actions that a person may not take, and filters by columns that the list does not offer.

    Django would ignore the first, and allow the second: filtering by the beginning of a secret reveals it bit by bit.
    """

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        given = [*request.GET.lists(), *request.POST.lists()]
        if any(NUL in value for _name, values in given for value in values):
            return HttpResponseRedirect(f"{request.path}?e=1")  # as Django does for an invalid filter
        if set(request.POST.getlist("action")) - {""} - self.get_actions(request).keys():
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        return self._is_filter(lookup, request) and super().lookup_allowed(lookup, value, request)

    def _is_filter(self, lookup: str, request: HttpRequest) -> bool:
        offered = [each[0] if isinstance(each, tuple) else each for each in self.get_list_filter(request)]
        offered = [getattr(each, "parameter_name", each) for each in offered]
        if self.date_hierarchy:
            offered.append(self.date_hierarchy)
        if any(lookup == name or lookup.startswith(f"{name}__") for name in offered if isinstance(name, str)):
            return True
        name = lookup.partition("__")[0]
        try:
            field = self.opts.get_field(self.opts.pk.name if name == "pk" else name)
        except FieldDoesNotExist:
            return True  # Django rejects it itself
        # not reverse relations: their rows may have a secret as key, as tokens do
        return bool(field.is_relation and field.concrete)


class PageAdmin(GuardedAdmin[M]):
    """All staff may view all rows; changes need Django's permission."""

    list_per_page = 50
    show_full_result_count = False
    list_fullwidth = True
    list_filter_submit = True
    change_form_outer_before_template = "admin/rondo/lead.html"
    change_form_outer_after_template = "admin/rondo/panels.html"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        return None if NUL in object_id else super().get_object(request, object_id, from_field)

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
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        context["lead"] = [] if obj is None else list(self.lead(obj))
        context["panels"] = [] if obj is None else list(self.panels(obj))
        return super().render_change_form(request, context, *args, **kwargs)

    def lead(self, obj: M) -> Iterable[Panel]:
        """The panels above the fields of a row."""
        return ()

    def panels(self, obj: M) -> Iterable[Panel]:
        """The panels below the fields of a row."""
        return ()

    def for_each(self, request: HttpRequest, queryset: QuerySet[M], act: Callable[[Any], str]) -> None:
        """Call `act` with the key of each row, and show what it says it did, or why it refused."""
        kind = capfirst(self.opts.verbose_name)
        for pk in queryset.order_by("pk").values_list("pk", flat=True):
            try:
                done = act(pk)
            except (SessionsError, ObjectDoesNotExist) as refusal:
                self.message_user(request, f"{kind} {pk}: {refusal}.", messages.WARNING)
            else:
                self.message_user(request, f"{kind} {pk} {done}.", messages.SUCCESS)

    def _timed(self, names: Iterable[Any]) -> list[Any]:
        """The names, with those of time fields replaced by columns that show UTC."""
        return [_column(name) if isinstance(name, str) and self._is_instant(name) else name for name in names]

    def _is_instant(self, name: str) -> bool:
        try:
            return isinstance(self.opts.get_field(name), DateTimeField)
        except FieldDoesNotExist:
            return False


class ReadOnlyAdmin(PageAdmin[M]):
    """Rows that only the server changes."""

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


def clean_line(name: str, text: str) -> str:
    """Validate a name or title in a form. forms.ValidationError."""
    try:
        return check_line(name, text)
    except BadInput as refusal:
        raise forms.ValidationError(f"{refusal}.", code=refusal.code) from refusal


class VerbForm(ModelForm[M]):
    """A form that is saved through a verb, a function that the API also uses.

    A refusal of the verb is shown at the field that it is about.
    """

    refusal: SessionsError | None = None
    field_of: dict[str, str] = {}  # code of a refusal → field; others are shown above the form
    seen_revision = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "seen_revision" in self.fields:
            self.fields["seen_revision"].initial = getattr(self.instance, "revision", None)
        self.data = self._without_bad_keys(self.data)
        self.initial = self._without_bad_keys(self.initial)

    def _without_bad_keys(self, given: Any) -> Any:
        """The data without invalid keys of related rows, with which the widgets' queries would fail."""
        cleaned = given.copy()
        for name, field in self.fields.items():
            if isinstance(field, forms.ModelChoiceField) and (key := self.add_prefix(name)) in given:
                try:
                    field.to_python(given[key])
                except forms.ValidationError:
                    cleaned[key] = ""
        return cleaned

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if self.refusal is not None:
            field = self.field_of.get(self.refusal.code)
            self.add_error(field if field in self.fields else None, str(self.refusal))
        return cleaned

    @property
    def changes(self) -> dict[str, Any]:
        """The changed fields with their values."""
        return {
            name: self.cleaned_data[name]
            for name in self.changed_data
            if name in self.cleaned_data and name != "seen_revision"
        }


class VerbAdmin(PageAdmin[M]):
    """Saves through the verbs `create` and `change`.

    When a verb refuses, the whole request is rolled back, and the form is shown again with the reason.
    """

    form: type[VerbForm[M]] = VerbForm

    def create(self, request: HttpRequest, form: Any) -> M:
        """Create a row."""
        raise NotImplementedError

    def change(self, request: HttpRequest, obj: M, form: Any) -> None:
        """Change a row; `form.changes` are the changed fields."""
        raise NotImplementedError

    def save_model(self, request: HttpRequest, obj: M, form: Any, change: bool) -> None:
        if change:
            self.change(request, obj, form)
        else:
            obj.pk = self.create(request, form).pk
        obj.refresh_from_db(from_queryset=self.get_queryset(request))

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().changeform_view(request, *args, **kwargs)
        except SessionsError as refusal:
            request.refusal = refusal  # type: ignore[attr-defined]
            return super().changeform_view(request, *args, **kwargs)

    def get_form(
        self, request: HttpRequest, obj: M | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"refusal": getattr(request, "refusal", None)})
