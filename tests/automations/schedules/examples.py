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


WEEKDAYS = st.lists(
    st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"]), min_size=1, max_size=5, unique=True
)
DAYS_OF_MONTH = st.lists(st.integers(-28, 28).filter(bool), min_size=1, max_size=3).map(
    lambda days: ",".join(map(str, days))
)
SOME_DAYS = {  # what a rule of each frequency names, so that it matches in each of some years
    "DAILY": st.sampled_from(["", ";BYMONTH=3,10", ";BYDAY=SU,MO", ";BYMONTHDAY=1,-1"]),
    "WEEKLY": st.sampled_from(["", ";WKST=SU"]).flatmap(
        lambda wkst: WEEKDAYS.map(lambda days: f";BYDAY={','.join(days)}{wkst}")
    ),
    "MONTHLY": DAYS_OF_MONTH.map(lambda days: f";BYMONTHDAY={days}")
    | st.tuples(WEEKDAYS, st.sampled_from([1, 2, -1])).map(
        lambda drawn: f";BYDAY={','.join(drawn[0])};BYSETPOS={drawn[1]}"
    )
    | st.sampled_from(["", ";BYDAY=-1FR", ";BYDAY=1SU,3SU"]),
    "YEARLY": st.sampled_from(
        [
            "",
            ";BYMONTH=3,10;BYDAY=-1SU",
            ";BYYEARDAY=1,100,-1",
            ";BYWEEKNO=1,13,52;BYDAY=SU",
            ";BYDAY=20MO",
            ";BYMONTH=2;BYMONTHDAY=29",
        ]
    ),
}
TIMES_OF_DAY = st.sampled_from(["", ";BYHOUR=2", ";BYHOUR=0,2,3;BYMINUTE=0,30", ";BYHOUR=1,23;BYMINUTE=15"])
ENDS = st.sampled_from(["", "", ";COUNT=9", ";COUNT=100", ";UNTIL=20300101", ";UNTIL=20280305T023000"])


@st.composite
def rules(draw: st.DrawFn) -> str:
    """A recurrence rule. Positions are drawn with one time of day."""
    freq = draw(st.sampled_from(sorted(SOME_DAYS)))
    days = draw(SOME_DAYS[freq])
    times = "" if "BYSETPOS" in days else draw(TIMES_OF_DAY)
    return f"FREQ={freq};INTERVAL={draw(st.integers(1, 4))}{days}{times}{draw(ENDS)}"
