"""What `manage.py doctor` and /readyz look at, by name. Each app has its own; here are the server's (rule 10.2)."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from celery import current_app
from django.conf import settings
from django.core import checks as django_checks
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor

from automations import doctor as automations
from config.env import all_queues
from sessions_app import doctor as sessions
from sessions_app import flags
from sessions_app.doctor import Check, Finding, named
from sessions_app.models import Agent

BROKER_SECONDS = 1
LEAST_VERSION = 150_000  # PostgreSQL's own way to write 15


def configuration() -> Finding:
    """The variables fit together. What is missing or unreadable ended the process before it came here."""
    if settings.DEBUG:
        return Finding(
            ok=False, detail="DEBUG is on", cure="unset DEBUG: it shows people what is theirs alone"
        )
    if settings.RONDO_WORKER_LOST_SECONDS < 2 * settings.RONDO_HEARTBEAT_SECONDS:
        return Finding(
            ok=False,
            detail="workers would be taken for lost between two signs of life",
            cure="set RONDO_WORKER_LOST_SECONDS to twice RONDO_HEARTBEAT_SECONDS or more",
        )
    errors = [error for error in django_checks.run_checks() if error.is_serious()]
    if errors:
        cure = str(errors[0].hint or "see `manage.py check`").splitlines()[0]
        return Finding(ok=False, detail=str(errors[0].msg).splitlines()[0], cure=cure)
    return Finding(ok=True, detail="fits together")


def flags_changed() -> Finding:
    """Says which flags are not as they are by default; that is somebody's choice, and no fault."""
    return Finding(ok=True, detail="; ".join(flags.changed()) or "as they are by default")


def models() -> Finding:
    """Each model that agents name has what it needs here: a known provider, a key."""
    from agent_core.exceptions import ModelError
    from agent_core.models import resolve

    broken = {}
    named_ones = Agent.objects.exclude(model="").order_by().values_list("model", flat=True).distinct()
    for name in sorted({settings.RONDO_MODEL, *named_ones}):
        try:
            resolve(name)
        except ModelError as error:
            broken[name] = str(error).splitlines()[0]
    if not broken:
        return Finding(ok=True, detail="all are set up")
    return Finding(
        ok=False,
        detail=named((f"{name}: {why}" for name, why in broken.items()), len(broken)),
        cure="set the provider's key (such as OPENAI_API_KEY) for every worker, or name another model",
    )


def database() -> Finding:
    """PostgreSQL answers, and is new enough."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, current_setting('server_version')")
        number, version = cursor.fetchone()
    if number < LEAST_VERSION:
        return Finding(ok=False, detail=f"PostgreSQL {version} is too old", cure="use PostgreSQL 15 or newer")
    return Finding(ok=True, detail=f"PostgreSQL {version} answers")


def migrations() -> Finding:
    """The tables are those of this code."""
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        names = (f"{migration.app_label}.{migration.name}" for migration, _ in missing)
        return Finding(
            ok=False, detail=f"not applied: {named(names, len(missing))}", cure="run `manage.py migrate`"
        )
    return Finding(ok=True, detail="all applied")


def broker() -> Finding:
    """Hints can be sent."""
    try:
        with current_app.connection_for_write(connect_timeout=BROKER_SECONDS) as link:
            link.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises
        return Finding(
            ok=False,
            detail=f"the broker does not answer ({type(error).__name__})",
            cure="start it, or set CELERY_BROKER_URL to where it is",
        )
    return Finding(ok=True, detail="answers")


def shards() -> Finding:
    """Each queue is read."""
    return sessions.queues_read(all_queues(settings.TURN_SHARDS))


READY: dict[str, Check] = {
    "database": database,
    "broker": broker,
    "workers": sessions.workers,
    "shards": shards,
    "beat": automations.beat,
}
CHECKS: dict[str, Check] = {
    "configuration": configuration,
    "flags": flags_changed,
    "database": database,
    "migrations": migrations,
    "lock_connection": sessions.lock_connection,
    "broker": broker,
    "models": models,
    "workers": sessions.workers,
    "shards": shards,
    "beat": automations.beat,
    "stuck_turns": sessions.stuck_turns,
    "overlong_turns": sessions.overlong_turns,
    "waiting_turns": sessions.waiting_turns,
    "channels": sessions.channels_served,
    "deliveries": sessions.deliveries,
    "oldest_transaction": sessions.oldest_transaction,
    "jobs_set_aside": automations.jobs_set_aside,
    "time_zones": automations.time_zones,
    "schedules": automations.schedules,
    "plans": automations.plans,
    "routines": automations.routines,
    "last_slots": automations.last_slots,
}
ALONE = {"configuration", "flags", "broker"}  # these ask no database


def looked_at(checks: Mapping[str, Check]) -> dict[str, Finding]:
    """What each check found. While the database is away, those that ask it do not wait for it one by one."""
    found: dict[str, Finding] = {}
    away = False
    for name, check in checks.items():
        if away and name not in ALONE:
            found[name] = Finding(ok=False, detail="not looked at", cure="see to the database first")
            continue
        try:
            found[name] = check()
        except (Error, psycopg.Error) as error:
            found[name] = _failed(error)
            away = away or name == "database"
    return found


def _failed(error: Exception) -> Finding:
    return Finding(
        ok=False,
        detail=f"the database does not answer as it should ({type(error).__name__})",
        cure="start it and run `manage.py migrate`, or set DATABASE_URL to where it is",
    )
