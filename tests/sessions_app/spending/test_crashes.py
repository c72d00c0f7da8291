"""No cap of any kind is exceeded, and no cost is lost, while the processes that call are killed (rule 11.1)."""

import json
import os
import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from automations.models import CronJob
from sessions_app.agents import budgets
from sessions_app.models import Agent, Connection, MailboxEvent, Reservation, Spending, UserLimits
from sessions_app.spending.caps import PERIODS, RUN, micro_of
from tests import warm
from tests.conftest import new_person
from tests.fleet import until, usual_environ
from tests.races import UPDATE, backends_that, gate, waiting
from tests.sessions_app.spending import spender

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    pytest.mark.rule("11.1"),
]

SCOPES = ("agent", "automation", "routine", "connection", "user")
KINDS = tuple(product(SCOPES, PERIODS, ("tokens", "usd")))
PLENTY = {"tokens": 10**9, "usd": "1000.00"}
OTHER_POINTS = (spender.BEFORE, spender.SETTLED, "reserving", "settling")
DEAREST = 500  # more than one call reserves, in tokens and in micro-dollars


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Whose turn it is, all under wide caps but for one, and the key of that one's account, up to its period."""

    ids: tuple[int, str, int]
    key: str
    cap: dict[str, Any]


def subject(name: str, kind: tuple[str, str, str], cap: dict[str, Any]) -> Subject:
    scope, period, _ = kind
    wide = dict.fromkeys(PERIODS, PLENTY)

    def limits(of: str) -> dict[str, Any]:
        return wide | ({period: PLENTY | cap} if of == scope else {})

    job_scope = scope if scope == "routine" else "automation"
    person = new_person(name)
    user, agent = person.user, person.agent
    Agent.objects.filter(pk=agent.pk).update(limits=limits("agent"))
    job = CronJob.objects.create(
        agent=agent,
        name="report",
        execution_mode="isolated" if job_scope == "routine" else "session",
        schedule_kind="every",
        every_seconds=3600,
        anchor=datetime.now(UTC),
        limits=limits(job_scope),
    )
    prices = {"*": {"input": "1", "output": "2"}}
    row = Connection.objects.create(
        owner=user, name="work", provider="openai-chat", limits=limits("connection"), prices=prices
    )
    UserLimits.objects.create(user=user, limits=limits("user"))
    keys = {"agent": agent.pk, "connection": row.pk, "user": user.pk}
    stored_as = "automation" if scope == "routine" else scope
    return Subject(
        ids=(agent.pk, job.pk, row.pk), key=f"{stored_as}:{keys.get(scope, job.pk)}:{period}:", cap=cap
    )


def start(log: Path, **plan: Any) -> warm.Child:
    usual = {"seed": 1, "calls": 1, "skip": 0, "deaths": 0, "halt": ""}
    command = [spender.__name__, str(log), json.dumps(usual | plan)]
    return warm.start(command, os.environ, usual_environ(), log.with_suffix(".out"))


@pytest.fixture(scope="module", autouse=True)
def _is_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The apps are loaded once, in the process that the others are forked from."""
    assert start(tmp_path_factory.mktemp("spenders") / "none.log", kinds=[]).wait(60) == 0


def logged(folder: Path) -> dict[int, tuple[int, int]]:
    """What the models of each kind's calls were really paid: tokens and micro-dollars."""
    found: dict[int, tuple[int, int]] = {}
    for log in folder.glob("*.log"):
        for line in log.read_text().splitlines():
            if line.startswith("used"):
                kind, tokens, micro = map(int, line.split()[1:])
                before = found.get(kind, (0, 0))
                found[kind] = (before[0] + tokens, before[1] + micro)
    return found


def settled() -> None:
    """The sweep has counted what the dead have reserved."""
    while budgets.settle_abandoned():
        pass
    assert not Reservation.objects.exists()
    assert not Spending.objects.exclude(reserved_tokens=0, reserved_micro_usd=0).exists()


def kill_at(point: str, child: warm.Child, pipe: Path) -> None:
    """Kill a worker that halts there, or before there and is held up in its statement."""
    row = Spending.objects.order_by("key").first()
    assert row is not None
    with pipe.open("w") as at_point, gate(row, UPDATE):  # it reads to the end of the pipe
        if point not in spender.POINTS:
            at_point.close()
            until(waiting, 20, "it waits for the row")
        child.kill()
        child.wait(20)
    active = "pid <> pg_backend_pid() AND state = 'active' AND query LIKE '%rondo_%'"
    until(lambda: not backends_that(active), 20, "the statement has ended")


@pytest.mark.parametrize(
    "point",
    [
        *(spender.RESERVED, spender.ANSWERED),
        *(pytest.param(each, marks=pytest.mark.full) for each in OTHER_POINTS),
    ],
)
def test_a_worker_that_is_killed_loses_no_cost(tmp_path: Path, point: str) -> None:
    """All caps of a turn are charged alike: what was used if that was settled, else what was reserved."""
    ids = [subject("ada", KINDS[0], {}).ids]
    assert start(tmp_path / "before.log", kinds=ids).wait(20) == 0
    [(before, _)] = Spending.objects.values_list("spent_tokens", "spent_micro_usd").distinct()
    [(used_before, _)] = logged(tmp_path).values()
    assert before == used_before > 0
    log = tmp_path / "killed.log"
    pipe = log.with_suffix(".pipe")
    os.mkfifo(pipe)
    halt = {"reserving": spender.BEFORE, "settling": spender.ANSWERED}.get(point, point)
    kill_at(point, start(log, kinds=ids, halt=halt, seed=2), pipe)
    used = logged(tmp_path)[0][0] - used_before
    left = sum(Reservation.objects.values_list("tokens", flat=True))
    assert (left > 0) >= (point in (spender.RESERVED, spender.ANSWERED))
    settled()
    [(spent, _)] = Spending.objects.values_list("spent_tokens", "spent_micro_usd").distinct()
    assert spent - before == (left or (used if point in (spender.SETTLED, "settling") else 0)) >= used
    assert Spending.objects.count() == 4 * len(PERIODS)


def work(folder: Path, workers: int, subjects: list[Subject], **plan: Any) -> None:
    """Let this many workers make calls; one that died is followed by another, which makes its further calls."""
    kinds, logs = [each.ids for each in subjects], [folder / f"{number}.log" for number in range(workers)]
    begun: dict[Path, int] = dict.fromkeys(logs, 0)
    running = {log: start(log, kinds=kinds, seed=seed, **plan) for seed, log in enumerate(logs)}
    while running:
        ended = until(lambda: [each for each in running.items() if each[1].poll() is not None], 60)
        assert_within(subjects)
        for log, child in ended:
            del running[log]
            if child.poll() != 0:
                assert child.poll() == -signal.SIGKILL, log.with_suffix(".out").read_text()
                begun[log] = log.read_text().count("begun")
                running[log] = start(log, kinds=kinds, seed=logs.index(log), skip=begun[log], **plan)


def assert_within(subjects: list[Subject]) -> None:
    sums = {row.key: row for row in Spending.objects.all()}
    for each in subjects:
        for row in (sums[key] for key in sums if key.startswith(each.key)):
            for name, most in each.cap.items():
                spent = row.spent_tokens + row.reserved_tokens
                micro = row.spent_micro_usd + row.reserved_micro_usd
                assert (spent if name == "tokens" else micro) <= (
                    most if name == "tokens" else micro_of(most) or 0
                )


@pytest.mark.parametrize(
    ("kinds", "workers", "calls"),
    [
        pytest.param(KINDS[::7], 4, 4, id="each scope, period and unit"),
        pytest.param(KINDS, 20, 17, marks=[pytest.mark.full, pytest.mark.timeout(500)], id="10,200 calls"),
    ],
)
def test_no_cap_of_any_kind_is_exceeded_while_workers_die(
    tmp_path: Path, kinds: tuple[tuple[str, str, str], ...], workers: int, calls: int
) -> None:
    """Of each kind one cap is narrow. A last worker, who does not die, uses up what is left of it."""
    most = 2 * DEAREST + 50 * workers * calls
    amounts: dict[str, Any] = {"tokens": most, "usd": f"{most / 1e6:.6f}"}
    subjects = [subject(f"u{number}", kind, {kind[2]: amounts[kind[2]]}) for number, kind in enumerate(kinds)]
    work(tmp_path, workers, subjects, calls=calls, deaths=0.1)
    settled()
    (tmp_path / "last").mkdir()
    work(tmp_path / "last", 1, subjects, calls=calls + 8)
    used = [logged(tmp_path), logged(tmp_path / "last")]
    for number, (kind, each) in enumerate(zip(kinds, subjects, strict=True)):
        row = Spending.objects.get(key__startswith=each.key)
        spent = row.spent_tokens, row.spent_micro_usd
        assert most - DEAREST < spent[kind[2] == "usd"] <= most, kind
        for index in (0, 1):
            assert 0 < sum(by_kind.get(number, (0, 0))[index] for by_kind in used) <= spent[index], kind
    reached = MailboxEvent.objects.filter(event_type="budget_reached").values_list("target__agent", flat=True)
    assert sorted(reached) == sorted(
        each.ids[0] for each, kind in zip(subjects, kinds, strict=True) if kind[1] != RUN
    )
