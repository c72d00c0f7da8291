"""`python -m benchmarks [names] [--quick]`: run benchmarks and print all figures with their targets."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks.report import Figure, machine, table, write_json
from benchmarks.servers import Servers, servers
from benchmarks.sizes import FULL, QUICK, TINY, Sizes

NAMES = (
    *("throughput", "latency", "statements", "requests", "firing", "ticks", "scale"),
    *("waiting", "mailbox", "streams", "held", "heartbeats"),
)


def main() -> int:
    """Run the benchmarks. The exit code is 0 even if a target is missed: they are not tests."""
    given = _arguments()
    sizes = _sizes(given)
    with servers() as running:
        _configure(running)
        version = _prepare()
        figures: list[Figure] = []
        for name in given.names or NAMES:
            figures += _run(name, running, sizes)
        about = machine(version)
        _close()
    print(f"\n{about}\n\n{table(figures)}")
    if given.json:
        write_json(given.json, about, figures)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, one round: under a minute")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # for the tests
    parser.add_argument("--concurrency", type=int, metavar="N", help="threads of a worker process")
    parser.add_argument(
        "--workers",
        type=_numbers,
        metavar="N[,N…]",
        help="worker processes of `throughput`; `1,2,4` compares these numbers of processes",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(NAMES)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    return given


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
        "DJANGO_SETTINGS_MODULE": "config.settings",
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


def _run(name: str, running: Servers, sizes: Sizes) -> list[Figure]:
    from benchmarks import data, fleet

    say = _progress(name)
    say("…")
    began = time.monotonic()
    module = import_module(f"benchmarks.{name}")
    figures: list[Figure] = module.run(running, sizes, say)
    say(f"took {time.monotonic() - began:.0f} s")
    fleet.purge()
    data.clear()
    return figures


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
