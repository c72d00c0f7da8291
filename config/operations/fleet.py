"""The processes that run, on any machine, as they have reported themselves, and where their settings differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from config.operations.facts import BROKER, KEY, defaults, facts
from sessions_app import flags
from sessions_app.models import Process, ProcessKind
from sessions_app.operations.doctor import some_named
from sessions_app.operations.processes import Facts

# Two values of these break something; other differences are named as warnings.
MUST_AGREE = (KEY, BROKER, "TURN_SHARDS")
# a matter of each process or machine
MAY_DIFFER = frozenset(
    [
        *("DB_POOL_SIZE", "STATIC_ROOT", "TURN_QUEUES", "LOG_LEVEL", "LOG_FORMAT", "python"),
        *("RONDO_CONNECTIONS", "RONDO_CONNECTIONS_PER_ADDRESS", "RONDO_STREAMS_PER_USER"),
    ]
)
FLAGS = {each.setting for each in flags.ALL}  # shown by their own names
LONGEST_VALUE = 40  # characters of a setting in a line


@dataclass(frozen=True, kw_only=True)
class ProcessNow:
    """A process. `silent_seconds`: since its last report; `age_seconds`: since it started."""

    id: str
    kind: str
    host: str
    pid: int
    address: str
    version: str
    started_at: datetime
    age_seconds: float
    silent_seconds: float
    alive: bool
    lost_after: float
    settings: dict[str, str]

    @property
    def name(self) -> str:
        """`web app1:71`."""
        return f"{self.kind} {self.host}:{self.pid}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting that has several values. `holders`: the processes by value; a hidden value is empty."""

    name: str
    holders: dict[str, list[str]]
    is_hidden: bool

    def __str__(self) -> str:
        """One line: the value that most have comes first, then which processes have another."""
        (usual, _), *others = sorted(self.holders.items(), key=lambda item: -len(item[1]))
        if self.is_hidden:
            names = [name for _, holders in others for name in holders]
            return f"{self.name} differs: {some_named(names, len(names))}"
        odd = "; ".join(
            f"{_short(value)} in {some_named(holders, len(holders))}" for value, holders in others
        )
        return f"{self.name} is {_short(usual)}, but {odd}"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """All processes that have reported themselves, and the differences between those alive."""

    processes: list[ProcessNow]
    differences: list[Difference]
    own: list[str]  # the settings of this terminal that no process has

    def of(self, kind: ProcessKind) -> list[ProcessNow]:
        """The processes of a kind, silent ones first."""
        return sorted((each for each in self.processes if each.kind == kind), key=lambda each: each.alive)

    @property
    def silent(self) -> list[ProcessNow]:
        """Those that ended without a word and were not started again."""
        return [each for each in self.processes if not each.alive]

    @property
    def alive(self) -> list[ProcessNow]:
        """Those that have reported themselves in time."""
        return [each for each in self.processes if each.alive]

    @property
    def lost_after(self) -> float:
        """Seconds of silence after which a process is lost: as those that run have it, or this terminal."""
        own: float = settings.RONDO_WORKER_LOST_SECONDS
        return max((each.lost_after for each in self.alive), default=own)

    @property
    def versions(self) -> dict[str, list[str]]:
        """The processes that are alive, by version."""
        return _holders((each.name, each.version) for each in self.alive)

    def versions_in_words(self) -> str:
        """`0.2.0 in web app1:71; 0.1.0 in beat app2:72`."""
        return "; ".join(
            f"{version} in {some_named(names, len(names))}" for version, names in self.versions.items()
        )

    def changed_settings(self) -> list[str]:
        """`NAME=value` of each variable that a process runs with and that is not the default."""
        usual = defaults()
        found = {
            f"{name}={_short(value)}"
            for each in self.alive
            for name, value in each.settings.items()
            if name in usual and value != usual[name] and name not in FLAGS
        }
        return sorted(found)


def read_fleet() -> Fleet:
    """Read the processes from the database."""
    rows: Any = Process.objects.annotate(silent=Now() - F("seen_at"), age=Now() - F("started_at"))
    rows = list(rows.order_by("host", "kind", "started_at", "pk"))
    known = _without_replaced([_process(row) for row in rows])
    told = {each.id: each for each in known if each.alive}
    alive = {
        told[key].name: Facts(version=row.version, settings=row.settings, fingerprints=row.fingerprints)
        for row in rows
        if (key := str(row.pk)) in told
    }
    return Fleet(processes=known, differences=_differences(alive), own=_differences_of_terminal(alive))


def _process(row: Any) -> ProcessNow:
    silent = max(0.0, row.silent.total_seconds())
    return ProcessNow(
        id=str(row.pk),
        kind=row.kind,
        host=row.host,
        pid=row.pid,
        address=row.address,
        version=row.version,
        started_at=row.started_at,
        age_seconds=round(max(0.0, row.age.total_seconds()), 1),
        silent_seconds=round(silent, 1),
        alive=silent <= row.lost_after,
        lost_after=row.lost_after,
        settings=row.settings,
    )


def _without_replaced(processes: Sequence[ProcessNow]) -> list[ProcessNow]:
    """Without silent processes for which another of the kind has started on the machine since, one for one."""
    free = [each for each in processes if each.alive]
    kept = list(free)
    for each in sorted(processes, key=lambda each: each.silent_seconds):
        if each.alive:
            continue
        newer = [
            other
            for other in free
            if (other.kind, other.host) == (each.kind, each.host) and other.age_seconds < each.silent_seconds
        ]
        if newer:
            free.remove(newer[0])
        else:
            kept.append(each)
    return kept


def _differences(alive: Mapping[str, Facts]) -> list[Difference]:
    found = [
        difference
        for is_hidden in (False, True)
        for name in sorted({name for each in alive.values() for name in _values(each, is_hidden)})
        if (difference := _difference(name, alive, is_hidden)) is not None
    ]
    if any(each.name == KEY for each in found):  # every fingerprint is made with it
        found = [each for each in found if not each.is_hidden or each.name == KEY]
    return found


def _values(told: Facts, is_hidden: bool) -> dict[str, str]:
    return told.fingerprints if is_hidden else told.settings


def _difference(name: str, alive: Mapping[str, Facts], is_hidden: bool) -> Difference | None:
    """None: all that know the setting have one value for it. Another version may not know it."""
    holders = _holders(
        (process, _values(each, is_hidden)[name])
        for process, each in alive.items()
        if name in _values(each, is_hidden)
    )
    if len(holders) < 2 or name in MAY_DIFFER:
        return None
    return Difference(name=name, holders=holders, is_hidden=is_hidden)


def _holders(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for process, value in pairs:
        found.setdefault(value, []).append(process)
    return found


def _differences_of_terminal(alive: Mapping[str, Facts]) -> list[str]:
    """Names of settings for which this terminal has a value that no process has."""
    here = facts()
    return [
        name
        for is_hidden in (False, True)
        for name, value in sorted(_values(here, is_hidden).items())
        if name not in MAY_DIFFER
        and (there := {_values(each, is_hidden).get(name, value) for each in alive.values()})
        and value not in there
    ]


def _short(value: str) -> str:
    text = value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"
    return text or "empty"


@contextmanager
def limits_of(fleet: Fleet) -> Iterator[None]:
    """Judge silence by the limits of the processes that run, not by those of this terminal."""
    own = settings.RONDO_WORKER_LOST_SECONDS
    settings.RONDO_WORKER_LOST_SECONDS = fleet.lost_after
    try:
        yield
    finally:
        settings.RONDO_WORKER_LOST_SECONDS = own
