"""Tools: documents by revision, in the turn's transaction, live with the next turn (rule 6.7); and what time it is."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from sessions_app.agents.documents import put_document
from sessions_app.models import Document, Session, Turn
from sessions_app.tools.documents import edit_document, read_document
from sessions_app.turns.tool_calls import ToolContext
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("6.7")


def context(person: Person) -> ToolContext:
    session: Session = person.session()
    return ToolContext(turn=Turn(session=session), session=session, agent=person.agent, interactive=True)


def refusal(call: Any, person: Person, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as refused:
        call(context(person), arguments)
    return str(refused.value)


def memory(person: Person) -> tuple[str, int]:
    document = Document.objects.get(agent=person.agent, name="MEMORY.md")
    return document.content, document.revision


def test_reading_shows_the_text_and_its_revision(person: Person) -> None:
    assert read_document(context(person), {"name": "USER.md"}) == "USER.md, revision 0:\n\n"
    put_document(person.agent.pk, "USER.md", "Likes tea.")
    assert read_document(context(person), {"name": "USER.md"}) == "USER.md, revision 1:\n\nLikes tea."
    for name in ("nope.md", "../MEMORY.md", "", None, 7):
        assert "name must be one of AGENTS.md" in refusal(read_document, person, name=name)


def test_an_agent_reads_and_writes_its_own_documents_only(person: Person) -> None:
    other = new_person("eve")
    put_document(other.agent.pk, "MEMORY.md", "hers")
    assert "hers" not in read_document(context(person), {"name": "MEMORY.md"})
    edit_document(context(person), {"name": "MEMORY.md", "revision": 0, "content": "mine"})
    assert memory(other) == ("hers", 1)


def test_an_edit_names_the_revision_that_was_read(person: Person) -> None:
    assert tools.get("edit_document").transactional
    edited = edit_document(context(person), {"name": "MEMORY.md", "revision": 0, "content": "one"})
    assert edited.endswith("revision 1.")
    put_document(person.agent.pk, "MEMORY.md", "by a person")
    late = {"name": "MEMORY.md", "revision": 1, "content": "too late"}
    assert "has changed since revision 1" in refusal(edit_document, person, **late)
    assert memory(person) == ("by a person", 2)


def test_a_part_is_replaced_where_it_stands_once(person: Person) -> None:
    put_document(person.agent.pk, "MEMORY.md", "- tea\n- tea\n- rain [register]")
    part = {"name": "MEMORY.md", "revision": 1, "old_text": "[register]", "new_text": "[registered: ab]"}
    edit_document(context(person), part)
    assert memory(person) == ("- tea\n- tea\n- rain [registered: ab]", 2)
    given: dict[str, Any] = {"name": "MEMORY.md", "revision": 2, "new_text": "x"}
    assert "2 times" in refusal(edit_document, person, **given, old_text="- tea")
    assert "0 times" in refusal(edit_document, person, **given, old_text="")
    edit_document(context(person), given | {"old_text": "- tea\n- tea\n", "new_text": ""})
    assert memory(person) == ("- rain [registered: ab]", 3)


def test_a_refused_edit_tells_the_model_what_to_correct(person: Person) -> None:
    given = {"name": "MEMORY.md", "revision": 0}
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        (given | {"name": "AGENTS.md", "content": "x"}, "name must be one of MEMORY.md"),
        (given | {"name": "HEARTBEAT.md", "content": "x"}, "name must be one of MEMORY.md"),
        ({"name": "MEMORY.md", "content": "x"}, "revision must be"),
        (given | {"revision": True, "content": "x"}, "revision must be"),
        (given, "either content"),
        (given | {"content": "x", "old_text": "y"}, "either content"),
        (given | {"old_text": "y"}, "new_text is missing"),
        (given | {"content": 5}, "must be text"),
        (given | {"content": "x" * 200_001}, "longer than"),
        (given | {"content": "a\x00b"}, "NUL"),
    )
    for arguments, words in refused:
        assert words in refusal(edit_document, person, **arguments), arguments
    assert not Document.objects.filter(agent=person.agent).exists()


def now(person: Person) -> dict[str, str]:
    answer: dict[str, str] = json.loads(tools.get("current_time").run(context(person), {}))
    return answer


def test_it_answers_day_weekday_and_time_in_the_agents_zone(person: Person) -> None:
    for zone in ("UTC", "Asia/Kolkata", "Pacific/Kiritimati"):
        person.agent.timezone = zone
        told = now(person)
        at = datetime.fromisoformat(told["time"])
        assert abs(at - datetime.now(UTC)) < timedelta(seconds=10)
        assert told["timezone"] == zone
        assert told["date"] == at.date().isoformat()
        assert told["weekday"] == at.strftime("%A")
    person.agent.timezone = "Mars/Olympus"  # without data
    told = now(person)
    assert told["timezone"] == "UTC"
    assert told["time"].endswith("+00:00")
    assert tools.get("current_time").idempotent, "an interrupted call is made again"
