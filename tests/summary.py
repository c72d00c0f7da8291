"""The end of a run: why tests were skipped, a line for each reason, and which tests are too long for `make test`.

A plugin (`-p tests.summary`). With `--longest 5` the tests are listed that take more than five seconds and are not
marked `long` with a reason. Three times as long ends the run with a failure, on the scale of this machine: beside other
work the same test takes twice its time. Fixtures are not counted: the first test that asks for a shared server waits
for its start.
"""

from collections import Counter
from typing import Any

import pytest

from tests.yardstick import processor_seconds, yardstick

USUAL = 0.025  # seconds of the yardstick on the machine whose seconds are meant
FAR_TOO_LONG = 3
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
        for name, seconds in sorted(_too_long.items(), key=lambda each: each[1]):
            terminalreporter.write_line(
                f"{name} took {seconds:.1f} s: mark it `long` or `full`, or make it shorter"
            )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._longest is None or not _too_long:
            return
        slowness = max(1.0, min(processor_seconds(yardstick) for _ in range(3)) / USUAL)
        if max(_too_long.values()) > FAR_TOO_LONG * self._longest * slowness:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Watch(config.getoption("--longest")), "summary-watch")
