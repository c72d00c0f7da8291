"""The events of docs/api.md and the mailbox of docs/sessions.md against the code."""

import re

import pytest

from interfaces.api.sessions import streams
from sessions_app.mailbox import deposit, updates
from sessions_app.models import EventType, Scope
from sessions_app.models.mailbox import TARGET_GONE
from tests.docs.pages import section

pytestmark = pytest.mark.rule("9.1")

EVENTS = section("api.md", "Events")
MAILBOX = section("sessions.md", "Mailbox")


def test_the_page_lists_each_type_with_its_scopes() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([a-z, ]+) \|", EVENTS, re.MULTILINE)
    types = {name for names, _ in rows for name in re.findall(r"\w+", names)}
    assert types == {*EventType.values, *streams.UNSTORED}
    assert {scope for _, scopes in rows for scope in scopes.split(", ")} == set(Scope.values)
    told_to_all = {names for names, scopes in rows if Scope.AGENT.value in scopes}
    assert told_to_all == {"`status`"}


def test_the_reasons_of_dropped_updates_match_the_page() -> None:
    reasons = {TARGET_GONE, updates.SUPERSEDED, updates.STALE, updates.SETTLED, deposit.TOO_MANY}
    assert reasons == {each for each in re.findall(r"\(`(\w+)`\)", MAILBOX) if each != "hint"}
