"""The end of a run: why tests were skipped, a line for each reason, and which tests are too long for `make test`.

A plugin (`-p tests.summary`). With `--longest 5` the tests are listed that take more than five seconds and are not
marked `long` with a reason. It is a list and no failure: the same test takes twice as long on a busy machine. Fixtures
are not counted: the first test that asks for a shared server waits for its start.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

_skipped: Counter[str] = Counter()
_too_long: dict[str, float] = {}  # seconds, by test


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--longest",
        type=float,
        metavar="SECONDS",
        help="list the tests that take longer and are not marked long",
    )


class _Watch:
    """Sees the reports of all tests: in the process that hands them out, if there are several."""

    def __init__(self, longest: float | None) -> None:
        self._longest = longest

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            _skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if self._longest is None or report.when != "call" or "long" in report.keywords:
            return
        if report.duration > self._longest:
            _too_long[report.nodeid] = report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for reason, count in _skipped.most_common():
            terminalreporter.write_line(f"{count} skipped: {reason}")
        for name, seconds in _too_long.items():
            terminalreporter.write_line(
                f"{name} took {seconds:.1f} s: mark it `long` or `full`, or make it shorter"
            )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Watch(config.getoption("--longest")), "summary-watch")
