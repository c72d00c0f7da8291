"""Compare a run with an earlier one that was kept as the baseline."""

from __future__ import annotations

from benchmarks.report import Figure, Run, number

WORSE = 0.10


def compare(now: Run, then: Run) -> list[str]:
    """A line for each figure that got worse.

    A count got worse with any change for the worse. Anything else got worse by more than a tenth: a time or rate in
    operations of the machine's floor, a ratio or size as it is. Figures of only one of the runs are left out.
    """
    before = {figure.name: figure for figure in then.figures}
    pairs = ((figure, before[figure.name]) for figure in now.figures if figure.name in before)
    return [line for figure, earlier in pairs if (line := _worse(figure, earlier, now, then))]


def missing(now: Run, then: Run) -> list[str]:
    """The names of the baseline's figures that this run does not have."""
    return sorted({figure.name for figure in then.figures} - {figure.name for figure in now.figures})


def _worse(figure: Figure, earlier: Figure, now: Run, then: Run) -> str:
    cost, was = _cost(figure, now), _cost(earlier, then)
    grown = cost / was - 1 if was else float(cost > 0)
    if grown <= (0 if figure.count else WORSE):
        return ""
    values = f"{number(earlier.value)} to {number(figure.value)} {figure.unit}".strip()
    ons = earlier.on(then.floor), figure.on(now.floor)
    on_floor = f", {number(ons[0])} to {number(ons[1])} {figure.floor}" if ons[0] and ons[1] else ""
    return f"{figure.name}: {grown:.0%} worse ({values}{on_floor})"


def _cost(figure: Figure, run: Run) -> float:
    """What grows when the figure gets worse."""
    on_floor = figure.on(run.floor)
    if on_floor is not None:
        return on_floor
    if not figure.rises:
        return figure.value
    return 1 / figure.value if figure.value else float("inf")
