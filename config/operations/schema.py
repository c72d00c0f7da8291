"""Recognise the state of the tables by the migrations that made them.

`migrate` stores a fingerprint of each applied migration, as a comment on Django's table of migrations. If a migration
of this code has the name of an applied one and another content, the tables are those of another version.
"""

from __future__ import annotations

import hashlib
import io
import json
import tokenize
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from config.installation import COMMAND
from sessions_app.postgres.rows import fetch

APPS = ("sessions_app", "automations")
TABLE = "django_migrations"
_LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
)

CURE = f"run that version again, or use an empty database (`{COMMAND} up`: another folder with --data-dir)"


def fault() -> str:
    """Why this code cannot use the tables; empty if it can, or if there are none."""
    stored, here = _stored(), fingerprints()
    changed = [name for name in _applied() if stored.get(name, here.get(name)) != here.get(name)]
    if not changed:
        return ""
    return f"the database was made by another version of Rondo (other migrations: {', '.join(changed)})"


def refuse_other_version(**_: Any) -> None:
    """Raise CommandError if the tables are those of another version. Called before they are migrated."""
    if what := fault():
        raise CommandError(f"{what}; {CURE}")


def store_fingerprints(**_: Any) -> None:
    """Store the fingerprint of each applied migration. Called after the tables were migrated."""
    here = fingerprints()
    text = json.dumps({name: here[name] for name in _applied() if name in here})
    [(quoted,)] = fetch("SELECT quote_literal(%s)", [text])
    fetch(f"COMMENT ON TABLE {TABLE} IS {quoted}")


def fingerprints() -> dict[str, str]:
    """A fingerprint of each migration of this code, without comments and layout."""
    return {
        f"{app}.{path.stem}": _fingerprint(path.read_text())
        for app in APPS
        for path in (Path(apps.get_app_config(app).path) / "migrations").glob("[0-9]*.py")
    }


def _fingerprint(source: str) -> str:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    text = " ".join(token.string for token in tokens if token.type not in _LAYOUT)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _applied() -> list[str]:
    rows = MigrationRecorder(connection).applied_migrations()
    return sorted(f"{app}.{name}" for app, name in rows if app in APPS)


def _stored() -> dict[str, str]:
    [(text,)] = fetch("SELECT obj_description(to_regclass(%s), 'pg_class')", [TABLE])
    try:
        found: dict[str, str] = json.loads(text or "{}")
    except ValueError:  # somebody's own comment
        return {}
    return found
