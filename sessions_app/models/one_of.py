"""The lookup `one_of`, for check constraints: the column is one of a few known texts.

PostgreSQL reads the conditions of a table anew for each statement that writes it. It stores the list of `__in` as an
expression with a cast for each text, and this one as a single constant: a tenth of the time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _Lookup = models.Lookup[Any]
else:
    _Lookup = models.Lookup  # at run time Django's Lookup has no type parameters

_WORD = re.compile(r"\w+")


@models.CharField.register_lookup
class OneOf(_Lookup):
    """`column = ANY('{"a","b"}')`. ValueError for anything but single words."""

    lookup_name = "one_of"

    def get_prep_lookup(self) -> str:
        """Make the constant."""
        words = [] if isinstance(self.rhs, str) else [str(each) for each in self.rhs]
        if not words or not all(_WORD.fullmatch(word) for word in words):
            raise ValueError(f"not a list of single words: {self.rhs!r}")
        return "{" + ",".join(f'"{word}"' for word in words) + "}"  # quoted: null would be no text

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Compile the condition."""
        column, params = self.process_lhs(compiler, connection)
        return f"{column} = ANY(%s::text[])", (*params, self.rhs)
