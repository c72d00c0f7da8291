"""The checks of `manage.py doctor` and /readyz by name: those of the server, and those of the apps (rule 10.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psycopg
from django.conf import settings
from django.core import checks as django_checks
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor

from automations import doctor as automations
from config.env_values import all_queues
from config.installation import COMMAND
from config.operations import fleet_checks, schema, trials
from config.operations.fleet import limits_of, read_fleet
from sessions_app import flags
from sessions_app.models import Agent
from sessions_app.operations import doctor as sessions
from sessions_app.operations import telegram_bots
from sessions_app.operations.connections import connections_usable
from sessions_app.operations.doctor import Check, Finding, some_named
from sessions_app.worker import self_check

OLDEST_POSTGRES = 150_000  # server_version_num of PostgreSQL 15


def check_configuration() -> Finding:
    """The settings are consistent. Missing or invalid variables have ended the process before."""
    if settings.DEBUG:
        return Finding(
            ok=False, detail="DEBUG is on", cure="unset DEBUG: its error pages show settings and user data"
        )
    if settings.RONDO_WORKER_LOST_SECONDS < 2 * settings.RONDO_HEARTBEAT_SECONDS:
        return Finding(
            ok=False,
            detail="workers count as lost between two reports that they are alive",
            cure="set RONDO_WORKER_LOST_SECONDS to twice RONDO_HEARTBEAT_SECONDS or more",
        )
    errors = [error for error in django_checks.run_checks() if error.is_serious()]
    if errors:
        cure = str(errors[0].hint or f"see `{COMMAND} check`").splitlines()[0]
        return Finding(ok=False, detail=str(errors[0].msg).splitlines()[0], cure=cure)
    return Finding(ok=True, detail="consistent")


def check_flags() -> Finding:
    """Lists flags that differ from their defaults; always ok."""
    return Finding(ok=True, detail="; ".join(flags.changed_flags()) or "all have their defaults")


def check_models() -> Finding:
    """Each model in use has a known provider and a key."""
    from agent_core.exceptions import ModelError
    from agent_core.models import resolve
    from sessions_app.connections.usable import is_offered, names_connection

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
        return Finding(ok=True, detail="all are configured")
    return Finding(
        ok=False,
        detail=some_named((f"{name}: {why}" for name, why in broken.items()), len(broken)),
        cure="set the provider's key (such as OPENAI_API_KEY) and RONDO_MODELS everywhere, or name another model",
    )


def check_database() -> Finding:
    """PostgreSQL answers, is new enough and stores a row."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int, current_setting('server_version')")
        number, version = cursor.fetchone()
    if number < OLDEST_POSTGRES:
        return Finding(ok=False, detail=f"PostgreSQL {version} is too old", cure="use PostgreSQL 15 or newer")
    trials.write_row()
    return Finding(ok=True, detail=f"PostgreSQL {version} answers, and stores a row")


def check_migrations() -> Finding:
    """All migrations are applied."""
    if what := schema.fault():
        return Finding(ok=False, detail=what, cure=schema.CURE)
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        names = (f"{migration.app_label}.{migration.name}" for migration, _ in missing)
        return Finding(
            ok=False,
            detail=f"not applied: {some_named(names, len(missing))}",
            cure=f"run `{COMMAND} migrate`",
        )
    return Finding(ok=True, detail="all applied")


def check_broker() -> Finding:
    """The broker takes a message and gives it back."""
    try:
        trials.pass_message()
    except Exception as error:  # noqa: BLE001 - each broker client raises its own errors
        detail, cure = trials.broker_fault(error)
        return Finding(ok=False, detail=detail, cure=cure)
    return Finding(ok=True, detail="answers, and passes a message")


def check_queues() -> Finding:
    """A worker consumes each queue."""
    return sessions.queues_read(all_queues(settings.TURN_SHARDS))


READINESS_CHECKS: dict[str, Check] = {
    "database": check_database,
    "broker": check_broker,
    "workers": sessions.workers,
    "shards": check_queues,
    "beat": automations.beat,
}
CHECKS: dict[str, Check] = {
    "configuration": check_configuration,
    "flags": check_flags,
    "database": check_database,
    "migrations": check_migrations,
    "lock_connection": sessions.lock_connection,
    "broker": check_broker,
    "models": check_models,
    "connections": connections_usable,
    "workers": sessions.workers,
    "shards": check_queues,
    "beat": automations.beat,
    "processes": fleet_checks.processes,
    "versions": fleet_checks.versions,
    "fleet_settings": fleet_checks.fleet_settings,
    "stuck_turns": sessions.stuck_turns,
    "overlong_turns": sessions.overlong_turns,
    "waiting_turns": sessions.waiting_turns,
    "channels": sessions.channels_served,
    "telegram": telegram_bots.bots_read,
    "deliveries": sessions.deliveries_sent,
    "oldest_transaction": sessions.oldest_transaction,
    "jobs_set_aside": automations.jobs_set_aside,
    "time_zones": automations.time_zones,
    "schedules": automations.schedules,
    "plans": automations.plans,
    "legacy_channels": automations.legacy_channels,
    "last_slots": automations.last_slots,
}
WITHOUT_DATABASE = {"configuration", "flags", "broker"}
NEED_BROKER = ("workers", "shards")
BROKER_FIRST = Finding(ok=True, detail="not judged while the broker fails", seen=False)
NOT_CHECKED = Finding(ok=False, detail="not checked", cure="repair the database first")

# These depend on environment variables, which may differ between processes (server, terminal).
PROCESS_CHECKS = {
    name: CHECKS[name]
    for name in (
        *("configuration", "flags", "models", "connections", "shards", "channels", "legacy_channels"),
        *("stuck_turns", "overlong_turns", "broker", "lock_connection"),
    )
}
HERE = "with the environment of this process, since no worker {}"


def run_all_checks() -> dict[str, Finding]:
    """Run all checks. Those that depend on the environment are run by the workers, and here only without workers."""
    try:
        probe_database()
    except psycopg.Error as error:
        return _without_database(_failed(error))
    try:
        fleet = read_fleet()
    except (Error, psycopg.Error):  # a check reports the reason
        return _run_all_checks()
    with limits_of(fleet):
        return _run_all_checks()


def _run_all_checks() -> dict[str, Finding]:
    found = run_checks({name: check for name, check in CHECKS.items() if name not in PROCESS_CHECKS})
    if not found["database"].ok:
        return _without_database(found["database"])
    answers = self_check.ask_workers()
    note = HERE.format("answers" if answers else "runs")
    for name, check in PROCESS_CHECKS.items():
        reported = {each.worker: each.found[name] for each in answers if each.found and name in each.found}
        if reported:
            found[name] = _merge(reported)
        else:
            own = run_checks({name: check})[name]
            found[name] = replace(own, detail=f"{own.detail} ({note})")
    if silent := [answer.worker for answer in answers if answer.found is None]:
        found["workers"] = Finding(
            ok=False,
            detail=f"no answer within {self_check.PATIENCE:.0f} s from {some_named(silent, len(silent))}",
            cure="run this again, and restart the worker if it still does not answer",
        )
    return _with_cause({name: found[name] for name in CHECKS})


def probe_database() -> None:
    """Connect once. Raises psycopg.OperationalError at once where the pool would try again for 10 s."""
    psycopg.connect(**connection.get_connection_params()).close()


def _without_database(problem: Finding) -> dict[str, Finding]:
    """Run the checks that need no database; `problem` is what is wrong with it."""
    own = run_checks({name: CHECKS[name] for name in WITHOUT_DATABASE}) | {"database": problem}
    return {name: own.get(name, NOT_CHECKED) for name in CHECKS}


def _merge(reported: Mapping[str, Mapping[str, Any]]) -> Finding:
    """One finding for all workers: the first problem, with the worker's name unless all report the same."""
    wrong = {worker: each for worker, each in reported.items() if not each["ok"]}
    worker, each = next(iter((wrong or reported).items()))
    same = all(other["detail"] == each["detail"] for other in reported.values())
    detail = each["detail"] if same or not wrong else f"{worker}: {each['detail']}"
    return Finding(ok=each["ok"], detail=detail, cure=each["cure"])


def run_checks(checks: Mapping[str, Check]) -> dict[str, Finding]:
    """Run the checks. If the database does not answer, those that need it are skipped rather than wait one by one."""
    found: dict[str, Finding] = {}
    unavailable = False
    for name, check in checks.items():
        if unavailable and name not in WITHOUT_DATABASE:
            found[name] = NOT_CHECKED
            continue
        try:
            found[name] = check()
        except (Error, psycopg.Error) as error:
            found[name] = _failed(error)
            unavailable = unavailable or name == "database"
    return _with_cause(found)


def _with_cause(found: dict[str, Finding]) -> dict[str, Finding]:
    """Blame a broken broker alone: workers end or wait without it, and their absence would be taken for the cause."""
    broker = found.get("broker")
    if broker is None or broker.ok:
        return found
    return {
        name: BROKER_FIRST if name in NEED_BROKER and not finding.ok else finding
        for name, finding in found.items()
    }


def _failed(error: Exception) -> Finding:
    detail, cure = trials.database_fault(error)
    return Finding(ok=False, detail=detail, cure=cure)
