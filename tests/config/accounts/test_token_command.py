"""`manage.py token`."""

from __future__ import annotations

import io
import json
import sys
from contextlib import closing

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client

from sessions_app.models import ApiToken
from sessions_app.postgres.connection import connect_directly
from sessions_app.postgres.notify import EVENTS
from sessions_app.sessions.open import open_session
from sessions_app.tokens.issue import NewToken, make_token
from tests.conftest import Person, new_person
from tests.up import run as in_process

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("token", *words, stdout=out)
    return out.getvalue().strip()


def test_the_command_makes_lists_and_revokes(person: Person) -> None:
    session = open_session(person.agent)
    wide = run("make", "backup", "--user", "ada", "--scope", "read", "--scope", "schedule")
    narrow = run("make", "phone", "--user", "ada", "--scope", "talk", "--days", "3",
                 "--session", str(session.pk))  # fmt: skip
    for token, found in ((wide, 200), (narrow, 200)):
        headers = {"Authorization": f"Token {token}"}
        assert Client().get(f"/api/sessions/{session.pk}/", headers=headers).status_code == found
    first, second = run("list", "--user", "ada").splitlines()
    for word in (wide[:8], "read,schedule", "everything", "does not expire", "used 20", "backup"):
        assert word in first
    assert f"session {session.pk}" in second
    assert "expires 20" in second
    assert wide not in first
    run("revoke", first.split()[0], "--user", "ada")
    assert ApiToken.objects.get().name == "phone"


def test_what_is_wrong_is_said_and_nothing_is_made(person: Person) -> None:
    theirs = str(open_session(new_person("bob").agent).pk)
    make = ("make", "x", "--user", "ada", "--scope", "read")
    for words, text in (
        (("list", "--user", "nobody"), "no user 'nobody'"),
        ((*make, "--scope", "root"), "invalid choice"),
        ((*make, "--days", "0"), "must be 1 to"),
        ((*make, "--agent", "theirs"), "no such agent"),
        ((*make, "--session", theirs), "no such session"),
        (("make", "x" * 65, *make[2:]), "longer than"),
        (("revoke", "none", "--user", "ada"), "no token 'none'"),
    ):
        with pytest.raises(CommandError, match=text):
            run(*words)
        assert not ApiToken.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_revocation_is_told_to_open_streams_before_the_command_ends(person: Person) -> None:
    token, _ = make_token(person.user, NewToken(name="phone", scopes=["read"]))
    command = (sys.executable, "manage.py", "token", "revoke", str(token.pk), "--user", "ada")
    with connect_directly(settings.DATABASE_LOCK_URL) as listening:
        listening.execute(f"LISTEN {EVENTS}")
        in_process(*command, check=True)
        with closing(listening.notifies(timeout=0.5)) as notes:  # it was sent already
            assert any(json.loads(note.payload) == {"look": "all"} for note in notes)
