"""The checks of `manage.py doctor` and /readyz by name: those of the server, and those of the apps (rule 10.2)."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from django.conf import settings
from django.core import checks as django_checks
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor

from agent_core.exceptions import ModelError
from agent_core.models import resolve
from config.installation import COMMAND
from config.operations import job_checks, schema, session_checks, trials
from config.operations.findings import Check, Finding, failed, passed, some_named, unknown
from sessions_app import flags
from sessions_app.connections.usable import is_offered, names_connection
from sessions_app.models import Agent

OLDEST_POSTGRES = 150_000  # server_version_num of PostgreSQL 15


def check_configuration() -> Finding:
    """The settings are consistent. Missing or invalid variables have ended the process before."""
    if settings.DEBUG:
        return failed("DEBUG is on", "unset DEBUG: its error pages show settings and user data")
    if settings.RONDO_WORKER_LOST_SECONDS < 2 * settings.RONDO_HEARTBEAT_SECONDS:
        return failed(
            "workers count as lost between two reports that they are alive",
            "set RONDO_WORKER_LOST_SECONDS to twice RONDO_HEARTBEAT_SECONDS or more",
        )
    errors = [error for error in django_checks.run_checks() if error.is_serious()]
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
        some_named((f"{name}: {why}" for name, why in broken.items()), len(broken)),
        "set the provider's key (such as OPENAI_API_KEY) and RONDO_MODELS everywhere, or name another model",
    )


def check_database() -> Finding:
    """PostgreSQL answers, is new enough and stores a row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, current_setting('server_version')")
        number, version = cursor.fetchone()
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
        return failed(f"not applied: {some_named(names, len(missing))}", f"run `{COMMAND} migrate`")
    return passed("all applied")


def check_broker() -> Finding:
    """The broker takes a message and gives it back."""
    try:
        trials.pass_message()
    except Exception as error:  # noqa: BLE001 - each broker client raises its own errors
        return failed(*trials.broker_fault(error))
    return passed("answers, and passes a message")


def check_queues() -> Finding:
    """A worker consumes each queue."""
    return session_checks.queues_read(settings.ALL_QUEUES)


READINESS_CHECKS: dict[str, Check] = {
    "database": check_database,
    "broker": check_broker,
    "workers": session_checks.workers,
    "shards": check_queues,
    "beat": job_checks.beat,
}
CHECKS: dict[str, Check] = {
    "configuration": check_configuration,
    "flags": check_flags,
    "database": check_database,
    "migrations": check_migrations,
    "lock_connection": session_checks.lock_connection,
    "broker": check_broker,
    "models": check_models,
    "connections": session_checks.connections_usable,
    "workers": session_checks.workers,
    "shards": check_queues,
    "beat": job_checks.beat,
    "processes": session_checks.processes,
    "stuck_turns": session_checks.stuck_turns,
    "overlong_turns": session_checks.overlong_turns,
    "waiting_turns": session_checks.waiting_turns,
    "channels": session_checks.channels_served,
    "telegram": session_checks.bots_read,
    "deliveries": session_checks.deliveries_sent,
    "oldest_transaction": session_checks.oldest_transaction,
    "jobs_set_aside": job_checks.jobs_set_aside,
    "time_zones": job_checks.time_zones,
    "schedules": job_checks.schedules,
    "plans": job_checks.plans,
    "legacy_channels": job_checks.legacy_channels,
    "last_slots": job_checks.last_slots,
}
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


def probe_database() -> None:
    """Connect once. Raises psycopg.OperationalError at once where the pool would try again for 10 s."""
    psycopg.connect(**connection.get_connection_params()).close()


def run_checks(checks: Mapping[str, Check], *, database: Finding | None = None) -> dict[str, Finding]:
    """Run the checks. Without the database, those that need it are skipped rather than wait one by one.

    `database`: what is wrong with it, if that is known already.
    """
    found: dict[str, Finding] = {}
    for name, check in checks.items():
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
