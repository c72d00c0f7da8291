"""Data that an older version of the tables holds are opened (rule 10.2): migrations are only added."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings

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


@pytest.mark.long("migrates an empty database twice")
def test_an_automation_of_the_first_tables_fires_after_the_upgrade(older: str) -> None:
    environ = os.environ | {"DATABASE_URL": older, "DJANGO_SETTINGS_MODULE": "config.settings"}
    environ.pop("DATABASE_LOCK_URL", None)
    done = run(sys.executable, "-c", UPGRADED, env=environ)
    assert done.stdout.split("\n")[-2:] == ["Stand up True", ""], done.stderr
