"""The classes of Unfold. It has no type annotations: the type checker sees Django's classes instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django_stubs_ext
from unfold.contrib.filters.admin import (  # type: ignore[import-untyped]
    AutocompleteSelectFilter,
    RangeDateTimeFilter,
)
from unfold.forms import (  # type: ignore[import-untyped]
    AdminPasswordChangeForm,
    UserChangeForm,
    UserCreationForm,
)
from unfold.paginator import InfinitePaginator  # type: ignore[import-untyped]
from unfold.widgets import (  # type: ignore[import-untyped]
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from django.contrib.admin import ModelAdmin, TabularInline

    F = TypeVar("F", bound=Callable[..., Any])

    def display(*, description: str, label: dict[str, str]) -> Callable[[F], F]:
        """A column with coloured labels: the colour of each value."""
else:
    from unfold.admin import ModelAdmin as UnfoldModelAdmin
    from unfold.admin import TabularInline
    from unfold.decorators import display

    class ModelAdmin(UnfoldModelAdmin):
        """Unfold's class, with a `get_action_choices` that has the parameters of every Django."""

        def get_action_choices(self, request, default_choices=None, action_location=None):
            """Pairs of a name and a label for a list or, since Django 6.1, another `action_location`."""
            location = {} if action_location is None else {"action_location": action_location}
            choices = default_choices or [("", "Select action")]
            return super(UnfoldModelAdmin, self).get_action_choices(request, choices, **location)


# Makes ModelAdmin[Session] possible at run time.
django_stubs_ext.monkeypatch()

# For form fields that are declared by hand; fields of a model get their widgets from the page.
TextInput, NumberInput, Select = (
    UnfoldAdminTextInputWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
)

__all__ = [
    "AdminPasswordChangeForm",
    "AutocompleteSelectFilter",
    "InfinitePaginator",
    "ModelAdmin",
    "NumberInput",
    "RangeDateTimeFilter",
    "Select",
    "TabularInline",
    "TextInput",
    "UserChangeForm",
    "UserCreationForm",
    "display",
]
