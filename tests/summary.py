"""The end of a run: why tests were skipped, a line for each reason, and which tests take too long for `make test`.

A plugin (`-p tests.summary`). With `--longest 5` a run fails when a test takes more than five seconds and is not marked
`long` with a reason. Fixtures are not counted: the first test that asks for a shared server waits for its start. The
seconds are those of quiet cores of 2.5 GHz; a slower or a busier machine has more, in proportion.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from tests.yardstick import QUIET, processor_seconds, yardstick

_skipped: Counter[str] = Counter()
_too_long: dict[str, float] = {}  # seconds, by test


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--longest", type=float, metavar="SECONDS", help="fail if a test that is not marked long takes longer"
    )


class _Watch:
    """Sees the reports of all tests: in the process that hands them out, if there are several."""

    def __init__(self, longest: float | None) -> None:
        self._longest = None if longest is None else longest * max(1.0, processor_seconds(yardstick) / QUIET)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            _skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if self._longest is None or report.when != "call" or "long" in report.keywords:
            return
        if report.duration > self._longest * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)):
            _too_long[report.nodeid] = report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if _too_long and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for reason, count in _skipped.most_common():
            terminalreporter.write_line(f"{count} skipped: {reason}")
        for name, seconds in _too_long.items():
            terminalreporter.write_line(
                f"{name} took {seconds:.1f} s: make it shorter, or mark it `long` or `full`"
            )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Watch(config.getoption("--longest")), "summary-watch")
