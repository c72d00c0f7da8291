"""HEARTBEAT.md and the rows: reading shows them, writing changes them in one transaction or not at all (rule 6.6)."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from automations.exceptions import BadJob, TooManyRoutines
from automations.models import CronJob, JobClock, RunRecord
from automations.routines.edit import agent_routines, remove_routine, update_routine
from automations.routines.heartbeat_document import NAME, corruption
from automations.routines.heartbeat_md import prose
from automations.routines.plan import routine_schedule_text
from sessions_app.agents.documents import LONGEST_DOCUMENT, Written, view_of, write_document
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, Document, MailboxEvent, TurnInput
from sessions_app.turns.tool_calls import ToolContext
from tests.automations.jobs.made import add, at_once, code_of, planned_for
from tests.automations.tools.test_routines import context, heartbeat
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("6.6")


def put(person: Person, content: str, **options: Any) -> Written:
    return write_document(person.agent.pk, NAME, content, **options)


def text(person: Person) -> str:
    """The document as it is read."""
    stored = Document.objects.filter(agent=person.agent, name=NAME).first()
    found = view_of(stored or Document(agent=person.agent, name=NAME, revision=0))
    assert found is not None
    return found.content


def prose_of(person: Person) -> str:
    return prose(Document.objects.get(agent=person.agent, name=NAME).content)


def tasks(person: Person) -> list[dict[str, Any]]:
    """The tasks that it lists."""
    content = text(person)
    if "```json" not in content:
        return []
    return list(json.loads(content.split("```json\n")[1].split("\n```")[0])["tasks"])


def document(*given: dict[str, Any], prose: str = "Be brief.") -> str:
    return f"{prose}\n\n```json\n{json.dumps({'version': 2, 'tasks': given})}\n```\n\nThe end.\n"


def rows() -> tuple[list[Any], ...]:
    return tuple(list(model.objects.order_by("pk").values()) for model in (CronJob, JobClock))


def outcome(written: Written) -> tuple[str, str]:
    assert written.taken is not None
    return written.taken.parse, written.taken.problem


HN = {"id": "daily_hn", "title": "HN", "description": "Read it.", "schedule": "0 9 * * *"}


def test_reading_shows_the_rows_even_without_a_stored_document(person: Person) -> None:
    assert text(person) == ""
    job = add(person, schedule="1h", description="Drink.")
    made = CronJob.objects.get(pk=job.pk).created_at
    times = {"next_run_at": planned_for(job).isoformat(), "created_at": made.isoformat()}
    assert tasks(person) == [times | {
        "id": job.pk, "title": "Water", "description": "Drink.", "schedule": "1h", "timezone": "UTC",
        "execution_mode": "inline", "source": "manual", "enabled": True, "state": "pending", "last_run_at": None,
        "timeout_seconds": None, "retry": 0, "max_retry": 3, "error_message": None,
    }]  # fmt: skip
    update_routine(job.pk, {"title": "Tea"})
    assert tasks(person)[0]["title"] == "Tea"
    remove_routine(job.pk)
    assert tasks(person) == []


def test_an_unknown_id_is_new_with_its_defaults(person: Person) -> None:
    Agent.objects.filter(pk=person.agent.pk).update(timezone="Asia/Shanghai")
    assert outcome(put(person, document(HN))) == ("ok", "")
    job = agent_routines(person.agent.pk).get()
    assert (job.pk, job.name, job.description, job.expr) == ("daily_hn", "HN", "Read it.", "0 9 * * *")
    own = (job.execution_mode, job.timezone, job.source, job.max_retry)
    assert own == ("inline", "Asia/Shanghai", "manual", 3)
    assert JobClock.objects.get(job=job).inline
    assert planned_for(job).hour == 1
    assert text(person).startswith("Be brief.\n\n```json\n")
    assert text(person).endswith("```\n\nThe end.\n")
    assert prose_of(person) == "Be brief.\n\nThe end."


def test_writing_what_was_read_changes_nothing(person: Person) -> None:
    put(person, document(HN))
    add(person, "Every", schedule="90m", timeout_seconds=30, execution_mode="isolated", timezone="Asia/Tokyo")
    add(person, "Once", schedule=None, next_run_at="2031-01-01T00:00:00Z", task_type="time_reminder")
    add(person, "Now", schedule=None)
    before, read = rows(), text(person)
    assert outcome(put(person, read)) == ("ok", "")
    assert (rows(), text(person)) == (before, read)
    assert not RunRecord.objects.exists()


def test_unknown_task_fields_survive_reading_and_writing(person: Person) -> None:
    colour, owner = {"x-colour": {"dark": ["red"]}}, {"owner": "Ada"}
    given = document(HN | colour, {"title": "Water", "schedule": "1h"} | owner)
    assert outcome(put(person, given))[0] == "ok"
    hn, water = tasks(person)
    assert (hn["x-colour"], water["owner"]) == (colour["x-colour"], "Ada")
    update_routine(water["id"], {"title": "Water the plants"})
    assert outcome(put(person, text(person)))[0] == "ok"
    kept = [task.keys() & {"x-colour", "owner", "title"} for task in tasks(person)]
    assert kept == [{"x-colour", "title"}, {"owner", "title"}]
    assert tasks(person)[1]["title"] == "Water the plants"
    taken = add(new_person("bob"), "Theirs")
    assert outcome(put(person, document(HN | {"id": taken.pk, "priority": 1})))[0] == "ok"
    assert [(task["id"] == taken.pk, task["priority"]) for task in tasks(person)] == [(False, 1)]


def test_a_known_id_is_updated_and_run_fields_are_ignored(person: Person) -> None:
    put(person, document(HN))
    due = JobClock.objects.get().next_run_at
    run_time = {
        "state": "done", "last_run_at": "2020-01-01T00:00:00Z", "next_run_at": "2020-01-01T00:00:00Z", "retry": 2,
        "error_message": "x", "created_at": "2020-01-01T00:00:00Z",
    }  # fmt: skip
    put(person, document(HN | run_time | {"title": "News"}))
    job = agent_routines(person.agent.pk).get()
    assert (job.name, job.clock.next_run_at, job.revision) == ("News", due, 2)
    put(person, document(HN | {"schedule": "2h", "execution_mode": "isolated", "enabled": False}))
    job = agent_routines(person.agent.pk).get()
    assert (job.every_seconds, job.execution_mode, job.enabled) == (7200, "isolated", False)
    assert [task["enabled"] for task in tasks(person)] == [False]  # it stays, to be switched on again
    put(person, document(HN | {"enabled": True}))
    assert agent_routines(person.agent.pk).get().enabled


def test_instructions_and_limits_are_listed_and_cleared_by_empty_values(person: Person) -> None:
    own = {"instructions": "Be short.", "policy": {"max_tool_calls": 2, "max_attempts": 1}}
    put(person, document(HN | own))
    [task] = tasks(person)
    assert {name: task[name] for name in own} == own
    put(person, document(HN | {"instructions": "", "policy": {"max_attempts": 1}}))
    [task] = tasks(person)
    assert "instructions" not in task
    assert task["policy"] == {"max_attempts": 1}


@pytest.mark.rule("6.4")
def test_a_new_task_without_a_mode_gets_the_inferred_one(person: Person) -> None:
    """As the service does; version 1 knows no modes, and a known task keeps its mode."""
    given: dict[str, tuple[dict[str, Any], str]] = {
        "long": ({"timeout_seconds": 61}, "isolated"),
        "wordy": ({"description": "x" * 201}, "isolated"),
        "short": ({"timeout_seconds": 60, "description": "x" * 200}, "inline"),
        "null": ({"timeout_seconds": 61, "execution_mode": None}, "isolated"),
        "chosen": ({"timeout_seconds": 61, "execution_mode": "inline"}, "inline"),
        "reminder": ({"timeout_seconds": 61, "task_type": "time_reminder"}, "inline"),
    }
    wanted = {name: mode for name, (_, mode) in given.items()}
    content = document(*({"id": n, "title": n, "schedule": "1h"} | own for n, (own, _) in given.items()))
    put(person, content)
    assert dict(agent_routines(person.agent.pk).values_list("pk", "execution_mode")) == wanted
    put(person, content.replace("61", "30"))
    assert dict(agent_routines(person.agent.pk).values_list("pk", "execution_mode")) == wanted
    other = new_person("bob")
    put(other, content.replace('"version": 2', '"version": 1'))
    found = dict(agent_routines(other.agent.pk).values_list("name", "execution_mode"))
    assert found == dict.fromkeys(given, "inline")


@pytest.mark.parametrize("way", ["put", "repair"])
def test_fields_that_a_known_task_leaves_out_keep_their_values(person: Person, way: str) -> None:
    own: dict[str, Any] = {
        "description": "Read it.", "instructions": "Be short.", "timezone": "Asia/Tokyo", "execution_mode": "isolated",
        "enabled": False, "timeout_seconds": 120, "policy": {"max_attempts": 1}, "max_retry": 1,
    }  # fmt: skip
    add(person, "HN", routine_id="daily_hn", **(own | {"schedule": "0 9 * * *"}))
    once = {"routine_id": "once", "next_run_at": "2031-01-01T09:00", "timezone": "Asia/Tokyo"}
    add(person, "Once", **once)
    before = list(CronJob.objects.order_by("pk").values())
    # a time without offset is in the routine's zone
    bare = [{"id": "daily_hn"}, {"id": "once", "next_run_at": "2031-01-01T09:00"}]
    if way == "put":
        put(person, document(*bare, {"title": "HN", "schedule": "1h"}))
        agent_routines(person.agent.pk).get(schedule_kind="every").delete()
        put(person, document(*bare))
    else:
        fix(heartbeat(person), put(person, document(*bare).replace("]", "")).document.revision, *bare)
    assert list(CronJob.objects.order_by("pk").values()) == before
    cleared = {"id": "daily_hn", "timeout_seconds": None, "next_run_at": "2031-01-01T00:00"}
    put(person, document(cleared, bare[1]))
    [changed, _] = agent_routines(person.agent.pk)
    assert (changed.timeout_seconds, changed.expr, changed.timezone) == (None, "0 9 * * *", "Asia/Tokyo")
    with pytest.raises(BadJob, match="'other' is new and has no title"):
        put(person, document(*bare, {"id": "other", "schedule": "1h"}))


def test_an_absent_id_is_disabled_and_not_shown_and_a_finished_one_is_hidden(person: Person) -> None:
    done = add(person, "Done", schedule=None)
    JobClock.objects.filter(job=done).update(next_run_at=None)
    assert tasks(person) == []
    put(person, document(HN, {"title": "Other", "schedule": "1h"}))
    put(person, document(HN))
    enabled = dict(agent_routines(person.agent.pk).values_list("name", "enabled"))
    assert enabled == {"HN": True, "Other": False, "Done": True}
    assert [task["title"] for task in tasks(person)] == ["HN"]


def test_a_task_with_an_unusable_id_is_matched_when_rewritten(person: Person) -> None:
    put(new_person("bob"), document(HN))
    for _ in range(2):
        put(person, document(HN, HN | {"id": "has spaces 每日"}))
        assert agent_routines(person.agent.pk).count() == 2
    assert not agent_routines(person.agent.pk).filter(pk="daily_hn").exists()
    assert agent_routines(person.agent.pk).filter(enabled=True).count() == 2


def test_tasks_without_id_written_twice_are_the_same_routines(person: Person) -> None:
    every, cron = {"title": "Every", "schedule": "1h"}, {"title": "Cron", "schedule": "0 9 * * *"}
    content = document(every, {"title": "Now"}, cron)
    put(person, content)
    JobClock.objects.filter(job__name="Now").update(next_run_at=None)  # it was done
    put(person, content)
    enabled = dict(agent_routines(person.agent.pk).values_list("name", "enabled"))
    assert enabled == dict.fromkeys(["Cron", "Every", "Now"], True)
    assert agent_routines(person.agent.pk).count() == 3
    assert JobClock.objects.get(job__name="Now").next_run_at is None


def test_text_with_ids_is_stored_verbatim_and_read_with_state(person: Person) -> None:
    content = document(HN)
    put(person, content)
    assert Document.objects.get(agent=person.agent, name=NAME).content == content
    assert '"state": "pending"' in text(person)
    said = tools.get("read_document").run(heartbeat(person), {"name": NAME})
    assert said == f"{NAME}, revision 1:\n\n{text(person)}"


def test_a_once_task_moves_with_its_instant(person: Person) -> None:
    task = {"id": "once", "title": "Once", "next_run_at": "2031-01-01T00:00:00Z"}
    put(person, document(task))
    put(person, document(task | {"next_run_at": "2032-01-01T08:00:00+08:00"}))
    job: Any = agent_routines(person.agent.pk).get()
    assert job.at.isoformat() == "2032-01-01T00:00:00+00:00" == planned_for(job).isoformat()
    put(person, document(task | {"schedule": "1d"}))
    assert agent_routines(person.agent.pk).get().schedule_kind == "every"
    put(person, document(task | {"schedule": None}))
    assert agent_routines(person.agent.pk).get().at is not None


def test_a_corrupted_text_changes_no_routine_and_is_stored_verbatim(person: Person) -> None:
    put(person, document(HN))
    before = rows()
    broken = document(HN).replace('"HN"', '"HN')
    parse, problem = outcome(put(person, broken))
    assert (parse, rows(), text(person)) == ("corrupted", before, broken)
    assert "cannot be read" in problem
    stored = Document.objects.get(agent=person.agent, name=NAME)
    told: Any = corruption(person.agent.pk)
    assert (told.revision, told.problem) == (stored.revision, problem)
    assert put(person, document(HN)).document.revision == stored.revision + 1
    assert corruption(person.agent.pk) is None
    assert rows() == before


def test_an_empty_text_changes_no_routine_and_keeps_its_prose(person: Person) -> None:
    put(person, document(HN))
    assert outcome(put(person, "Only prose.\n")) == ("empty", "")
    assert agent_routines(person.agent.pk).get().enabled
    assert prose_of(person) == "Only prose."
    assert [task["id"] for task in tasks(person)] == ["daily_hn"]
    assert text(person).startswith("Only prose.\n\n## Tasks\n")
    assert outcome(put(person, "")) == ("empty", "")
    assert agent_routines(person.agent.pk).get().enabled


def test_what_a_routine_may_not_be_refuses_the_whole_text(person: Person) -> None:
    put(person, document(HN))
    before = text(person)
    Agent.objects.filter(pk=person.agent.pk).update(routine_limit=2)
    extra = [{"title": f"Routine {number}", "schedule": "1h"} for number in range(2)]
    with pytest.raises(TooManyRoutines):
        put(person, document(HN | {"title": "News"}, *extra))
    past = document(HN | {"schedule": None, "next_run_at": "2020-01-01T00:00:00Z"})
    assert code_of(partial(put, person, past)) == "past_at"
    assert text(person) == before
    assert agent_routines(person.agent.pk).get().name == "HN"
    put(person, document(*extra))  # what is absent makes room
    assert agent_routines(person.agent.pk).filter(enabled=True).count() == 2


ENDED = {"title": "Tell a joke", "schedule": None, "next_run_at": "2026-02-13T12:00:00Z", "state": "done"}


@pytest.mark.parametrize("change", [{}, {"next_run_at": None}, {"state": "pending"}])
@pytest.mark.parametrize("identity", [{}, {"id": "joke"}])
def test_a_finished_one_shot_stays_done_as_others_apply(person: Person, change: Any, identity: Any) -> None:
    once: dict[str, Any] = ENDED | change
    given = document(HN, once | identity)
    for _ in range(2):
        assert outcome(put(person, given)) == ("ok", "")
    joke = agent_routines(person.agent.pk).get(name="Tell a joke")
    assert joke.clock.next_run_at is None
    assert joke.clock.last_slot == joke.at
    assert planned_for(agent_routines(person.agent.pk).get(name="HN")) > datetime.now(UTC)
    [shown_joke] = [task for task in tasks(person) if task["title"] == "Tell a joke"]
    assert shown_joke["state"] == "done"
    assert put(person, text(person)).taken
    later = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0).isoformat()
    put(person, document(HN, once | {"id": joke.pk, "next_run_at": later}))
    assert planned_for(joke) == datetime.fromisoformat(later)


def test_concurrent_writers_and_a_tool_leave_one_whole_text(person: Person) -> None:
    put(person, document(HN))
    came = at_once(
        *(partial(put, person, document(HN, TEA | {"id": f"t{n}", "title": f"T{n}"})) for n in range(3)),
        lambda: add(person, "By tool", schedule="1h"),
        lambda: update_routine("daily_hn", {"description": "x"}),
    )
    assert [each for each in came if isinstance(each, Exception)] == []
    enabled = set(agent_routines(person.agent.pk).filter(enabled=True).values_list("name", flat=True))
    assert len(enabled & {"T0", "T1", "T2"}) == 1  # each disabled those that it does not list
    assert {task["title"] for task in tasks(person)} == enabled


TEA = {"id": "tea", "title": "Tea", "schedule": "2h"}


def broken_by_hand(person: Person) -> int:
    """As somebody leaves it who moved one task, added another and lost a quotation mark; its revision."""
    put(person, document(HN))
    edited = document(HN | {"schedule": "0 10 * * *"}, TEA).replace('"Tea"', '"Tea')
    return put(person, edited).document.revision


def fix(where: ToolContext, revision: int, *given: Any) -> str:
    return str(tools.get("repair_heartbeat").run(where, {"revision": revision, "tasks": list(given)}))


def test_a_repair_applies_the_broken_text_and_notifies_people(person: Person) -> None:
    revision = broken_by_hand(person)
    kept = add(person, "Kept", schedule="3h")  # the broken text says nothing of it
    said = fix(heartbeat(person), revision, HN | {"schedule": "0 10 * * *"}, TEA)
    assert corruption(person.agent.pk) is None
    assert {
        row.pk: routine_schedule_text(row) for row in agent_routines(person.agent.pk).filter(enabled=True)
    } == {"daily_hn": "0 10 * * *", "tea": "2h", kept.pk: "3h"}
    assert [task["title"] for task in tasks(person)] == ["HN", "Tea", "Kept"]
    assert prose_of(person) == "Be brief.\n\nThe end."
    mail = MailboxEvent.objects.get()
    assert mail.event_type == "heartbeat_repaired"
    changes = "added: 'Tea' (tea); changed: 'HN' (daily_hn)."
    assert mail.summary == f"HEARTBEAT.md could not be read and was repaired; {changes}"
    assert said.startswith(mail.summary)


REPAIRS: dict[str, tuple[list[Any], str]] = {
    "a task is lost": ([HN], "also names 'Tea'"),
    "a task is made up": ([HN, TEA, {"title": "Call home", "schedule": "1h"}], "does not name 'Call home'"),
    "still broken": ([HN, TEA | {"schedule": "soon"}], "still cannot be read after this repair"),
    "no list": (["x"], "task 1 is not an object"),
}


@pytest.mark.parametrize("what", REPAIRS)
def test_a_repair_that_loses_adds_or_breaks_something_is_refused(person: Person, what: str) -> None:
    put(person, document(HN))
    revision = put(person, document(HN, TEA).replace('"2h"', "2h")).document.revision
    given, words = REPAIRS[what]
    with pytest.raises(ToolFailed) as refusal:
        fix(heartbeat(person), revision, *given)
    assert words in str(refusal.value)
    assert [row.name for row in agent_routines(person.agent.pk)] == ["HN"]
    assert corruption(person.agent.pk) is not None


def test_a_repair_needs_the_revision_shown_and_a_broken_text(person: Person) -> None:
    revision = broken_by_hand(person)
    with pytest.raises(ToolFailed, match="has changed meanwhile"):
        fix(heartbeat(person), revision - 1, HN, TEA)
    fix(heartbeat(person), revision, HN, TEA)
    with pytest.raises(ToolFailed, match="is not corrupted"):
        fix(heartbeat(person), revision + 1, HN, TEA)


@pytest.mark.rule("3.5", "4.2", "5.6")
def test_a_repair_is_offered_only_where_it_is_possible(person: Person) -> None:
    """The tool, its offer and what it says of itself agree: a heartbeat without tasks, while there is a fault."""
    tool = tools.get("repair_heartbeat")
    put(person, document(HN))
    assert not tool.offered(heartbeat(person)), "it is sound"
    revision = broken_by_hand(person)
    assert tool.offered(heartbeat(person))
    with_tasks = heartbeat(person)
    with_tasks.turn.metadata = TurnInput(tasks=({"id": "tea", "title": "Tea", "description": ""},)).to_json()
    for elsewhere in (with_tasks, context(person.session())):
        assert not tool.offered(elsewhere)
        with pytest.raises(ToolFailed, match="is repaired in a heartbeat without tasks"):
            fix(elsewhere, revision, HN, TEA)
    assert corruption(person.agent.pk) is not None


def test_other_routine_changes_do_not_mark_the_broken_block_repaired(person: Person) -> None:
    broken_by_hand(person)
    before = text(person)
    tools.get("update_routine").run(heartbeat(person), {"routine_id": "daily_hn", "title": "News"})
    assert corruption(person.agent.pk) is not None
    assert text(person) == before


def test_a_recurring_task_shows_pending_and_its_error_after_failure(person: Person) -> None:
    put(person, document(HN, {"id": "once", "title": "Once"}))
    JobClock.objects.filter(job="once").update(next_run_at=None)  # its only slot was fired
    for number, routine_id in enumerate(("daily_hn", "once")):
        RunRecord.objects.create(
            run_id=f"{routine_id}:1", job_id=routine_id, scheduled_for=datetime(2026, 1, 1 + number, tzinfo=UTC),
            state="failed", error="It broke.", attempt=2, finished_at=datetime.now(UTC),
        )  # fmt: skip
    shown = [tuple(map(task.get, ("id", "state", "error_message", "retry"))) for task in tasks(person)]
    assert shown == [("daily_hn", "pending", "It broke.", 1), ("once", "failed", "It broke.", 1)]
    update_routine("once", {"next_run_at": "2031-01-01T00:00:00Z"})
    assert [task["state"] for task in tasks(person)] == ["pending", "pending"]


def test_generated_text_can_be_written_back_beyond_the_size_limit(person: Person) -> None:
    for number in range(15):
        add(person, f"T{number}", schedule="1h", description="x" * 20_000)
    read = text(person)
    assert len(read) > LONGEST_DOCUMENT
    put(person, read)
    assert agent_routines(person.agent.pk).filter(enabled=True).count() == 15
    with pytest.raises(BadInput):
        put(person, "x" * (LONGEST_DOCUMENT + 1) + read)
