"""The sizes of the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Counts. Compared cases alternate for `rounds` rounds, and figures are their medians."""

    name: str = "full"
    rounds: int = 5
    noops: int = 1_000
    floor_seconds: float = 1.0
    sessions: int = 100
    messages: int = 10
    workers: tuple[int, ...] = (1,)  # processes; more than one number: compare them
    concurrency: int = 16
    arrival_seconds: float = 20.0  # of messages at half load
    queued: int = 1_000  # turns of one session
    queued_each: int = 100  # turns of each session, where there are many
    probes: int = 40
    counted_turns: int = 10
    jobs: tuple[int, ...] = (1_000, 100_000, 1_000_000)
    due: tuple[int, ...] = (1, 100, 1_000)
    fire_rounds: int = 5
    late_seconds: float = 12.0  # in which slots are fired in real time
    schedules: tuple[int, ...] = (1_000, 10_000, 50_000)
    ticks_due: tuple[int, ...] = (1, 100)
    idle_ticks: int = 20
    backlog: int = 30_000
    claims: int = 300
    history: int = 100_000
    contexts: int = 100
    waiting: int = 500
    deposits: int = 2_000
    depositors: int = 20
    mailboxes: int = 50
    subscribers: int = 200
    held: int = 2_000  # open streams
    asked: int = 300
    owned: int = 10_000  # sessions of one user
    marks: int = 50
    answers: int = 40  # that are watched in a browser
    messages_shown: int = 3_000  # of the conversation that is opened there
    pixels: int = 45_000  # that it is scrolled, in both directions
    heartbeats: int = 10_000
    heartbeat_ticks: int = 3_600  # parts of an hour that are fired one by one
    heartbeat_seconds: float = 120.0
    recurring: int = 1_000  # slots of one automation
    settle_seconds: float = 2.0


FULL = Sizes()
QUICK = Sizes(
    name="quick",
    rounds=3,
    sessions=100,
    messages=5,
    arrival_seconds=5.0,
    probes=20,
    jobs=(1_000, 100_000),
    fire_rounds=3,
    late_seconds=5.0,
    schedules=(1_000, 10_000),
    backlog=10_000,
    claims=100,
    history=20_000,
    contexts=40,
    waiting=200,
    held=500,
    asked=100,
    owned=2_000,
    deposits=1_000,
    mailboxes=20,
    marks=20,
    heartbeats=1_000,
    heartbeat_ticks=360,
    heartbeat_seconds=20.0,
    recurring=200,
)
TINY = Sizes(
    name="tiny",
    noops=50,
    floor_seconds=0.05,
    rounds=1,
    sessions=5,
    messages=2,
    arrival_seconds=0.2,
    queued=150,
    queued_each=50,
    probes=2,
    counted_turns=2,
    jobs=(20, 40),
    due=(1, 5, 10),
    fire_rounds=1,
    late_seconds=0.1,
    schedules=(20,),
    ticks_due=(1, 5),
    idle_ticks=2,
    backlog=50,
    claims=4,
    history=300,
    contexts=3,
    waiting=10,
    deposits=40,
    depositors=4,
    mailboxes=4,
    subscribers=6,
    held=6,
    asked=5,
    owned=30,
    marks=3,
    answers=2,
    messages_shown=120,
    pixels=500,
    heartbeats=6,
    heartbeat_ticks=3,
    heartbeat_seconds=1.0,
    recurring=12,
    settle_seconds=0.2,
)
