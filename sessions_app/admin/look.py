"""Unfold's classes, in one place. Unfold comes without types: to the type checker they are Django's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unfold.contrib.filters.admin import AutocompleteSelectFilter  # type: ignore[import-untyped]
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
    from django.contrib.admin import ModelAdmin, TabularInline
else:
    from unfold.admin import ModelAdmin, TabularInline

# For fields that a form declares itself; those of a model get them from the page.
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
    "Select",
    "TabularInline",
    "TextInput",
    "UserChangeForm",
    "UserCreationForm",
]
