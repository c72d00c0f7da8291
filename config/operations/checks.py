"""Checks of workers, turns, connections, channels, deliveries and jobs, each with a cure (rules 4.6, 10.2)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import psycopg
from django.conf import settings
from django.db import transaction
from django.db.models import CharField, Count, Exists, F, Max, OuterRef, Q, QuerySet
from django.db.models.functions import Cast, Coalesce, Greatest, Now

from agent_core.connections import PROVIDERS
from agent_core.exceptions import PolicyError
from agent_core.policy import TurnPolicy
from automations.exceptions import ScheduleError
from automations.jobs.clock import counted_to, current_plan, database_now, notify_beats
from automations.models import CronJob, JobClock, RunRecord, ScheduleKind
from automations.models.job import ON_WALL_TIME
from automations.retention.zones import used_zones
from automations.runs import figures
from automations.schedules.plan import FAR_AHEAD, schedule_of
from automations.schedules.zone_files import fingerprint
from automations.selectors import beats_seen, seconds_overdue
from config.operations.status import read_processes
from sessions_app.channels import base as channels
from sessions_app.connections.usable import usable
from sessions_app.exceptions import PooledConnection
from sessions_app.limits import running_turns
from sessions_app.limits.policies import policy_of
from sessions_app.models import (
    BACKGROUND,
    Connection,
    ConsentQuestion,
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
from sessions_app.postgres.rows import fetch
from sessions_app.queue.kinds import kind_of

NAMED = 5  # things that a finding lists
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
LATE = 60.0  # seconds a job or message may be overdue before beat counts as missing
MOST_LOOKED_AT = 20_000  # schedules and jobs read one by one


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


def unknown(detail: str, cure: str = "") -> Finding:
    """A warning: the check cannot see whether it is ok."""
    return Finding(ok=True, detail=detail, cure=cure, seen=False)


def failed_if_any(problem: str, named: Iterable[Any], count: int, cure: str) -> Finding:
    """A problem that concerns `count` things, of which the first are named; ok without any."""
    return failed(f"{problem}: {join_names(named, count)}", cure) if count else passed("no problems found")


def failed_if_rows(problem: str, rows: QuerySet[Any], cure: str) -> Finding:
    """A problem that concerns these rows, which are named by their keys."""
    ids = rows.order_by("pk").values_list("pk", flat=True)
    return failed_if_any(problem, ids[:NAMED], rows.count(), cure)


def join_names(things: Iterable[Any], count: int) -> str:
    """`a, b and 3 more`."""
    shown = [str(thing) for thing in things][:NAMED]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def processes() -> Finding:
    """No process has fallen silent without another in its place, and all run one version."""
    known = read_processes()
    if silent := [f"{each} for {each.silent_seconds:.0f} s" for each in known if not each.alive]:
        cure = (
            "look at its machine and start it again; a process that is gone for good is forgotten after a day"
        )
        return failed(f"silent: {join_names(silent, len(silent))}", cure)
    if len(versions := sorted({each.version for each in known})) > 1:
        cure = "finish the upgrade: restart the processes of the older version, which `status` shows"
        return unknown(f"several versions run: {', '.join(versions)}", cure)
    return passed(f"{len(known)} run {versions[0]}" if known else "none has reported itself")


def workers() -> Finding:
    """At least one worker is alive."""
    alive = len(live_workers())
    if not alive:
        return failed("no worker is alive", "start `celery -A config worker`")
    return passed(f"{alive} alive")


def queues_read() -> Finding:
    """Each queue is read by a worker, and no worker reads queues that this process does not know."""
    read = {queue for worker in live_workers() for queue in worker}
    if unread := [queue for queue in settings.ALL_QUEUES if queue not in read]:
        return failed(
            f"no worker reads {', '.join(unread) if read else 'any queue'}",
            "start a worker with these queues; see TURN_QUEUES",
        )
    if unknown := sorted(read - set(settings.ALL_QUEUES)):
        return failed(
            f"workers read queues that do not exist here: {', '.join(unknown)}",
            "give every process the same TURN_SHARDS and restart it",
        )
    return passed("every queue is read")


_HELD_HERE = """
SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database AND d.datname = current_database()
WHERE locktype = 'advisory' AND granted AND (classid, objid, objsubid) = (%s, %s, 2)"""


def lock_connection() -> Finding:
    """DATABASE_LOCK_URL leads directly to this database: a lock taken there is visible here."""
    keys = [secrets.randbelow(2**31), secrets.randbelow(2**31)]
    cure = "set DATABASE_LOCK_URL to the direct address of the database of DATABASE_URL, without a pooler"
    try:
        with connect_directly(settings.DATABASE_LOCK_URL, "rondo doctor") as own:
            own.execute("SELECT pg_advisory_lock(%s, %s)", keys)
            [(seen,)] = fetch(_HELD_HERE, keys)
    except PooledConnection:
        return failed("it goes through a pooler, which breaks session locks", cure)
    except (psycopg.Error, OSError) as error:
        return failed(f"connecting failed ({type(error).__name__})", cure)
    if not seen:
        return failed("it leads to another database than DATABASE_URL", cure)
    return passed("direct, to the same database")


def stuck_turns() -> Finding:
    """No running turn is without a live worker for long."""
    lost_after = timedelta(seconds=settings.RONDO_WORKER_LOST_SECONDS + STUCK)
    alive = Worker.objects.filter(pk=OuterRef("worker"), heartbeat_at__gt=Now() - lost_after)
    left = Turn.objects.filter(state=TurnState.RUNNING, claimed_at__lt=Now() - timedelta(seconds=STUCK))
    return failed_if_rows(
        "running without a live worker",
        left.filter(Q(claim__isnull=True) | ~Exists(alive)),
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
    return failed_if_rows(
        f"waiting for over {WAITING:.0f} s in idle sessions",
        queued.alias(since=Greatest("queued_at", "due_at"))
        .filter(~Exists(running), since__lt=since)
        .exclude(session__state=SessionState.DELETING)
        # other turns wait for their owner's account, or for the owner's other turns
        .filter(~running_turns.waits_for_own_turns(), session__owner__is_active=True),
        "start more workers, or give them more threads (-c)",
    )


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
) AS open WHERE age > %s ORDER BY age DESC LIMIT 1"""


def oldest_transaction() -> Finding:
    """No transaction is open for long: it would hold row locks, and hinder vacuum in all tables."""
    found = fetch(_OLDEST, [LONGEST_TRANSACTION])
    if not found:
        return passed("none is long")
    [(name, age, cure)] = found
    return failed(f"open for {age:.0f} s ({name})", f"end it: {cure}")


def channels_served() -> Finding:
    """Each channel and address of sessions and hooks is available."""
    sessions = Session.objects.filter(state=SessionState.OPEN).exclude(type__in=BACKGROUND)
    unknown = sessions.exclude(channel__in=[WEB, *channels.known()]).order_by()
    counts = dict(unknown.values_list("channel").annotate(n=Count("id")).order_by("channel"))
    if counts:
        missing = join_names((f"{name} ({n} sessions)" for name, n in counts.items()), len(counts))
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
        named = join_names((f"@{bot.username}: {bot.last_error or _UNREAD}" for bot in wrong[:NAMED]), count)
        return failed(
            f"bots whose messages are not read: {named}",
            "see docs/channels.md#agents-on-telegram, or switch these bots off",
        )
    lost = _unconnected()
    if count := lost.count():
        named = join_names((session.key[:60] for session in lost[:NAMED]), count)
        cure = "connect the chats on the pages of their agents, or delete these sessions"
        return failed(f"sessions whose chat is not connected: {named}", cure)
    return passed(f"{bots.count()} bots")


def _unconnected() -> QuerySet[Session]:
    """Open sessions whose answers go to a chat that is not connected, unless a plugin serves the channel."""
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
            join_names(islice(broken, NAMED), len(broken)),
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
        f"failed: {join_names(ids, count)}",
        "see the reason in the admin (Deliveries); send them again or discard them there",
    )


def questions() -> Finding:
    """Counts the open questions of scheduled turns; always ok, as they hold nothing."""
    waiting = ConsentQuestion.objects.open().filter(expires_at__gt=Now()).count()
    return passed(f"{waiting} of scheduled turns wait for their owners")


def beat() -> Finding:
    """A beat is running and nothing is overdue."""
    late = seconds_overdue()
    start = "start `python -m config.beat`"
    if late > LATE:
        return failed(f"a job or message is {late:.0f} s overdue", start)
    seen = beats_seen()
    if not seen:
        return unknown("nothing is overdue, but no beat is seen", start)
    return passed(f"{seen} listening; nothing is overdue")


def jobs_set_aside() -> Finding:
    """No job was disabled because of a fault."""
    problem = "disabled after an error, see their fault in the admin"
    cure = "give each a valid schedule, enable it again, or delete it"
    return failed_if_rows(problem, figures.set_aside_jobs(), cure)


def time_zones() -> Finding:
    """The time-zone data of all jobs are installed."""
    missing = [zone for zone in used_zones() if fingerprint(zone) is None]
    cure = "install current tzdata on every machine (PYTHONTZPATH), or give their jobs another zone"
    return failed_if_any("no data for these time zones", missing, len(missing), cure)


def schedules() -> Finding:
    """Every enabled job on wall time has a valid schedule; those of cron fire again."""
    names = ("schedule_kind", "expr", "timezone", "anchor", "except_holidays")
    jobs = CronJob.objects.filter(enabled=True, schedule_kind__in=ON_WALL_TIME)
    used = jobs.values(*names).order_by().distinct()[:MOST_LOOKED_AT]
    bad = [each for each in used if not _fires(CronJob(**each))]
    ids = [
        job_id for each in bad[:NAMED] for job_id in jobs.filter(**each).values_list("pk", flat=True)[:NAMED]
    ]
    cure = "give these jobs another schedule, or delete them"
    return failed_if_any(f"{len(bad)} can never fire", ids, len(ids), cure)


def _fires(job: CronJob) -> bool:
    """Whether the schedule fires again, or is a rule, which may end. An unknown zone is reported by `time_zones`."""
    try:
        return schedule_of(job).next(database_now()) is not None or job.schedule_kind == ScheduleKind.RRULE
    except ScheduleError as error:
        return error.code == "unknown_timezone"


def plans() -> Finding:
    """Finds enabled jobs that have slots left and no next one; a system job always has slots left."""
    rows = JobClock.objects.filter(next_run_at__isnull=True, job__enabled=True).select_related("job")
    idle = rows.order_by("-pk")[:MOST_LOOKED_AT].iterator()
    lost = [clock.pk for clock in idle if clock.job.system_event or _has_slots(clock)]
    return failed_if_any(
        "enabled without a next slot", lost, len(lost), "disable and enable each of them again"
    )


def _has_slots(clock: JobClock) -> bool:
    """Whether the job has slots after the last recorded one."""
    last = counted_to(clock, database_now()) or clock.planned_from
    try:
        after = max(last, clock.planned_from)
        return current_plan(clock.job, clock).next_firing(after) is not None
    except ScheduleError:
        return False  # reported by `schedules` and `time_zones`


def legacy_channels() -> Finding:
    """This server can send to the channel and address of every legacy job that delivers its answers."""
    rows = CronJob.objects.filter(enabled=True, deliver=True, session=None).exclude(channel="").exclude(to="")
    looked_at = rows.order_by("-created_at").only("channel", "to")[:MOST_LOOKED_AT]
    reasons = (
        (job.pk, channels.why_unserved({"channel": job.channel, "chat_id": job.to})) for job in looked_at
    )
    lost = [f"{job_id}: {reason}" for job_id, reason in reasons if reason]
    cure = "configure the channel (docs/channels.md), or disable these jobs in the admin"
    return failed_if_any("answers of legacy jobs cannot be delivered", lost, len(lost), cure)


def last_slots() -> Finding:
    """No clock's last slot is more than a day in the future."""
    cure = f"{settings.RONDO_COMMAND} doctor --mend"
    return failed_if_rows("last_slot is more than a day ahead", _far_ahead(), cure)


def _far_ahead() -> QuerySet[JobClock]:
    return JobClock.objects.filter(last_slot__gt=Now() + FAR_AHEAD)


def mend_last_slots() -> Iterator[str]:
    """Set the `last_slot` of each such clock to the latest slot of its runs, or to now. Yields a line for each."""
    for job_id in _far_ahead().order_by("pk").values_list("pk", flat=True):
        if line := _mend(job_id):
            yield line


def _mend(job_id: str) -> str:
    with transaction.atomic():
        # the clock first, as everywhere; beat or an edit may have changed it before
        clock = _far_ahead().select_for_update(no_key=True, of=("self",)).filter(pk=job_id).first()
        if clock is None or clock.last_slot is None:
            return ""
        now, before = database_now(), clock.last_slot
        slots = RunRecord.objects.filter(job_id=job_id).annotate(
            slot=Coalesce(F("slots_to"), F("scheduled_for"))
        )
        latest = slots.filter(slot__lte=now + FAR_AHEAD).aggregate(latest=Max("slot"))["latest"]
        clock.last_slot = latest or now
        clock.save(update_fields=["last_slot"])
        transaction.on_commit(notify_beats, robust=True)
    return f"last_slot of {job_id}: {before:%Y-%m-%d %H:%M:%S}Z became {clock.last_slot:%Y-%m-%d %H:%M:%S}Z"
