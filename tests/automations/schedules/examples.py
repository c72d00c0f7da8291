"""Properties as tests: with few examples, and again with many in `make test-all`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

FEW, MANY = 30, 250


def holds_for(*, few: int = FEW, many: int = MANY, **drawn: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Turn a property into a test of itself."""

    def make(check: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.full)])
        def test(examples: int) -> None:
            settings(max_examples=examples)(given(**drawn)(check))()

        test.__doc__ = check.__doc__
        return test

    return make
