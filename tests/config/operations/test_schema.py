"""Tables that another version made are refused before anything changes (rule 10.2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from config.operations import doctor, schema
from config.supervisor.terminal import last_line
from tests.config.operations.test_doctor import wrong

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.2")]


def run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_migrate_and_doctor_refuse_the_tables_of_another_version_with_the_cure() -> None:
    assert doctor.check_migrations().ok
    run("""COMMENT ON TABLE django_migrations IS '{"automations.0001_initial": "other"}'""")
    words = wrong(doctor.check_migrations())
    assert "another version of Rondo" in words
    assert "0001_initial" in words
    assert "--data-dir" in words
    with pytest.raises(CommandError) as refusal:
        call_command("migrate", interactive=False, verbosity=0)
    assert str(refusal.value) == words


def test_migrate_stores_fingerprints_where_there_are_none() -> None:
    run("COMMENT ON TABLE django_migrations IS NULL")
    assert schema.fault() == ""
    call_command("migrate", interactive=False, verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT obj_description('django_migrations'::regclass)")
        [(text,)] = cursor.fetchall()
    assert json.loads(text) == schema.fingerprints()


def test_comments_and_layout_of_a_migration_do_not_count() -> None:
    source = "operations = [a(1), b(2)]\n"
    assert schema._fingerprint(
        "# made\noperations = [\n    a(1),  # one\n    b(2)\n]\n"
    ) == schema._fingerprint(source)
    assert schema._fingerprint(source.replace("2", "3")) != schema._fingerprint(source)


def test_a_failed_step_is_told_by_its_error_not_by_the_mark_below_it(tmp_path: Path) -> None:
    log: Any = tmp_path / "log"
    log.write_text(
        'Traceback:\nx.errors.UndefinedColumn: no\nx.ProgrammingError: column "a" is missing\nLINE 1: a\n   ^\n'
    )
    assert last_line(log) == 'x.ProgrammingError: column "a" is missing'
    log.write_text("CommandError: made by another version\n")
    assert last_line(log) == "made by another version"
