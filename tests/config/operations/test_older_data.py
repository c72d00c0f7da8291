"""Data that an older version of the tables holds are opened (rule 10.2): migrations are only added."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection

from config.operations import doctor, schema
from config.supervisor.terminal import last_line
from tests.config.operations.test_doctor import wrong
from tests.races import selected
from tests.services import with_database
from tests.up import run

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.2")]
NAME = "rondo_older"
# the tables as the first migrations made them, with an automation that is due; then what an upgrade does
UPGRADED = """
from datetime import UTC, datetime, timedelta
import django; django.setup()
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

FIRST = [("sessions_app", "0001_initial"), ("automations", "0001_initial")]
for app, name in FIRST:
    call_command("migrate", app, name, interactive=False, verbosity=0)
old = MigrationExecutor(connection).loader.project_state(FIRST).apps
user = old.get_model("auth", "User").objects.create(username="ada", is_active=True)
agent = old.get_model("sessions_app", "Agent").objects.create(owner=user, name="demo", model="offline")
session = old.get_model("sessions_app", "Session").objects.create(agent=agent, owner=user, key="web:1")
due = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=5)
job = old.get_model("automations", "CronJob").objects.create(
    id="older", agent=agent, session=session, owner_id=user.pk, name="Stand up", message="go",
    schedule_kind="every", every_seconds=3600, anchor=due,
)
old.get_model("automations", "JobClock").objects.create(job=job, next_run_at=due, planned_from=due)

call_command("migrate", interactive=False, verbosity=0)
from automations.firing.fire_jobs import fire_due_jobs
from automations.selectors import automation
from config.operations import schema
from django.contrib.auth.models import User
assert schema.fault() == ""
assert fire_due_jobs().claimed == 1
found = automation(User.objects.get(), "older")
print(found.name, found.pending)
"""


@pytest.fixture
def older() -> Iterator[str]:
    """The address of an empty database."""
    with psycopg.connect(with_database(settings.DATABASE_LOCK_URL, "postgres"), autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{NAME}"')
        yield with_database(settings.DATABASE_LOCK_URL, NAME)
        server.execute(f'DROP DATABASE "{NAME}" WITH (FORCE)')


@pytest.mark.full
def test_an_automation_of_the_first_tables_fires_after_the_upgrade(older: str) -> None:
    environ = os.environ | {"DATABASE_URL": older, "DJANGO_SETTINGS_MODULE": "config.settings"}
    environ.pop("DATABASE_LOCK_URL", None)
    done = run(sys.executable, "-c", UPGRADED, env=environ)
    assert done.stdout.split("\n")[-2:] == ["Stand up True", ""], done.stderr


def test_migrate_and_doctor_refuse_the_tables_of_another_version_with_the_cure() -> None:
    assert doctor.check_migrations().ok
    other = """COMMENT ON TABLE django_migrations IS '{"automations.0001_initial": "other"}'"""
    connection.cursor().execute(other)
    words = wrong(doctor.check_migrations())
    assert "another version of Rondo" in words
    assert "0001_initial" in words
    assert "--data-dir" in words
    with pytest.raises(CommandError) as refusal:
        call_command("migrate", interactive=False, verbosity=0)
    assert str(refusal.value) == words


def test_migrate_stores_fingerprints_where_there_are_none() -> None:
    connection.cursor().execute("COMMENT ON TABLE django_migrations IS NULL")
    assert schema.fault() == ""
    call_command("migrate", interactive=False, verbosity=0)
    [text] = selected("SELECT obj_description('django_migrations'::regclass)")
    assert json.loads(text) == schema.fingerprints()


def test_comments_and_layout_of_a_migration_do_not_count() -> None:
    source = "operations = [a(1), b(2)]\n"
    laid_out = "# made\noperations = [\n    a(1),  # one\n    b(2)\n]\n"
    assert schema._fingerprint(laid_out) == schema._fingerprint(source)
    assert schema._fingerprint(source.replace("2", "3")) != schema._fingerprint(source)


def test_a_failed_step_is_told_by_its_error_not_by_the_mark_below_it(tmp_path: Path) -> None:
    log: Any = tmp_path / "log"
    error = 'x.ProgrammingError: column "a" is missing'
    log.write_text(f"Traceback:\nx.errors.UndefinedColumn: no\n{error}\nLINE 1: a\n   ^\n")
    assert last_line(log) == error
    log.write_text("CommandError: made by another version\n")
    assert last_line(log) == "made by another version"
