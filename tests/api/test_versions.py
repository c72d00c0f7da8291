"""The version of the API: named in every answer, refused when unknown, and never changed but by additions."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.api import contract
from tests.api.conftest import Caller, problem

pytestmark = pytest.mark.django_db

JSON = {"Accept": "application/json"}


def test_every_answer_names_the_version(ada: Caller, nobody: Client) -> None:
    answers = [
        ada.get("/api/sessions/"),
        ada.get("/api/sessions/", If_None_Match="*"),
        ada.get("/api/sessions/", Rondo_Version="1"),
        ada.get("/api/nowhere/"),
        ada.post("/api/agents/", b"{"),
        nobody.get("/api/sessions/"),
        nobody.get("/api/schema/", headers=JSON),
    ]
    assert [each.status_code for each in answers] == [200, 304, 200, 404, 400, 401, 200]
    assert {each.headers["Rondo-Version"] for each in answers} == {"1"}
    assert "Rondo-Version" not in nobody.get("/sign-in/").headers


def test_a_version_that_is_not_there_is_refused_and_nothing_is_done(ada: Caller) -> None:
    for version in ("2", "0", "", "1.0", "latest", "x" * 5_000):
        refused = ada.post("/api/agents/", {"name": "other"}, Rondo_Version=version)
        body = problem(refused, 400, "unknown_version")
        assert list(body["errors"]) == ["Rondo-Version"]
        assert len(refused.content) < 500
        assert refused.headers["Rondo-Version"] == "1"
    assert [each["name"] for each in ada.get("/api/agents/").json()["results"]] == ["demo"]


def test_nothing_that_clients_rely_on_was_removed_renamed_or_made_necessary(schema: Any) -> None:
    """A failure here is a new version of the API; before a release, the stored lines may be written again."""
    stored = set(contract.STORED.read_text().splitlines())
    demanded = {line for line in stored if " requires " in line}
    assert not (stored - demanded) - contract.promises(schema)
    known = {line.partition(" ")[0].partition(".")[0] for line in stored}
    new = {line for line in contract.demands(schema) - demanded if line.partition(" ")[0] in known}
    assert not new
