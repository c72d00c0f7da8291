"""The checks of `manage.py doctor` and /readyz by name, how they are run, and the endpoints (rule 10.2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.conf import settings
from django.core.checks import run_checks as run_django_checks
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from agent_core.exceptions import ModelError
from agent_core.models import resolve
from automations.models import JobPreflight
from config.installation import COMMAND
from config.operations import checks, schema, trials
from config.operations.checks import NAMED, Check, Finding, failed, failed_if_any, join_names, passed, unknown
from interfaces.http.errors.problems import unlogged
from interfaces.http.watchers import is_watcher
from sessions_app import flags
from sessions_app.connections.usable import is_offered, names_connection
from sessions_app.models import Agent, Connection
from sessions_app.postgres.connection import time_limit
from sessions_app.postgres.rows import fetch
from sessions_app.spending.caps import WORDS, anew, budget_of, used_up

DATABASE_SECONDS = 0.8  # /readyz answers within 2 s, the broker's share included (rule 10.0)
OLDEST_POSTGRES = 150_000  # server_version_num of PostgreSQL 15
LONGEST_NAME = 60  # characters of an automation's name


def check_configuration() -> Finding:
    """The settings are consistent. Missing or invalid variables have ended the process before."""
    if settings.DEBUG:
        return failed("DEBUG is on", "unset DEBUG: its error pages show settings and user data")
    if settings.RONDO_WORKER_LOST_SECONDS < 2 * settings.RONDO_HEARTBEAT_SECONDS:
        return failed(
            "workers count as lost between two reports that they are alive",
            "set RONDO_WORKER_LOST_SECONDS to twice RONDO_HEARTBEAT_SECONDS or more",
        )
    errors = [error for error in run_django_checks() if error.is_serious()]
    if errors:
        cure = str(errors[0].hint or f"see `{COMMAND} check`").splitlines()[0]
        return failed(str(errors[0].msg).splitlines()[0], cure)
    return passed("consistent")


def check_flags() -> Finding:
    """Lists flags that differ from their defaults; always ok."""
    return passed("; ".join(flags.changed_flags()) or "all have their defaults")


def check_models() -> Finding:
    """Each model in use has a known provider and a key."""
    broken = {}
    in_agents = Agent.objects.exclude(model="").order_by().values_list("model", flat=True).distinct()
    # connections have a check of their own
    for name in sorted(each for each in {settings.RONDO_MODEL, *in_agents} if not names_connection(each)):
        if not is_offered(name):
            broken[name] = "RONDO_MODELS does not list it"
            continue
        try:
            resolve(name)
        except ModelError as error:
            broken[name] = str(error).splitlines()[0]
    if not broken:
        return passed("all are configured")
    return failed(
        join_names((f"{name}: {why}" for name, why in broken.items()), len(broken)),
        "set the provider's key (such as OPENAI_API_KEY) and RONDO_MODELS everywhere, or name another model",
    )


def check_database() -> Finding:
    """PostgreSQL answers, is new enough and stores a row."""
    [(number, version)] = fetch(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version')"
    )
    if number < OLDEST_POSTGRES:
        return failed(f"PostgreSQL {version} is too old", "use PostgreSQL 15 or newer")
    trials.write_row()
    return passed(f"PostgreSQL {version} answers, and stores a row")


def check_migrations() -> Finding:
    """All migrations are applied."""
    if what := schema.fault():
        return failed(what, schema.CURE)
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        names = (f"{migration.app_label}.{migration.name}" for migration, _ in missing)
        return failed(f"not applied: {join_names(names, len(missing))}", f"run `{COMMAND} migrate`")
    return passed("all applied")


def check_broker() -> Finding:
    """The broker takes a message and gives it back."""
    try:
        trials.pass_message()
    except Exception as error:  # noqa: BLE001 - each broker client raises its own errors
        return failed(*trials.broker_fault(error))
    return passed("answers, and passes a message")


def check_preflight() -> Finding:
    """Nothing is known that will stop the next run of an automation."""
    coming = {"job__enabled": True, "job__fault": "", "job__clock__next_run_at__isnull": False}
    rows = JobPreflight.objects.filter(**coming).exclude(problems=[]).select_related("job").order_by("pk")
    first = ((row.job, row.problems[0]["text"]) for row in rows[:NAMED])
    named = (f"{job.pk} {job.name[:LONGEST_NAME]!r}: {text}" for job, text in first)
    cure = (
        "their owners were told; mend what is the server's: a connection, a channel, a plugin, time-zone data"
    )
    return failed_if_any("next runs that will fail", named, rows.count(), cure)


def check_caps() -> Finding:
    """No cap of a connection of the server is used up."""
    rows = Connection.objects.filter(owner=None).exclude(limits={}).order_by("name")
    budgets = (budget_of("connection", row.pk, row.limits, name=row.name) for row in rows)
    found = used_up(budgets, datetime.now(UTC))
    named = [f"the connection {each['name']} for {WORDS[each['period']]}: {anew(each)}" for each in found]
    cure = "calls through it are refused; raise the cap in the admin, or wait until it begins anew"
    return failed_if_any("caps that are used up", named[:NAMED], len(named), cure)


CHECKS: dict[str, Check] = {
    "configuration": check_configuration,
    "flags": check_flags,
    "database": check_database,
    "migrations": check_migrations,
    "lock_connection": checks.lock_connection,
    "broker": check_broker,
    "models": check_models,
    "connections": checks.connections_usable,
    "workers": checks.workers,
    "shards": checks.queues_read,
    "beat": checks.beat,
    "processes": checks.processes,
    "stuck_turns": checks.stuck_turns,
    "overlong_turns": checks.overlong_turns,
    "waiting_turns": checks.waiting_turns,
    "channels": checks.channels_served,
    "telegram": checks.bots_read,
    "deliveries": checks.deliveries_sent,
    "questions": checks.questions,
    "oldest_transaction": checks.oldest_transaction,
    "jobs_set_aside": checks.jobs_set_aside,
    "time_zones": checks.time_zones,
    "schedules": checks.schedules,
    "plans": checks.plans,
    "caps": check_caps,
    "preflight": check_preflight,
    "legacy_channels": checks.legacy_channels,
    "last_slots": checks.last_slots,
}
READINESS = ("database", "broker", "workers", "shards", "beat")  # what a turn needs
WITHOUT_DATABASE = {"configuration", "flags", "broker"}
NEED_BROKER = ("workers", "shards")
BROKER_FIRST = unknown("not judged while the broker fails")
NOT_CHECKED = failed("not checked", "repair the database first")


def run_all_checks() -> dict[str, Finding]:
    """Run all checks in this process, with its environment."""
    try:
        probe_database()
    except psycopg.Error as error:
        return run_checks(CHECKS, database=_failed(error))
    return run_checks(CHECKS)


def check_readiness() -> dict[str, Finding]:
    """Run the checks of what a turn needs, within the time that /readyz has."""
    with time_limit(DATABASE_SECONDS):
        return run_checks({name: CHECKS[name] for name in READINESS})


def probe_database() -> None:
    """Connect once. Raises psycopg.OperationalError at once where the pool would try again for 10 s."""
    psycopg.connect(**connection.get_connection_params()).close()


def run_checks(chosen: Mapping[str, Check], *, database: Finding | None = None) -> dict[str, Finding]:
    """Run the checks. Without the database, those that need it are skipped rather than wait one by one.

    Args:
        database: the finding of the check `database`, if it was made before.
    """
    found: dict[str, Finding] = {}
    for name, check in chosen.items():
        if name == "database":
            database = found[name] = database or _result(check)
        elif database and not database.ok and name not in WITHOUT_DATABASE:
            found[name] = NOT_CHECKED
        else:
            found[name] = _result(check)
    broker = found.get("broker")
    if broker and not broker.ok:  # workers end or wait without it, and would be taken for the cause
        found |= {name: BROKER_FIRST for name in NEED_BROKER if not found[name].ok}
    return found


def _result(check: Check) -> Finding:
    try:
        return check()
    except (Error, psycopg.Error) as error:
        return _failed(error)


def _failed(error: Exception) -> Finding:
    return failed(*trials.database_fault(error))


def healthz(_request: HttpRequest) -> HttpResponse:
    """200 whenever the process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """200 if a message sent now would be answered, else 503. Watchers also get the result of each check."""
    found = _readiness.check(getattr(request, "came_at", time.monotonic()))
    missing = [f"{name}: {finding.words}" for name, finding in found.items() if not finding.ok]
    answer: dict[str, Any] = {"ready": not missing}
    if is_watcher(request):
        shown = {
            name: {
                "ok": finding.ok,
                "state": "missing" if finding.state == "wrong" else finding.state,
                "detail": finding.words,
            }
            for name, finding in found.items()
        }
        answer |= {"missing": missing, "checks": shown}
    return unlogged(JsonResponse(answer, status=503 if missing else 200))


class _Readiness:
    """Runs the checks once at a time. All requests that arrived before a run ended share its result."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ended_at = float("-inf")
        self._found: dict[str, Finding] = {}

    def check(self, came_at: float) -> dict[str, Finding]:
        """Return the last result if it is newer than `came_at`, else the result of a new run."""
        with self._guard:
            if self._ended_at < came_at:
                self._found = check_readiness()
                self._ended_at = time.monotonic()
            return self._found


_readiness = _Readiness()
