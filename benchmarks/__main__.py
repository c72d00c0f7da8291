"""`python -m benchmarks [names] [--quick]`: run benchmarks and print all figures with their targets.

If one fails, its error is printed in one line, the others run all the same, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks.check import compare, missing
from benchmarks.floor import between, drift, measure
from benchmarks.plots import write_plots
from benchmarks.report import Figure, Run, floor_line, machine, one_line, read_run, table
from benchmarks.servers import Servers, servers
from benchmarks.sizes import FULL, QUICK, TINY, Sizes

NAMES = (
    *("throughput", "latency", "fairness", "statements", "requests", "firing", "ticks", "scale"),
    *("waiting", "memory", "mailbox", "streams", "held", "heartbeats", "pages", "growth"),
)


def main() -> int:
    """Run the benchmarks. Exit code 1: one of them failed, or a figure got worse than the baseline.

    A missed target changes nothing: the targets are not tests.
    """
    given = _arguments()
    sizes = _sizes(given)
    with servers() as running:
        _configure(running)
        version = _prepare()
        before: dict[str, float] = {}
        after: dict[str, float] = {}
        failures = attempt("floor", lambda: before.update(_measure_floor(running, sizes)))
        figures, more = run_each(given.names or NAMES, lambda name: _run(name, running, sizes), _clean)
        failures += more + attempt("floor", lambda: after.update(_measure_floor(running, sizes)))
        floor = between(before, after)
        now = Run(machine=machine(version), sizes=sizes.name, floor=floor, figures=figures)
        _close()
    changed = f"the floor changed by up to {drift(before, after):.0%} during the run"
    print(f"\n{now.machine}\n{floor_line(floor)}; {changed}\n\n{table(figures, floor)}")
    if given.json:
        now.write(given.json)
    if given.plots:
        write_plots(given.plots, figures)
    worse = _compare(now, given.check) if given.check else []
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures or worse else 0


def run_each(
    names: Iterable[str], run: Callable[[str], list[Figure]], clean: Callable[[], None]
) -> tuple[list[Figure], list[str]]:
    """Run each benchmark and clean up after it. Returns the figures, and a line for each that failed."""
    figures: list[Figure] = []
    failures: list[str] = []
    for name in names:
        failures += attempt(name, lambda name=name: figures.extend(run(name)))  # type: ignore[misc]
        failures += attempt(f"{name}, cleaning up", clean)
    return figures, failures


def attempt(name: str, work: Callable[[], None]) -> list[str]:
    """Do the work. Returns a line that says what failed, if it did."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever it is, the others' figures are wanted
        _progress(name)(f"FAILED: {one_line(error)}")
        return [f"{name}: {one_line(error)}"]
    return []


def _compare(now: Run, then: Run) -> list[str]:
    """Print what got worse than in the baseline, and return it."""
    worse = compare(now, then)
    print(f"\nCompared with the baseline of {then.machine}; {floor_line(then.floor)}")
    print("\n".join(f"WORSE {line}" for line in worse) or "Nothing got worse by more than a tenth.")
    if absent := missing(now, then):
        print(f"Not in this run: {', '.join(absent)}")
    return worse


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, three rounds")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # for the tests
    parser.add_argument("--concurrency", type=int, metavar="N", help="threads of a worker process")
    parser.add_argument(
        "--workers",
        type=_numbers,
        metavar="N[,N…]",
        help="worker processes of `throughput`; `1,2,4` compares these numbers of processes",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="also draw the main figures there, as SVG"
    )
    parser.add_argument(
        "--check",
        type=_baseline,
        metavar="FILE",
        help="name the figures that got worse than in this file of --json",
    )
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(NAMES)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    if given.check and given.check.sizes != _sizes(given).name:
        parser.error(f"the baseline has {given.check.sizes} sizes, this run would have {_sizes(given).name}")
    return given


def _baseline(text: str) -> Run:
    try:
        return read_run(Path(text))
    except (OSError, ValueError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"not a file of --json: {one_line(error)}") from None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _sizes(given: argparse.Namespace) -> Sizes:
    sizes = TINY if given.tiny else QUICK if given.quick else FULL
    chosen = {name: value for name in ("concurrency", "workers") if (value := getattr(given, name))}
    return replace(sizes, **chosen)


def _configure(running: Servers) -> None:
    os.environ |= {
        "DATABASE_URL": running.database_url,
        "DATABASE_LOCK_URL": running.database_url,
        "CELERY_BROKER_URL": running.broker_url,
        "SECRET_KEY": "only-for-benchmarks",
        "HTTPS": "0",
        "RONDO_PLUGINS": "benchmarks.plugin",
        "PGAPPNAME": "bench",
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    os.environ.setdefault("LOG_LEVEL", "WARNING")


def _prepare() -> str:
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    _progress("migrate")("…")
    call_command("migrate", interactive=False, verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0])


def _measure_floor(running: Servers, sizes: Sizes) -> dict[str, float]:
    found = measure(running, sizes)
    _progress("floor")(floor_line(found).partition(" ")[2])
    return found


def _run(name: str, running: Servers, sizes: Sizes) -> list[Figure]:
    say = _progress(name)
    say("…")
    began = time.monotonic()
    figures: list[Figure] = import_module(f"benchmarks.{name}").run(running, sizes, say)
    say(f"took {time.monotonic() - began:.0f} s")
    return figures


def _clean() -> None:
    """Drop hints and rows. A benchmark that failed may have left a broken connection."""
    from django.db import connection

    from benchmarks import data, fleet

    connection.close()
    fleet.purge()
    data.clear()


def _close() -> None:
    from django.db import connection

    from sessions_app import hints
    from sessions_app.postgres import notify

    hints.flush_hints(5.0)
    notify.publisher().flush(5.0)
    notify.publisher().close()
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]


def _progress(name: str) -> Callable[[str], None]:
    def say(text: str) -> None:
        sys.stderr.write(f"{name}: {text}\n")
        sys.stderr.flush()

    return say


if __name__ == "__main__":
    sys.exit(main())
