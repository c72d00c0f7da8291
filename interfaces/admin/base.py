"""Base classes of the admin pages: permissions, lists, panels, and saving through the functions of the API."""

# ruff: noqa: ARG002 -- the signatures are Django's

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import django_stubs_ext
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.admin.views.main import ORDER_VAR, ChangeList
from django.core.exceptions import FieldDoesNotExist, ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db.models import Model, Q, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.text import capfirst
from unfold.paginator import InfinitePaginator

from interfaces.admin.panels import Panel, as_json
from sessions_app.exceptions import BadInput, SessionsError
from sessions_app.single_line import check_line

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
else:  # Unfold has no type annotations
    from unfold.admin import ModelAdmin

django_stubs_ext.monkeypatch()  # makes ModelAdmin[Session] possible at run time

M = TypeVar("M", bound=Model)
NUL = "\x00"  # PostgreSQL cannot store it in a text
MOST_RELATED = 20  # related rows with the value that is searched for


class RowList(ChangeList):
    """The list of an admin page. It ignores a sort order in the address if the list cannot be sorted by its columns."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        if not self.sortable_by:
            self.params.pop(ORDER_VAR, None)
        return super().get_ordering(request, queryset)


class PageAdmin(ModelAdmin[M]):
    """The pages of a model. All staff may view all rows; changes need Django's permission.

    A search compares the term with each `=…` field in turn, since an OR over two tables would read both. If nothing
    is found, it looks for the words in the other fields. Rows are not counted.
    """

    is_open_to_staff = True  # otherwise viewing also needs Django's permission
    list_per_page = 50
    show_full_result_count = False
    paginator = InfinitePaginator
    show_facets = admin.ShowFacets.NEVER
    list_fullwidth = True
    list_filter_submit = True
    change_form_outer_before_template = "admin/rondo/lead.html"
    change_form_outer_after_template = "admin/rondo/panels.html"

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        if self.is_open_to_staff:
            return bool(request.user.is_active and request.user.is_staff)
        return super().has_view_permission(request, obj)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether the person may take actions on rows, also on those without a form."""
        return admin.ModelAdmin.has_change_permission(self, request)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        return None if NUL in object_id else super().get_object(request, object_id, from_field)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return RowList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        given = [*request.GET.lists(), *request.POST.lists()]
        if any(NUL in value for _name, values in given for value in values):
            return HttpResponseRedirect(f"{request.path}?e=1")  # as Django does for an invalid filter
        # Django ignores an action that the person may not take
        if set(request.POST.getlist("action")) - {""} - self.get_actions(request).keys():
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow lookups by the list's filters and related rows only: another column could reveal a secret."""
        return self._is_filter(lookup, request) and super().lookup_allowed(lookup, value, request)

    def _is_filter(self, lookup: str, request: HttpRequest) -> bool:
        offered = [each[0] if isinstance(each, tuple) else each for each in self.get_list_filter(request)]
        names = [getattr(each, "parameter_name", each) for each in offered] + [self.date_hierarchy]
        if any(lookup == name or lookup.startswith(f"{name}__") for name in names if name):
            return True
        name = lookup.partition("__")[0]
        try:
            field = self.opts.get_field(self.opts.pk.name if name == "pk" else name)
        except FieldDoesNotExist:
            return True  # Django rejects it itself
        # not reverse relations: their rows may have a secret as key, as tokens do
        return bool(field.is_relation and field.concrete)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[M], search_term: str
    ) -> tuple[QuerySet[M], bool]:
        term = search_term.strip()
        names = self.get_search_fields(request)
        loose = [name for name in names if not name.startswith("=")]
        if not term or len(loose) == len(names):
            return super().get_search_results(request, queryset, search_term)
        for name in names:
            if name.startswith("="):
                try:
                    found = queryset.filter(self._condition(name[1:], term))
                except (ValidationError, ValueError):  # it cannot be an id
                    continue
                if found.order_by().exists():
                    return found, False
        if _is_uuid(term):  # an id is no part of a text, and looking for it would read the whole table
            return queryset.none(), False
        for word in term.split():
            conditions: list[Any] = [(f"{name}__icontains", word) for name in loose]
            queryset = queryset.filter(Q.create(conditions, connector=Q.OR)) if loose else queryset.none()
        return queryset, False

    def _condition(self, name: str, term: str) -> tuple[str, Any]:
        """A field that has this value. Related rows are read first, since a join would read along the list's order."""
        relation, _, column = name.rpartition("__")
        if not relation:
            return name, term
        related: Any = get_fields_from_path(self.model, relation)[-1].related_model
        keys: QuerySet[Any, Any] = QuerySet(related).filter((column, term)).values_list("pk", flat=True)
        return f"{relation}__in", list(keys[:MOST_RELATED])

    def get_action_choices(
        self, request: HttpRequest, default_choices: Any = None, **location: Any
    ) -> list[tuple[str, str]]:
        """Return what Unfold's method returns, with the parameters that Django has since 6.1."""
        chosen = default_choices or [("", "Select action")]
        return admin.ModelAdmin.get_action_choices(self, request, chosen, **location)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs.get("obj")
        shown = [] if obj is None else list(self.panels(obj))
        context["lead"] = [panel for panel in shown if panel.leads]
        context["panels"] = [panel for panel in shown if not panel.leads]
        return super().render_change_form(request, context, *args, **kwargs)

    def panels(self, obj: M) -> Iterable[Panel]:
        """The panels above and below the fields of a row."""
        return ()

    def for_each(
        self, request: HttpRequest, queryset: QuerySet[M], act: Callable[[Any], object], done: str = ""
    ) -> None:
        """Call `act` with each row, and show `done`, or else what it says it did; or why it refused."""
        kind = capfirst(self.opts.verbose_name)
        for row in queryset.order_by("pk"):
            name = f"{kind} {row.pk}"
            try:
                did = act(row)
            except (SessionsError, ObjectDoesNotExist) as refusal:
                text = str(refusal).rstrip(".")
                self.message_user(request, f"{name}: {text}.", messages.WARNING)
            else:
                self.message_user(request, f"{name} {done or did}.", messages.SUCCESS)


def row_action(name: str, description: str, act: Callable[[Any], object], done: str = "") -> Any:
    """An action of a list that calls `act` with each selected row. `done`: what it did, unless `act` returns that."""

    @admin.action(description=description, permissions=["operate"])
    def action(page: PageAdmin[Any], request: HttpRequest, queryset: QuerySet[Any]) -> None:
        page.for_each(request, queryset, act, done)

    action.__name__ = name
    return action


class ReadOnlyAdmin(PageAdmin[M]):
    """Rows that only the server changes, newest first."""

    actions: Sequence[Any] | None = ()
    sortable_by = ()  # no index has the other orders
    ordering = ["-pk"]
    # fields with long texts or JSON, which are shown as panels, with their titles
    panel_fields: Mapping[str, str] = {}

    def get_fields(self, request: HttpRequest, obj: M | None = None) -> Any:
        if self.fields:
            return self.fields
        hidden = {*(self.get_exclude(request, obj) or ()), *self.panel_fields}
        return [field.name for field in self.opts.concrete_fields if field.name not in hidden]

    def panels(self, obj: M) -> Iterable[Panel]:
        for name, title in self.panel_fields.items():
            value = getattr(obj, name)
            if value not in (None, ""):
                yield Panel(title=title, text=value if isinstance(value, str) else as_json(value))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


def value_filter(field: str, values: Callable[[], Iterable[str]]) -> type[admin.SimpleListFilter]:
    """A filter by values that the code knows. Django would read the whole table to find them."""

    class ValueFilter(admin.SimpleListFilter):
        title, parameter_name = field.replace("_", " "), f"{field}__exact"

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(value, value) for value in values()]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset.filter((self.parameter_name, self.value())) if self.value() else queryset

    return ValueFilter


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
        names = [name for name in self.changed_data if name != "seen_revision" and name in self.cleaned_data]
        return {name: self.cleaned_data[name] for name in names}


class VerbAdmin(PageAdmin[M]):
    """Saves through the verbs `create` and `change`.

    When a verb refuses, the whole request is rolled back, and the form is shown again with the reason.
    """

    form: type[VerbForm[M]] = VerbForm
    fixed: Sequence[str] = ()  # fields that are given once, when the row is made
    editable: Sequence[str] = ()
    form_only: Sequence[str] = ("seen_revision",)  # fields of the form that are no columns
    facts: Sequence[str] = ()  # read-only

    def get_fields(self, request: HttpRequest, obj: M | None = None) -> Any:
        if obj is None:
            return [*self.fixed, *self.editable, *self.form_only]
        form_only = self.form_only if self.has_change_permission(request, obj) else ()
        return [*self.fixed, *self.editable, *form_only, *self.facts]

    def get_readonly_fields(self, request: HttpRequest, obj: M | None = None) -> Any:
        return [] if obj is None else [*self.fixed, *self.facts]

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


def _is_uuid(term: str) -> bool:
    try:
        uuid.UUID(term)
    except ValueError:
        return False
    return True
