"""Checks of workers, turns, connections, channels, bots and deliveries, each with a cure (rule 10.2)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from django.db.models import CharField, Count, Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Cast, Coalesce, Greatest, Now

from agent_core.connections import PROVIDERS
from agent_core.exceptions import PolicyError
from agent_core.policy import TurnPolicy
from config.operations.findings import NAMED, Finding, failed, failed_if_any, passed, some_named, unknown
from config.operations.status import read_processes
from sessions_app.channels import base as channels
from sessions_app.connections.usable import usable
from sessions_app.exceptions import PooledConnection
from sessions_app.limits import owners
from sessions_app.limits.policies import policy_of
from sessions_app.models import (
    BACKGROUND,
    Connection,
    Delivery,
    DeliveryState,
    Hook,
    Session,
    SessionState,
    TelegramBot,
    TelegramChat,
    Turn,
    TurnState,
    Worker,
)
from sessions_app.models.delivery import ON_THE_WAY
from sessions_app.models.session import WEB
from sessions_app.operations.figures import live_workers
from sessions_app.postgres.connection import connect_directly
from sessions_app.queue.kinds import kind_of

STUCK = 60.0  # seconds after which something overdue is reported
WAITING = 120.0  # seconds that a turn in an idle session, or a due delivery, may wait
LONGEST_TRANSACTION = 60.0  # seconds; a longer one hinders vacuum
MOST_RUNNING = 10_000  # running turns that are checked
MOST_CONNECTIONS = 10_000
NEW_BOT = timedelta(minutes=2)  # that a bot may wait for a worker
MOST_ROUTES = 10_000  # sessions, and hooks, whose addresses are checked
LONGEST_KEY = 60  # characters of a session's key in a finding
_UNREAD = "no worker has read them yet; does one run, with the extra 'telegram'?"
_CHANNEL_CURE = "set up the channel (docs/channels.md), or give these sessions and hooks another address"


def processes() -> Finding:
    """No process has fallen silent without another in its place, and all run one version."""
    known = read_processes()
    if silent := [f"{each} for {each.silent_seconds:.0f} s" for each in known if not each.alive]:
        cure = (
            "look at its machine and start it again; a process that is gone for good is forgotten after a day"
        )
        return failed(f"silent: {some_named(silent, len(silent))}", cure)
    if len(versions := sorted({each.version for each in known})) > 1:
        cure = "finish the upgrade: restart the processes of the older version, which `status` shows"
        return unknown(f"several versions run: {', '.join(versions)}", cure)
    return passed(f"{len(known)} run {versions[0]}" if known else "none has reported itself")


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
    cure = f"stop their worker (`{settings.RONDO_COMMAND} status` names it); others resume them"
    return failed_if_any("past their time limit", late, len(late), cure)


def _longest(turn: Turn) -> float:
    try:
        policy = policy_of(kind_of(turn).policy, turn.session.agent.policy, turn.input.policy)
    except PolicyError:  # the turn itself will fail with it
        policy = TurnPolicy()
    return policy.timeout_seconds + settings.RONDO_TOOL_GRACE_SECONDS + STUCK


def waiting_turns() -> Finding:
    """No turn waits long in an idle session."""
    running = Turn.objects.filter(session=OuterRef("session"), state=TurnState.RUNNING)
    queued = Turn.objects.filter(state=TurnState.QUEUED, host__isnull=True)
    since = Now() - timedelta(seconds=WAITING)
    return _turns(
        queued.alias(since=Greatest("queued_at", "due_at"))
        .filter(~Exists(running), since__lt=since)
        .exclude(session__state=SessionState.DELETING)
        # other turns wait for their owner's account, or for the owner's other turns
        .filter(~owners.waits_for_own_turns(), session__owner__is_active=True),
        f"waiting for over {WAITING:.0f} s in idle sessions",
        "start more workers, or give them more threads (-c)",
    )


def _turns(rows: QuerySet[Turn], what: str, cure: str) -> Finding:
    return failed_if_any(what, rows.order_by("pk").values_list("pk", flat=True)[:NAMED], rows.count(), cure)


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


def bots_read() -> Finding:
    """The updates of each bot that is on can be read, and each session of Telegram has a connected chat."""
    bots = TelegramBot.objects.filter(enabled=True, agent__owner__is_active=True)
    unread = Q(state_since=None, created_at__lt=Now() - NEW_BOT)
    wrong = bots.filter(~Q(last_error="") | unread).order_by("username")
    if count := wrong.count():
        named = some_named((f"@{bot.username}: {bot.last_error or _UNREAD}" for bot in wrong[:NAMED]), count)
        return failed(
            f"bots whose messages are not read: {named}",
            "see docs/channels.md#agents-on-telegram, or switch these bots off",
        )
    lost = _unconnected()
    if count := lost.count():
        named = some_named((session.key[:60] for session in lost[:NAMED]), count)
        cure = "connect the chats on the pages of their agents, or delete these sessions"
        return failed(f"sessions whose chat is not connected: {named}", cure)
    return passed(f"{bots.count()} bots")


def _unconnected() -> QuerySet[Session]:
    """Open sessions whose answers go to a chat that is not connected. None if a plugin serves the channel."""
    if not isinstance(channels.known().get("telegram"), channels.ChannelOfAgents):
        return Session.objects.none()
    chats = TelegramChat.objects.filter(bot=OuterRef("agent")).annotate(text=Cast("chat_id", CharField()))
    here = Q(last_route__isnull=True) | Q(last_route__channel="telegram")
    sessions = Session.objects.filter(
        here, channel="telegram", state=SessionState.OPEN, owner__is_active=True
    )
    return sessions.exclude(Exists(chats.filter(text=OuterRef("chat_id")))).order_by("key")


def connections_usable() -> Finding:
    """The server's connections work, and the secrets of all can be read. Users see the other faults of their own."""
    rows = Connection.objects.order_by("owner_id", "name")[:MOST_CONNECTIONS]
    if not rows:
        return passed("none")
    broken = [text for row in rows.iterator() if (text := _fault_of(row))]
    if broken:
        return failed(
            some_named(islice(broken, NAMED), len(broken)),
            "mend them in the admin (Connections), and test them there",
        )
    return passed("none is known to be broken")


def _fault_of(row: Connection) -> str:
    whose = "" if row.owner_id is None else " of a user"
    if fault := usable(row).fault:
        return f"{row.name}{whose}: {fault}"
    provider = PROVIDERS.get(row.provider)
    if provider is None or provider.missing:
        return f"{row.name}{whose}: {row.provider} is not installed"
    return f"{row.name}: {row.last_error.rstrip('.')}" if row.owner_id is None and row.last_error else ""


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
