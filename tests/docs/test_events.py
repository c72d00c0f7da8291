"""docs/events.md and docs/mailbox.md against the code: types, scopes, bounds, and the text that a model is shown."""

from __future__ import annotations

import re

from agent_core.strategies import Update, background_updates
from sessions_app import mailbox, stream
from sessions_app.api import streams
from sessions_app.models import EventType, Scope
from sessions_app.stream_parts import QUEUE, Item
from tests.up import ROOT

EVENTS = (ROOT / "docs" / "events.md").read_text()
MAILBOX = (ROOT / "docs" / "mailbox.md").read_text()


def test_the_page_lists_each_type_with_its_scopes() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([a-z, ]+) \|", EVENTS, re.MULTILINE)
    types = {name for names, _ in rows for name in re.findall(r"\w+", names)}
    assert types == {*EventType.values, *streams.PASSING}
    assert {scope for _, scopes in rows for scope in scopes.split(", ")} == set(Scope.values)
    told_to_all = {names for names, scopes in rows if Scope.AGENT.value in scopes}
    assert told_to_all == {"`status`"}


def test_the_fields_of_the_envelope_are_those_of_what_is_sent() -> None:
    [fields] = re.findall(r"`\{([\w, ]+)\}`", EVENTS)
    item = Item(type=EventType.STATUS, about=1)
    assert fields.split(", ") == list(streams._passing(item, "demo"))


def test_numbers_are_those_of_the_code() -> None:
    for sentence in (
        f"leaves {QUEUE:,} events unread",
        f"looks every {stream.POLL:.0f} s",
        f"a comment every {streams.KEEP_ALIVE:.0f} s",
    ):
        assert sentence in EVENTS
    hours = mailbox.STALE_AFTER.total_seconds() / 3600
    for sentence in (
        f"At most {mailbox.MOST_EVENTS} updates and {mailbox.MOST_CHARACTERS:,} characters",
        f"Of more than {mailbox.MOST_ARTIFACTS} artifacts",
        f"waited for more than {hours:.0f} hours",
    ):
        assert sentence in MAILBOX
    reasons = {mailbox.TARGET_GONE, mailbox.SUPERSEDED, mailbox.STALE}
    assert reasons == {each for each in re.findall(r"\(`(\w+)`\)", MAILBOX) if each != "hint"}


def test_updates_look_as_the_page_shows_them() -> None:
    [shown] = re.findall(r"```\n(.*?)\n```", MAILBOX, re.DOTALL)
    update = Update(
        event_type="job_completed",
        summary="The report is ready.",
        detail="Twelve pages.\nThe last one has the figures.",
        artifacts=("report.md", "figures.png"),
    )
    assert shown == f"{background_updates((update,))}\n\n<what the person wrote>"
