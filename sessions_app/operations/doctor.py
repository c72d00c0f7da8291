"""Checks of workers, turns, connections and deliveries, each with a cure (rule 10.2)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
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
from sessions_app.models import (
    BACKGROUND,
    Delivery,
    DeliveryState,
    Hook,
    Session,
    SessionState,
    Turn,
    TurnState,
    Worker,
)
from sessions_app.models.delivery import ON_THE_WAY
from sessions_app.models.session import WEB
from sessions_app.operations.figures import live_workers
from sessions_app.policies import policy_of
from sessions_app.postgres.direct import connect_directly
from sessions_app.queue.kinds import kind_of

STUCK = 60.0  # seconds after which something overdue is reported
WAITING = 120.0  # seconds that a turn in an idle session, or a due delivery, may wait
LONGEST_TRANSACTION = 60.0  # seconds; a longer one hinders vacuum
NAMED = 5  # things that a finding lists
MOST_RUNNING = 10_000  # running turns that are checked
MOST_ROUTES = 10_000  # sessions, and hooks, whose addresses are checked
LONGEST_KEY = 60  # characters of a session's key in a finding
_CHANNEL_CURE = "set up the channel (docs/channels.md), or give these sessions and hooks another address"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a check. `cure` is one line; every finding that is not ok has one.

    `seen` False: the check could not see whether it is ok.
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


def passed(detail: str) -> Finding:
    """A finding that is ok."""
    return Finding(ok=True, detail=detail)


def failed(detail: str, cure: str) -> Finding:
    """A finding that is not ok."""
    return Finding(ok=False, detail=detail, cure=cure)


def some_named(things: Iterable[Any], count: int) -> str:
    """`a, b and 3 more`."""
    shown = [str(thing) for thing in things][:NAMED]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def workers() -> Finding:
    """At least one worker is alive."""
    alive = len(live_workers(settings.RONDO_WORKER_LOST_SECONDS))
    if not alive:
        return failed("no worker is alive", "start `celery -A config worker`")
    return passed(f"{alive} alive")


def queues_read(queues: Sequence[str]) -> Finding:
    """Each queue is read by a worker, and no worker reads queues that this process does not know."""
    read = {queue for worker in live_workers(settings.RONDO_WORKER_LOST_SECONDS) for queue in worker}
    if unread := [queue for queue in queues if queue not in read]:
        return failed(
            f"no worker reads {', '.join(unread) if read else 'any queue'}",
            "start a worker with these queues; see TURN_QUEUES",
        )
    if unknown := sorted(read - set(queues)):
        return failed(
            f"workers read queues that do not exist here: {', '.join(unknown)}",
            "give every process the same TURN_SHARDS and restart it",
        )
    return passed("every queue is read")


def lock_connection() -> Finding:
    """DATABASE_LOCK_URL leads directly to this database: a lock taken there is visible here."""
    keys = [secrets.randbelow(2**31), secrets.randbelow(2**31)]
    cure = "set DATABASE_LOCK_URL to the direct address of the database of DATABASE_URL, without a pooler"
    try:
        with connect_directly(settings.DATABASE_LOCK_URL, "rondo doctor") as own:
            own.execute("SELECT pg_advisory_lock(%s, %s)", keys)
            seen = _holds(keys)
    except PooledConnection:
        return failed("it goes through a pooler, which breaks session locks", cure)
    except (psycopg.Error, OSError) as error:
        return failed(f"connecting failed ({type(error).__name__})", cure)
    if not seen:
        return failed("it leads to another database than DATABASE_URL", cure)
    return passed("direct, to the same database")


def _holds(keys: list[int]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database AND d.datname = current_database()"
            " WHERE locktype = 'advisory' AND granted AND (classid, objid, objsubid) = (%s, %s, 2)",
            keys,
        )
        return bool(cursor.fetchone()[0])


def stuck_turns() -> Finding:
    """No running turn is without a live worker for long."""
    lost_after = timedelta(seconds=settings.RONDO_WORKER_LOST_SECONDS + STUCK)
    alive = Worker.objects.filter(pk=OuterRef("worker"), heartbeat_at__gt=Now() - lost_after)
    left = Turn.objects.filter(state=TurnState.RUNNING, claimed_at__lt=Now() - timedelta(seconds=STUCK))
    return _turns(
        left.filter(Q(claim__isnull=True) | ~Exists(alive)),
        "running without a live worker",
        "start a worker, which resumes them; if one runs, look for sweep_failed in its log",
    )


def overlong_turns() -> Finding:
    """No turn runs longer than its policy allows; one that does hangs in its worker."""
    running = Turn.objects.filter(state=TurnState.RUNNING, claim__isnull=False).select_related(
        "session__agent"
    )
    rows: Any = running.annotate(age=Now() - F("claimed_at"))[:MOST_RUNNING]
    late = [turn.pk for turn in rows if turn.age.total_seconds() > _longest(turn)]
    if not late:
        return passed("none")
    return failed(
        f"past their time limit: {some_named(late, len(late))}",
        f"stop their worker (`{settings.RONDO_COMMAND} status` names it); others resume them",
    )


def _longest(turn: Turn) -> float:
    try:
        policy = policy_of(kind_of(turn).policy, turn.session.agent.policy, turn.metadata.get("policy", {}))
    except PolicyError:  # the turn itself will fail with it
        policy = TurnPolicy()
    return policy.timeout_seconds + settings.RONDO_TOOL_GRACE_SECONDS + STUCK


def waiting_turns() -> Finding:
    """No turn waits long in an idle session."""
    running = Turn.objects.filter(session=OuterRef("session"), state=TurnState.RUNNING)
    of_owner = Turn.objects.filter(share_of=OuterRef("share_of"), state=TurnState.RUNNING)
    queued = Turn.objects.filter(state=TurnState.QUEUED, host__isnull=True)
    since = Now() - timedelta(seconds=WAITING)
    return _turns(
        queued.alias(since=Greatest("queued_at", "due_at"))
        .filter(~Exists(running), since__lt=since)
        .exclude(session__state=SessionState.DELETING)
        # other turns wait for their owner's account, or for the owner's other turns
        .filter(~Exists(of_owner), session__owner__is_active=True),
        f"waiting for over {WAITING:.0f} s in idle sessions",
        "start more workers, or give them more threads (-c)",
    )


def _turns(rows: QuerySet[Turn], what: str, cure: str) -> Finding:
    count = rows.count()
    if not count:
        return passed("none")
    ids = rows.order_by("pk").values_list("pk", flat=True)[:NAMED]
    return failed(f"{what}: {some_named(ids, count)}", cure)


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
    """No transaction is open for long: it would hold row locks, and hinder vacuum in all tables."""
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        row = cursor.fetchone()
    if row is None or row[1] <= LONGEST_TRANSACTION:
        return passed("none is long")
    name, age, cure = row
    return failed(f"open for {age:.0f} s ({name})", f"end it: {cure}")


def channels_served() -> Finding:
    """Each channel and address of sessions and hooks is available."""
    sessions = Session.objects.filter(state=SessionState.OPEN).exclude(type__in=BACKGROUND)
    unknown = sessions.exclude(channel__in=[WEB, *channels.known()]).order_by()
    counts = dict(unknown.values_list("channel").annotate(n=Count("id")).order_by("channel"))
    if counts:
        missing = some_named((f"{name} ({n} sessions)" for name, n in counts.items()), len(counts))
        return failed(f"channels that are not set up: {missing}", _CHANNEL_CURE)
    if unserved := list(islice(_unserved_routes(sessions), NAMED + 1)):
        more = " and more" * (len(unserved) > NAMED)
        return failed(f"{'; '.join(unserved[:NAMED])}{more}", _CHANNEL_CURE)
    return passed(f"set up: {', '.join(sorted(channels.known())) or 'none'}")


def _unserved_routes(sessions: QuerySet[Session]) -> Iterator[str]:
    """Sessions and hooks to which nothing can be sent, with the reason. Only the newest are checked."""
    columns = ("key", "last_route", "channel", "chat_id", "channel_meta")
    away = sessions.exclude(channel=WEB, last_route__isnull=True).order_by("-created_at").only(*columns)
    for session in away[:MOST_ROUTES].iterator():
        if reason := channels.why_unserved(session.standing_route):
            yield f"session {session.key[:LONGEST_KEY]}: {reason}"
    for hook in Hook.objects.filter(enabled=True).exclude(channel="").order_by("-created_at")[:MOST_ROUTES]:
        if reason := channels.why_unserved({"channel": hook.channel, "chat_id": hook.address}):
            yield f"hook {hook.pk}: {reason}"


def deliveries_sent() -> Finding:
    """No due delivery waits for long, and none has failed."""
    before = Delivery.objects.filter(
        session=OuterRef("session"), channel=OuterRef("channel"), id__lt=OuterRef("id"), state__in=ON_THE_WAY
    )
    heads = Delivery.objects.filter(~Exists(before), state__in=ON_THE_WAY)
    heads = heads.exclude(session__owner__is_active=False)
    due = Coalesce("next_attempt_at", "created_at")
    late = heads.alias(due=due).filter(due__lt=Now() - timedelta(seconds=WAITING))
    if count := late.count():
        return failed(
            f"{count} due and not sent",
            "start a worker; if one runs, look for dispatcher_failed in its log",
        )
    dead = Delivery.objects.filter(state=DeliveryState.FAILED)
    if not (count := dead.count()):
        return passed("all are sent, or under way")
    ids = dead.order_by("-pk").values_list("pk", flat=True)[:NAMED]
    return failed(
        f"failed: {some_named(ids, count)}",
        "see the reason in the admin (Deliveries); send them again or discard them there",
    )
