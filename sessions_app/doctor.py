"""What can be wrong with workers, turns and connections, each with its cure (rule 10.2). For operators."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Greatest, Now

from agent_core.exceptions import PolicyError
from agent_core.policy import TurnPolicy
from sessions_app.channels import base as channels
from sessions_app.exceptions import PooledConnection
from sessions_app.kinds import kind_of
from sessions_app.lock import connect_directly
from sessions_app.models import (
    BACKGROUND,
    Delivery,
    DeliveryState,
    Session,
    SessionState,
    Turn,
    TurnState,
    Worker,
)
from sessions_app.models.delivery import ON_THE_WAY
from sessions_app.operator_reads import live_workers

STUCK = 60.0  # seconds past the moment at which somebody should have acted
WAITING = 120.0  # seconds that a turn waits while nothing of its session runs
LONGEST_TRANSACTION = 60.0  # seconds; an older one keeps vacuum from its work
NAMED = 5  # things that a finding names one by one
MOST_RUNNING = 10_000  # turns whose time is looked at


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found. `cure` is one line, and there whenever it is not well.

    `seen` False: nothing is wrong, and nothing shows that it is well.
    """

    ok: bool
    detail: str
    cure: str = ""
    seen: bool = True

    @property
    def state(self) -> str:
        """`ok`, `wrong` or `unknown`."""
        return "wrong" if not self.ok else "ok" if self.seen else "unknown"

    @property
    def words(self) -> str:
        """The detail and the cure on one line."""
        return f"{self.detail}; {self.cure}" if self.cure else self.detail


Check = Callable[[], Finding]


def named(things: Iterable[Any], count: int) -> str:
    """`a, b and 3 more`."""
    shown = [str(thing) for thing in things][:NAMED]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def workers() -> Finding:
    """Somebody runs turns."""
    alive = len(live_workers(settings.RONDO_WORKER_LOST_SECONDS))
    if not alive:
        return Finding(
            ok=False, detail="no worker gives a sign of life", cure="start `celery -A config worker`"
        )
    return Finding(ok=True, detail=f"{alive} alive")


def queues_read(queues: Sequence[str]) -> Finding:
    """Each queue has a reader, and each worker knows the same queues as this process."""
    read = {queue for worker in live_workers(settings.RONDO_WORKER_LOST_SECONDS) for queue in worker}
    if deaf := [queue for queue in queues if queue not in read]:
        return Finding(
            ok=False,
            detail=f"nobody reads {', '.join(deaf) if read else 'any queue'}",
            cure="start a worker that does; see TURN_QUEUES",
        )
    if strange := sorted(read - set(queues)):
        return Finding(
            ok=False,
            detail=f"workers read queues that are not known here: {', '.join(strange)}",
            cure="give every process the same TURN_SHARDS and restart it",
        )
    return Finding(ok=True, detail="every queue is read")


def lock_connection() -> Finding:
    """DATABASE_LOCK_URL leads to this database itself: a lock taken there is seen here."""
    keys = [secrets.randbelow(2**31), secrets.randbelow(2**31)]
    cure = "set DATABASE_LOCK_URL to the direct address of the database of DATABASE_URL, without a pooler"
    try:
        with connect_directly(settings.DATABASE_LOCK_URL, application_name="rondo doctor") as own:
            own.execute("SELECT pg_advisory_lock(%s, %s)", keys)
            seen = _holds(keys)
    except PooledConnection:
        return Finding(ok=False, detail="locks go through a pooler, where they do not hold", cure=cure)
    except (psycopg.Error, OSError) as error:
        return Finding(ok=False, detail=f"it cannot be made ({type(error).__name__})", cure=cure)
    if not seen:
        return Finding(ok=False, detail="it leads to another database than DATABASE_URL", cure=cure)
    return Finding(ok=True, detail="direct, to the same database")


def _holds(keys: list[int]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database AND d.datname = current_database()"
            " WHERE locktype = 'advisory' AND granted AND (classid, objid, objsubid) = (%s, %s, 2)",
            keys,
        )
        return bool(cursor.fetchone()[0])


def stuck_turns() -> Finding:
    """No begun turn is left lying: handed back or its worker gone, and nobody took it up again."""
    gone = timedelta(seconds=settings.RONDO_WORKER_LOST_SECONDS + STUCK)
    alive = Worker.objects.filter(pk=OuterRef("worker"), heartbeat_at__gt=Now() - gone)
    left = Turn.objects.filter(state=TurnState.RUNNING, claimed_at__lt=Now() - timedelta(seconds=STUCK))
    return _turns(
        left.filter(Q(claim__isnull=True) | ~Exists(alive)),
        "begun, and run by nobody",
        "start a worker, which takes them up; when one runs, look for sweep_failed in its log",
    )


def overlong_turns() -> Finding:
    """No turn runs longer than its policy lets it: its worker hangs."""
    running = Turn.objects.filter(state=TurnState.RUNNING, claim__isnull=False).select_related(
        "session__agent"
    )
    rows: Any = running.annotate(age=Now() - F("claimed_at"))[:MOST_RUNNING]
    late = [turn.pk for turn in rows if turn.age.total_seconds() > _longest(turn)]
    if not late:
        return Finding(ok=True, detail="none")
    return Finding(
        ok=False,
        detail=f"past their time limit: {named(late, len(late))}",
        cure="stop their worker (`manage.py status` names it); others take them up",
    )


def _longest(turn: Turn) -> float:
    try:
        policy = TurnPolicy().merged(
            kind_of(turn).policy, turn.session.agent.policy, turn.metadata.get("policy", {})
        )
    except PolicyError:  # the turn will fail with it
        policy = TurnPolicy()
    return policy.timeout_seconds + settings.RONDO_TOOL_GRACE_SECONDS + STUCK


def waiting_turns() -> Finding:
    """No turn waits long in a session where nothing runs."""
    running = Turn.objects.filter(session=OuterRef("session"), state=TurnState.RUNNING)
    queued = Turn.objects.filter(state=TurnState.QUEUED, host__isnull=True)
    since = Now() - timedelta(seconds=WAITING)
    return _turns(
        queued.alias(since=Greatest("queued_at", "due_at"))
        .filter(~Exists(running), since__lt=since)
        .exclude(session__state=SessionState.DELETING),
        f"waiting for over {WAITING:.0f} s while their sessions are idle",
        "start more workers, or give them more threads (-c)",
    )


def _turns(rows: QuerySet[Turn], what: str, cure: str) -> Finding:
    count = rows.count()
    if not count:
        return Finding(ok=True, detail="none")
    ids = rows.order_by("pk").values_list("pk", flat=True)[:NAMED]
    return Finding(ok=False, detail=f"{what}: {named(ids, count)}", cure=cure)


_OLDEST = """
SELECT name, age, cure FROM (
  SELECT coalesce(nullif(application_name, ''), 'a client') || ', ' || state AS name,
    extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age,
    'SELECT pg_terminate_backend(' || pid || ')' AS cure
  FROM pg_stat_activity
  WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
  UNION ALL
  SELECT 'prepared', extract(epoch FROM clock_timestamp() - prepared)::float8,
    'ROLLBACK PREPARED ' || quote_literal(gid)
  FROM pg_prepared_xacts WHERE database = current_database()
) AS open WHERE age IS NOT NULL ORDER BY age DESC LIMIT 1"""


def oldest_transaction() -> Finding:
    """No transaction is open for long: it would hold rows, and keep vacuum from all tables."""
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        row = cursor.fetchone()
    if row is None or row[1] <= LONGEST_TRANSACTION:
        return Finding(ok=True, detail="none is old")
    name, age, cure = row
    return Finding(ok=False, detail=f"open for {age:.0f} s ({name})", cure=f"end it: {cure}")


def channels_served() -> Finding:
    """Something here sends to each channel that sessions answer on."""
    sessions = Session.objects.filter(state=SessionState.OPEN).exclude(type__in=BACKGROUND)
    unknown = sessions.exclude(channel__in=[channels.WEB, *channels.known()]).order_by()
    counts = dict(unknown.values_list("channel").annotate(n=Count("id")).order_by("channel"))
    if not counts:
        return Finding(ok=True, detail=f"here are {', '.join(sorted(channels.known())) or 'none'}")
    return Finding(
        ok=False,
        detail=f"nothing here sends to {named((f'{name} ({n} sessions)' for name, n in counts.items()), len(counts))}",
        cure="set what the channel needs (docs/channels.md), or open these sessions on another one",
    )


def deliveries() -> Finding:
    """What left a session arrives: nobody waits for a sender, and there are no dead letters."""
    before = Delivery.objects.filter(
        session=OuterRef("session"), channel=OuterRef("channel"), id__lt=OuterRef("id"), state__in=ON_THE_WAY
    )
    heads = Delivery.objects.filter(~Exists(before), state__in=ON_THE_WAY)
    due = Coalesce("next_attempt_at", "created_at")
    late = heads.alias(due=due).filter(due__lt=Now() - timedelta(seconds=WAITING))
    if count := late.count():
        return Finding(
            ok=False,
            detail=f"{count} wait for a sender",
            cure="start a worker; when one runs, look for postman_failed in its log",
        )
    dead = Delivery.objects.filter(state=DeliveryState.FAILED)
    if not (count := dead.count()):
        return Finding(ok=True, detail="all are sent, or on the way")
    ids = dead.order_by("-pk").values_list("pk", flat=True)[:NAMED]
    return Finding(
        ok=False,
        detail=f"given up: {named(ids, count)}",
        cure="see why in the admin (Deliveries), and send them again or close them there",
    )
