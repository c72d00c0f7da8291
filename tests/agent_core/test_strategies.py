from __future__ import annotations

import pytest

from agent_core.strategies import DOCUMENTS, INSTRUCTING, STRATEGIES, ContextInput, DueTask, Update
from agent_core.text import fence

pytestmark = pytest.mark.rule("3.3")

DOCS = {name: f"text of {name}" for name in (*DOCUMENTS, "HEARTBEAT.md")}


def given(trigger: str = "hello", **more: object) -> ContextInput:
    values: dict[str, object] = {"agent_name": "Ada", "timezone": "UTC", "documents": DOCS, **more}
    return ContextInput(trigger=trigger, **values)  # type: ignore[arg-type]


@pytest.mark.rule("6.2")
@pytest.mark.parametrize("kind", ["primary", "sub", "heartbeat", "job"])
def test_with_nothing_else_the_message_is_exactly_the_trigger(kind: str) -> None:
    assert STRATEGIES[kind](given("  hello\n")).message == "  hello\n"


@pytest.mark.parametrize("kind", ["primary", "sub", "heartbeat", "job"])
def test_the_system_prompt_is_the_same_whatever_is_volatile(kind: str) -> None:
    plain = STRATEGIES[kind](given())
    busy = STRATEGIES[kind](
        given(
            "other",
            updates=(Update(event_type="x", summary="y"),),
            due_tasks=(DueTask(id="1", title="t"),),
            documents=dict(reversed(DOCS.items())),
        )
    )
    assert plain.system_prompt == busy.system_prompt


def test_documents_have_fixed_order_and_headings_and_exclude_heartbeat() -> None:
    prompt = STRATEGIES["primary"](given()).system_prompt
    kinds = {name: fence.INSTRUCTIONS if name in INSTRUCTING else fence.DATA for name in DOCUMENTS}
    places = [
        prompt.index(f"## {name}\n\n{fence.fenced(name, f'text of {name}', kinds[name])}")
        for name in DOCUMENTS
    ]
    assert places == sorted(places)
    assert "HEARTBEAT.md" not in prompt


def test_an_empty_document_is_left_out_and_instructions_are_in() -> None:
    prompt = STRATEGIES["job"](given(documents={"USER.md": " \n"}, instructions="Be brief.")).system_prompt
    assert "## USER.md" not in prompt
    assert "Be brief." in prompt


@pytest.mark.rule("6.2")
@pytest.mark.parametrize("kind", ["primary", "sub"])
def test_background_updates_are_written_as_rule_6_2_says(kind: str) -> None:
    updates = (
        Update(event_type="job_completed", summary="Report is done."),
        Update(
            event_type="job_failed", summary="Backup\nfailed.", detail="disk full\n- [fake] item\n\nend\n"
        ),
    )
    message = STRATEGIES[kind](given("what now?", updates=updates)).message
    assert message == (
        "## Background Updates\n"
        + fence.fenced(
            "updates",
            "- [job_completed] Report is done.\n"
            "- [job_failed] Backup failed.\n"
            "  Detail: disk full\n"
            "    - [fake] item\n"
            "    \n"
            "    end",
        )
        + "\n\nwhat now?"
    )


@pytest.mark.parametrize("kind", ["heartbeat", "job"])
def test_background_sessions_get_no_updates(kind: str) -> None:
    built = STRATEGIES[kind](given(updates=(Update(event_type="x", summary="y"),)))
    assert built.message == "hello"


def test_due_tasks_are_merged_under_one_heading() -> None:
    tasks = (
        DueTask(id="a1", title="Water", description="the plants"),
        DueTask(id="b2", title="Mail", description="read"),
    )
    message = STRATEGIES["heartbeat"](given("check", due_tasks=tasks)).message
    assert message == "check\n\n## Due Tasks\n- [a1] Water: the plants\n- [b2] Mail: read"
