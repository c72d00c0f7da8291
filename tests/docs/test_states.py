"""docs/states.md against the enums, the tables of arrows and the CHECKs of the database, in both directions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, models

from agent_core.execution import Status
from automations.models import (
    MESSAGE_ARROWS,
    RUN_ARROWS,
    MessageStatus,
    RunRecord,
    RunState,
    ScheduledMessage,
)
from sessions_app.api.mailbox_serializers import MAIL_STATES
from sessions_app.api.serializers import SESSION_STATES
from sessions_app.models import (
    CONSENT_ARROWS,
    DELIVERY_ARROWS,
    EXECUTION_ARROWS,
    ConsentQuestion,
    ConsentState,
    Delivery,
    DeliveryState,
    ExecutionState,
    MailboxEvent,
    Session,
    SessionState,
    Turn,
    TurnState,
)
from sessions_app.models.session import SESSION_ARROWS
from sessions_app.models.turn import ENDED_STATES, OPEN_STATES, TURN_ARROWS
from tests.agent_core.planner.plans import fresh
from tests.up import ROOT

pytestmark = pytest.mark.rule("7.2")

PAGE = ROOT / "docs" / "states.md"
EDGE = "[*]"
NOT_YET = "(not yet)"
_ARROW = re.compile(r"^(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: (.+))?$")
_MADE = re.compile(r"^\| (\w+) → ([\w, ]+) \| (.+) \|$", re.MULTILINE)
_PLACE = re.compile(r"`([\w/]+\.py)` ((?:`\w+`(?:, )?)+)")


@dataclass(kw_only=True)
class Diagram:
    """One stateDiagram: its arrows with their labels; those within `state open { … }` apart."""

    section: str
    arrows: dict[tuple[str, str], str] = field(default_factory=dict)
    inner: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def states(self) -> set[str]:
        return {name for arrow in self.arrows for name in arrow} - {EDGE}

    @property
    def inner_states(self) -> set[str]:
        return {name for arrow in self.inner for name in arrow} - {EDGE}

    @property
    def between(self) -> set[tuple[str, str]]:
        return {arrow for arrow in self.arrows if EDGE not in arrow}

    @property
    def starts(self) -> set[str]:
        return {to for at, to in self.arrows if at == EDGE}

    @property
    def ends(self) -> set[str]:
        return {at for at, to in self.arrows if to == EDGE}

    @property
    def not_yet(self) -> set[tuple[str, str]]:
        return {arrow for arrow, label in self.arrows.items() if NOT_YET in label}


def _diagrams() -> dict[str, Diagram]:
    found = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title = section.splitlines()[0]
        [block] = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", section, re.DOTALL)
        diagram = Diagram(section=section)
        target = diagram.arrows
        for line in filter(None, map(str.strip, block.splitlines())):
            if line.startswith("state "):
                target = diagram.inner
            elif line == "}":
                target = diagram.arrows
            else:
                match = _ARROW.match(line)
                assert match, line
                assert (match[1], match[2]) not in target, line
                target[match[1], match[2]] = match[3] or ""
        found[title] = diagram
    return found


DIAGRAMS = _diagrams()
STORED: dict[
    str, tuple[type[models.Model], type[StrEnum | models.TextChoices], Mapping[Any, tuple[Any, ...]]]
] = {
    "Turn": (Turn, TurnState, TURN_ARROWS),
    "Run": (RunRecord, RunState, RUN_ARROWS),
    "Scheduled message": (ScheduledMessage, MessageStatus, MESSAGE_ARROWS),
    "Session": (Session, SessionState, SESSION_ARROWS),
    "Delivery": (Delivery, DeliveryState, DELIVERY_ARROWS),
    "Execution": (ExecutionState, Status, EXECUTION_ARROWS),
    "Consent question": (ConsentQuestion, ConsentState, CONSENT_ARROWS),
}
END_CHECKS = {
    "Turn": "turn_finished_iff_ended",
    "Run": "run_finished_iff_ended",
    "Delivery": "delivery_ended_iff_nothing_follows",
}
stored = pytest.mark.parametrize("title", STORED)


def _check(table: str, name: str) -> str:
    """A CHECK as the database has it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND conname = %s",
            [table, name],
        )
        row = cursor.fetchone()
    assert row is not None, name
    return str(row[0])


def _listed(check: str) -> set[str]:
    """The texts of its lists, each of which is one constant."""
    return {text for texts in re.findall(r"'\{([\w,]+)\}'::text\[\]", check) for text in texts.split(",")}


def test_there_is_a_diagram_for_each_thing_that_has_states() -> None:
    assert set(DIAGRAMS) == {*STORED, "Mailbox event"}


@stored
def test_states_of_the_diagram_are_those_of_the_enum(title: str) -> None:
    _, states, arrows = STORED[title]
    values = {str(state.value) for state in states}
    assert DIAGRAMS[title].states == values
    assert {str(state) for state in arrows} == values


@stored
def test_arrows_of_the_diagram_are_those_of_the_table(title: str) -> None:
    arrows = {(str(at), str(to)) for at, ways in STORED[title][2].items() for to in ways}
    assert DIAGRAMS[title].between == arrows


@pytest.mark.django_db
@stored
def test_states_of_the_diagram_are_those_that_the_database_takes(title: str) -> None:
    model, _, _ = STORED[title]
    [name] = [each.name for each in model._meta.constraints if each.name.endswith("_state_known")]
    assert _listed(_check(model._meta.db_table, name)) == DIAGRAMS[title].states


@pytest.mark.django_db
@pytest.mark.parametrize("title", END_CHECKS)
def test_final_states_have_no_arrows_and_match_the_database(title: str) -> None:
    model, _, arrows = STORED[title]
    ended = {str(state) for state, ways in arrows.items() if not ways}
    assert DIAGRAMS[title].ends == ended
    whole = _check(model._meta.db_table, END_CHECKS[title])
    halves = whole.split(" OR ((")
    [open_half] = [half for half in halves if "IS NULL" in half]
    [ended_half] = [half for half in halves if "IS NOT NULL" in half]
    assert _listed(ended_half) == ended
    assert _listed(open_half) == DIAGRAMS[title].states - ended


def test_open_and_ended_turns_are_those_of_the_diagram() -> None:
    ended = {str(state) for state in ENDED_STATES}
    assert ended == DIAGRAMS["Turn"].ends
    assert {str(state) for state in OPEN_STATES} == DIAGRAMS["Turn"].states - ended


@stored
def test_a_row_begins_where_the_diagram_begins(title: str) -> None:
    row = STORED[title][0]()
    if isinstance(row, ExecutionState):
        default = str(fresh().status)
    else:
        default = row.status if isinstance(row, ScheduledMessage) else row.state  # type: ignore[attr-defined]
    # a gap is recorded when it is over; what is not worth telling is never on its way
    extra = {"Run": {"skipped"}, "Delivery": {"withheld"}}.get(title, set())
    assert DIAGRAMS[title].starts == {str(default)} | extra


def test_sessions_show_diagram_states_with_open_as_active_or_idle() -> None:
    diagram = DIAGRAMS["Session"]
    assert set(SESSION_STATES) == diagram.states - {"open"} | diagram.inner_states
    assert diagram.inner_states == {"active", "idle"}


@pytest.mark.django_db
def test_mailbox_events_have_the_states_of_the_diagram() -> None:
    diagram = DIAGRAMS["Mailbox event"]
    assert diagram.states == set(MAIL_STATES)
    assert diagram.starts == {"pending", "dropped"}  # its target may be gone already
    assert diagram.ends == diagram.states - {"pending"}
    columns = {each.name for each in MailboxEvent._meta.get_fields()}
    assert {f"{state}_at" for state in diagram.ends} <= columns
    never_both = _check(MailboxEvent._meta.db_table, "mailbox_acknowledged_or_dropped")
    assert {name for name in columns if re.search(rf"\b{name}\b", never_both)} == {
        "acknowledged_at",
        "dropped_at",
    }
    assert "reason" in _check(MailboxEvent._meta.db_table, "mailbox_dropped_with_reason")


@pytest.mark.parametrize("title", DIAGRAMS)
def test_each_arrow_has_existing_code_or_a_mark(title: str) -> None:
    diagram = DIAGRAMS[title]
    made = set()
    for at, ends, places in _MADE.findall(diagram.section):
        made |= {(at, to) for to in ends.split(", ")}
        named = _PLACE.findall(places)
        assert named, places
        for file, functions in named:
            text = (ROOT / file).read_text()
            missing = [name for name in re.findall(r"`(\w+)`", functions) if f"def {name}(" not in text]
            assert missing == [], file
    assert made == diagram.between - diagram.not_yet


def test_what_is_marked_as_not_yet_made_is_made_nowhere() -> None:
    """Whoever builds one of these takes the mark away."""
    code = _code("sessions_app") | _code("automations")
    archiving = [name for name, text in code.items() if "state=SessionState.ARCHIVED" in text]
    retrying = [name for name, text in code.items() if "not_before=" in text]
    dropping = [name for name, text in code.items() if "dropped_at=" in text]
    sending = [name for name, text in code.items() if "state=DeliveryState.SENT," in text]
    assert (DIAGRAMS["Session"].not_yet != set()) == (archiving == [])
    assert (DIAGRAMS["Run"].not_yet != set()) == (retrying == [])
    assert (DIAGRAMS["Mailbox event"].not_yet != set()) == (dropping == [])
    assert (DIAGRAMS["Delivery"].not_yet != set()) == (sending == [])


def _code(app: str) -> dict[Path, str]:
    return {
        path: path.read_text()
        for path in (ROOT / app).rglob("*.py")
        if not {"migrations", "admin"} & set(path.relative_to(ROOT).parts)
    }
