"""The states of docs/glossary.md against enums, tables of arrows and CHECKs of the database, in both directions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from django.db import models

from agent_core.execution import Status
from automations.models import (
    MESSAGE_ARROWS,
    RUN_ARROWS,
    MessageStatus,
    RunRecord,
    RunState,
    ScheduledMessage,
)
from interfaces.api.sessions.sessions import MAIL_STATES, SESSION_STATES
from sessions_app.models import (
    CONSENT_ARROWS,
    DELIVERY_ARROWS,
    EXECUTION_ARROWS,
    ConsentQuestion,
    ConsentState,
    Delivery,
    DeliveryState,
    ExecutionState,
    Session,
    SessionState,
    Turn,
    TurnState,
)
from sessions_app.models.session import SESSION_ARROWS
from sessions_app.models.turn import ENDED_STATES, OPEN_STATES, TURN_ARROWS
from tests.agent_core.planner.plans import fresh
from tests.races import selected
from tests.up import ROOT

pytestmark = pytest.mark.rule("7.2")

PAGE = ROOT / "docs" / "glossary.md"
EDGE = "[*]"
_ARROW = re.compile(r"^(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: .+)?$")


@dataclass(kw_only=True)
class Diagram:
    """The arrows of one stateDiagram; those within `state open { … }` apart."""

    arrows: set[tuple[str, str]] = field(default_factory=set)
    inner: set[tuple[str, str]] = field(default_factory=set)

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


def _diagrams() -> dict[str, Diagram]:
    found = {}
    for section in re.split(r"\n### States of an? ", PAGE.read_text())[1:]:
        title = section.splitlines()[0].capitalize()
        [block] = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", section, re.DOTALL)
        diagram = Diagram()
        target = diagram.arrows
        for line in filter(None, map(str.strip, block.splitlines())):
            if line.startswith("state "):
                target = diagram.inner
            elif line == "}":
                target = diagram.arrows
            else:
                match = _ARROW.match(line)
                assert match, line
                target.add((match[1], match[2]))
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


def _check(table: str, name: str) -> str:
    """A CHECK as the database has it."""
    where = "conrelid = %s::regclass AND conname = %s"
    [check] = selected(f"SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE {where}", table, name)
    return str(check)


def _listed(check: str) -> set[str]:
    """The texts of its lists."""
    return set(re.findall(r"'(\w+)'::character varying", check))


def _first_state(model: type[models.Model]) -> str:
    row: Any = model()
    if isinstance(row, ExecutionState):
        return str(fresh().status)
    return str(row.status if isinstance(row, ScheduledMessage) else row.state)


@pytest.mark.django_db
def test_states_and_arrows_are_those_of_the_code_and_the_database() -> None:
    assert set(DIAGRAMS) == {*STORED, "Mailbox event"}
    for title, (model, states, arrows) in STORED.items():
        diagram = DIAGRAMS[title]
        assert diagram.states == {str(state.value) for state in states}, title
        assert diagram.states == {str(state) for state in arrows}, title
        assert diagram.between == {(str(at), str(to)) for at, ways in arrows.items() for to in ways}, title
        [name] = [each.name for each in model._meta.constraints if each.name.endswith("_state_known")]
        assert _listed(_check(model._meta.db_table, name)) == diagram.states, title
        # a gap is recorded when it is over; what is not worth telling is never on its way
        extra = {"Run": {"skipped"}, "Delivery": {"withheld"}}.get(title, set())
        assert diagram.starts == {_first_state(model)} | extra, title


REOPENED = {"Run": {"failed"}}  # an end, after which a person may try again


@pytest.mark.django_db
def test_final_states_have_no_arrows_and_match_the_database() -> None:
    for title, check in END_CHECKS.items():
        model, _, arrows = STORED[title]
        ended = {str(state) for state, ways in arrows.items() if not ways} | REOPENED.get(title, set())
        assert DIAGRAMS[title].ends == ended, title
        halves = _check(model._meta.db_table, check).split(" OR ((")
        [open_half] = [half for half in halves if "IS NULL" in half]
        [ended_half] = [half for half in halves if "IS NOT NULL" in half]
        assert _listed(ended_half) == ended, title
        assert _listed(open_half) == DIAGRAMS[title].states - ended, title
    assert {str(state) for state in ENDED_STATES} == DIAGRAMS["Turn"].ends
    assert {str(state) for state in OPEN_STATES} == DIAGRAMS["Turn"].states - DIAGRAMS["Turn"].ends


def test_sessions_show_diagram_states_with_open_as_active_or_idle() -> None:
    diagram = DIAGRAMS["Session"]
    assert set(SESSION_STATES) == diagram.states - {"open"} | diagram.inner_states
    assert diagram.inner_states == {"active", "idle"}


def test_mailbox_events_have_the_states_of_the_diagram() -> None:
    diagram = DIAGRAMS["Mailbox event"]
    assert diagram.states == set(MAIL_STATES)
    assert diagram.starts == {"pending", "dropped"}  # its target may be gone already
    assert diagram.ends == diagram.states - {"pending"}
