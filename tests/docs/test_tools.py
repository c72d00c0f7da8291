"""docs/tools.md names every tool that the apps register, with its effect and the turns that may use it."""

import re

from agent_core import tools
from agent_core.tools import Effect
from sessions_app.agents.documents import write_document
from sessions_app.models import Session, SessionType, Turn, TurnKind
from sessions_app.permits import permit_of, permitted
from sessions_app.queue.kinds import kind_of
from sessions_app.turns.tool_calls import ToolContext
from tests.conftest import Person
from tests.up import ROOT

PAGE = ROOT / "docs" / "tools.md"


def of_the_apps() -> list[tools.Tool]:
    """The tools that no test has registered."""
    return [tool for tool in tools.all() if not tool.run.__module__.startswith("tests")]


def test_each_tool_has_its_row_with_its_effect() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (read|write|dangerous) \|", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == {tool.name: str(tool.effect) for tool in of_the_apps()}


WHERE = {  # a turn's kind, its session's type, and whether another system's post is answered
    "person's message": (TurnKind.MESSAGE, SessionType.SUB, False),
    "hook's": (TurnKind.MESSAGE, SessionType.SUB, True),
    "automation": (TurnKind.AUTOMATION, SessionType.SUB, False),
    "heartbeat": (TurnKind.HEARTBEAT, SessionType.HEARTBEAT, False),
    "background job": (TurnKind.JOB, SessionType.JOB, False),
}
ROW = re.compile(r"^\| `(\w+)` \|" + r" (yes|no|consent|mail)[^|]*\|" * 5, re.MULTILINE)


def offered(person: Person, where: tuple[TurnKind, SessionType, bool]) -> dict[str, str]:
    """What the page says of each tool in such a turn, by what the code offers."""
    kind, session_type, is_post = where
    session = Session(agent=person.agent, owner=person.user, key=f"x:{kind}{is_post}", type=session_type)
    via = {"message": {"via": {"hook": "gone"}}} if is_post else {}
    turn = Turn(session=session, kind=kind, metadata=via)
    interactive = kind_of(turn).interactive
    documents = dict(person.agent.documents.values_list("name", "content"))
    context = ToolContext(
        turn=turn, session=session, agent=person.agent, interactive=interactive, documents=documents
    )
    ours = of_the_apps()
    specs = [tool.spec_for(context) for tool in ours if tool.offered(context)]
    permit = permit_of(turn, (), (), person_waits=interactive)
    told = {tool.name: "no" for tool in ours}
    for spec in permitted(specs, permit, person.agent):
        dangerous = "consent" if interactive else "mail"
        told[spec.name] = dangerous if spec.effect is Effect.DANGEROUS else "yes"
        if spec.withheld:
            told[spec.name] = "no"
    return told


def test_the_table_of_turns_matches_the_tools_offered(person: Person) -> None:
    rows = {name: cells for name, *cells in ROW.findall(PAGE.read_text())}
    write_document(person.agent.pk, "HEARTBEAT.md", '```json\n{"version": 2, "tasks": [\n```')
    for number, where in enumerate(WHERE.values()):
        said = {name: cells[number] for name, cells in rows.items()}
        assert said == offered(person, where), list(WHERE)[number]


def test_no_tool_is_offered_where_it_is_always_refused(person: Person) -> None:
    group = Session(agent=person.agent, type=SessionType.SUB, chat_type="group")
    turn = Turn(session=group, kind=TurnKind.MESSAGE)
    context = ToolContext(turn=turn, session=group, agent=person.agent, interactive=True)
    names = {tool.name for tool in tools.all() if tool.offered(context)}
    assert "cron" in names
    assert not any("private_message" in name for name in names)
