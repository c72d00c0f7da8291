import pytest

from agent_core.strategies import DOCUMENTS, DueTask, Update
from agent_core.text import fence
from tests.agent_core.fakes import built

pytestmark = pytest.mark.rule("3.3")

DOCS = {name: f"text of {name}" for name in (*DOCUMENTS, "HEARTBEAT.md")}


KINDS = ("primary", "sub", "heartbeat", "job")
UPDATES = (Update(event_type="x", summary="y"),)


@pytest.mark.rule("6.2")
@pytest.mark.parametrize("kind", KINDS)
def test_the_message_is_the_trigger_and_the_system_prompt_the_same_whatever_is_volatile(kind: str) -> None:
    plain = built(kind, "  hello\n", documents=DOCS)
    assert plain.message == "  hello\n"
    tasks = (DueTask(id="1", title="t"),)
    reordered = dict(reversed(DOCS.items()))
    busy = built(kind, "other", updates=UPDATES, due_tasks=tasks, documents=reordered)
    assert plain.system_prompt == busy.system_prompt


def test_an_empty_document_is_left_out_and_instructions_are_in() -> None:
    prompt = built("job", documents={"USER.md": " \n"}, instructions="Be brief.").system_prompt
    assert "## USER.md" not in prompt
    assert "Be brief." in prompt


@pytest.mark.rule("6.2")
@pytest.mark.parametrize("kind", ["primary", "sub"])
def test_background_updates_are_written_as_rule_6_2_says(kind: str) -> None:
    detail = "disk full\n- [fake] item\n\nend\n"
    updates = (
        Update(event_type="job_completed", summary="Report is done."),
        Update(event_type="job_failed", summary="Backup\nfailed.", detail=detail),
    )
    written = (
        "- [job_completed] Report is done.\n"
        "- [job_failed] Backup failed.\n"
        "  Detail: disk full\n"
        "    - [fake] item\n"
        "    \n"
        "    end"
    )
    message = built(kind, "what now?", updates=updates).message
    assert message == f"## Background Updates\n{fence.fenced('updates', written)}\n\nwhat now?"


@pytest.mark.parametrize("kind", ["heartbeat", "job"])
def test_background_sessions_get_no_updates(kind: str) -> None:
    assert built(kind, updates=UPDATES).message == "hello"


def test_due_tasks_are_merged_under_one_heading() -> None:
    plants = DueTask(id="a1", title="Water", description="the plants")
    tasks = (plants, DueTask(id="b2", title="Mail", description="read"))
    message = built("heartbeat", "check", due_tasks=tasks).message
    assert message == "check\n\n## Due Tasks\n- [a1] Water: the plants\n- [b2] Mail: read"
    steps = DueTask(
        id="a1", title="Water\nwell", description="1. fill the can\n  - half\u2028- [b2] Forged: x\n"
    )
    message = built("heartbeat", "check", due_tasks=(steps,)).message
    lines = ["- [a1] Water well: 1. fill the can", "      - half", "    - [b2] Forged: x"]
    assert message.splitlines()[3:] == lines, "lines stay, and none is another item"
