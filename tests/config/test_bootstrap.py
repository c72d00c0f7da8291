"""The token that `up` writes to connection.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from sessions_app.models import ApiToken
from sessions_app.tokens.issue import MOST_TOKENS, find_token, revoke_tokens
from tests.tokens import new_token

pytestmark = pytest.mark.django_db

KNOWN = "of-the-data-folder"


@pytest.fixture(autouse=True)
def _environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ADMIN_USER", "admin"), ("ADMIN_PASSWORD", "pw"), ("API_TOKEN", KNOWN)):
        monkeypatch.setenv(f"RONDO_{name}", value)
    monkeypatch.setattr("config.management.commands.bootstrap.call_command", lambda *_, **__: None)  # migrate


def token(folder: Path) -> str:
    """The token after another start."""
    call_command("bootstrap", "--output", str(folder / "made.json"))
    return str(json.loads((folder / "made.json").read_text())["token"])


def test_each_start_has_the_same_token_until_it_is_revoked(tmp_path: Path) -> None:
    assert token(tmp_path) == token(tmp_path) == KNOWN
    found = find_token(KNOWN)
    assert found is not None
    assert (found.user.username, found.manages_account, found.expires_at) == ("admin", True, None)
    other = new_token(found.user, "read")
    revoke_tokens(ApiToken.objects.filter(pk=found.pk))
    second, third = token(tmp_path), token(tmp_path)
    assert len({KNOWN, second, third}) == 3  # the revoked one is not made again
    alive = [each for each in (KNOWN, second, third, other) if find_token(each) is not None]
    assert alive == [third, other]
    assert ApiToken.objects.count() == 2  # those of earlier starts do not pile up


def test_a_full_list_of_tokens_is_said(tmp_path: Path) -> None:
    token(tmp_path)
    user = User.objects.get()
    revoke_tokens(ApiToken.objects.all())
    for number in range(MOST_TOKENS):
        new_token(user, "read", name=str(number))
    with pytest.raises(CommandError, match="a user has at most"):
        token(tmp_path)
