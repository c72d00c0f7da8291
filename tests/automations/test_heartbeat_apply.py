"""HEARTBEAT.md and the rows: reading shows them, writing changes them in one transaction or not at all (rule 6.6)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from agent_core import tools
from automations.exceptions import BadJob, TooManyRoutines
from automations.heartbeat_apply import NAME, corruption, heartbeat_prose, mend
from automations.models import CronJob, JobClock, RunRecord
from automations.routines import NewRoutine, add_routine, remove_routine, routines, update_routine
from sessions_app.agents import LONGEST_DOCUMENT, Written, write_document
from sessions_app.documents import shown
from sessions_app.exceptions import BadInput, RevisionConflict
from sessions_app.models import Agent, Document
from tests.automations.test_routine_tools import heartbeat
from tests.conftest import Person, new_person
from tests.races import in_thread


def put(person: Person, content: str, **options: Any) -> Written:
    return write_document(person.agent.pk, NAME, content, **options)


def text(person: Person) -> str:
    """The document as it is read."""
    stored = Document.objects.filter(agent=person.agent, name=NAME).first()
    found = shown(stored or Document(agent=person.agent, name=NAME, revision=0))
    assert found is not None
    return found.content


def tasks(person: Person) -> list[dict[str, Any]]:
    """The tasks that it lists."""
    content = text(person)
    if "```json" not in content:
        return []
    return list(json.loads(content.split("```json\n")[1].split("\n```")[0])["tasks"])


def document(*given: dict[str, Any], prose: str = "Be brief.") -> str:
    return f"{prose}\n\n```json\n{json.dumps({'version': 2, 'tasks': given})}\n```\n\nThe end.\n"


def due(job: CronJob) -> datetime:
    found = JobClock.objects.get(job=job).next_run_at
    assert found is not None
    return found


def outcome(written: Written) -> tuple[str, str]:
    assert written.taken is not None
    return written.taken.parse, written.taken.problem


def add(person: Person, title: str, **fields: Any) -> CronJob:
    return add_routine(NewRoutine(agent_id=person.agent.pk, title=title, **({"schedule": "1h"} | fields)))


HN = {"id": "daily_hn", "title": "HN", "description": "Read it.", "schedule": "0 9 * * *"}


def test_reading_shows_the_rows_and_a_document_that_was_never_written_shows_them_too(person: Person) -> None:
    assert text(person) == ""
    job = add(person, "Water", description="Drink.")
    [task] = tasks(person)
    assert task == {
        "id": job.pk,
        "title": "Water",
        "description": "Drink.",
        "schedule": "1h",
        "timezone": "UTC",
        "execution_mode": "inline",
        "source": "manual",
        "enabled": True,
        "state": "pending",
        "last_run_at": None,
        "next_run_at": due(job).isoformat(),
        "timeout_seconds": None,
        "retry": 0,
        "max_retry": 3,
        "error_message": None,
        "created_at": CronJob.objects.get(pk=job.pk).created_at.isoformat(),
    }
    update_routine(job.pk, {"title": "Tea"})
    assert tasks(person)[0]["title"] == "Tea"
    remove_routine(job.pk)
    assert tasks(person) == []


def test_an_unknown_id_is_new_with_its_defaults(person: Person) -> None:
    Agent.objects.filter(pk=person.agent.pk).update(timezone="Asia/Shanghai")
    assert outcome(put(person, document(HN))) == ("ok", "")
    job = routines(person.agent.pk).get()
    assert (job.pk, job.name, job.description, job.expr) == ("daily_hn", "HN", "Read it.", "0 9 * * *")
    assert (job.execution_mode, job.timezone, job.source, job.max_retry) == (
        "inline",
        "Asia/Shanghai",
        "manual",
        3,
    )
    assert JobClock.objects.get(job=job).inline
    assert due(job).hour == 1
    assert text(person).startswith("Be brief.\n\n```json\n")
    assert text(person).endswith("```\n\nThe end.\n")
    assert heartbeat_prose(person.agent.pk) == "Be brief.\n\nThe end."


def test_writing_what_was_read_changes_nothing(person: Person) -> None:
    put(person, document(HN))
    add(person, "Every", schedule="90m", timeout_seconds=30, execution_mode="isolated", timezone="Asia/Tokyo")
    add(person, "Once", schedule=None, next_run_at="2031-01-01T00:00:00Z", task_type="time_reminder")
    add(person, "Now", schedule=None)
    before = list(CronJob.objects.values().order_by("pk")), list(JobClock.objects.values().order_by("pk"))
    read = text(person)
    assert outcome(put(person, read)) == ("ok", "")
    assert before == (
        list(CronJob.objects.values().order_by("pk")),
        list(JobClock.objects.values().order_by("pk")),
    )
    assert text(person) == read
    assert not RunRecord.objects.exists()


def test_what_others_wrote_into_a_task_is_kept_through_every_reading_and_writing(person: Person) -> None:
    colour, owner = {"x-colour": {"dark": ["red"]}}, {"owner": "Ada"}
    assert (
        outcome(put(person, document(HN | colour, {"title": "Water", "schedule": "1h"} | owner)))[0] == "ok"
    )
    hn, water = tasks(person)
    assert (hn["x-colour"], water["owner"]) == (colour["x-colour"], "Ada")
    update_routine(water["id"], {"title": "Water the plants"})
    assert outcome(put(person, text(person)))[0] == "ok"
    assert [task.keys() & {"x-colour", "owner", "title"} for task in tasks(person)] == [
        {"x-colour", "title"},
        {"owner", "title"},
    ]
    assert tasks(person)[1]["title"] == "Water the plants"
    taken = add(new_person("bob"), "Theirs")
    assert outcome(put(person, document(HN | {"id": taken.pk, "priority": 1})))[0] == "ok"
    assert [(task["id"] == taken.pk, task["priority"]) for task in tasks(person)] == [(False, 1)]


def test_a_known_id_is_changed_and_what_runs_wrote_is_ignored(person: Person) -> None:
    put(person, document(HN))
    due = JobClock.objects.get().next_run_at
    run_time = {
        "state": "done", "last_run_at": "2020-01-01T00:00:00Z", "next_run_at": "2020-01-01T00:00:00Z", "retry": 2,
        "error_message": "x", "created_at": "2020-01-01T00:00:00Z",
    }  # fmt: skip
    put(person, document(HN | run_time | {"title": "News"}))
    job = routines(person.agent.pk).get()
    assert (job.name, job.clock.next_run_at, job.revision) == ("News", due, 2)
    put(person, document(HN | {"schedule": "2h", "execution_mode": "isolated", "enabled": False}))
    job = routines(person.agent.pk).get()
    assert (job.every_seconds, job.execution_mode, job.enabled) == (7200, "isolated", False)
    assert [task["enabled"] for task in tasks(person)] == [False]  # it stays, to be switched on again
    put(person, document(HN))
    assert routines(person.agent.pk).get().enabled


def test_instructions_and_limits_are_listed_where_there_are_any_and_go_when_they_are_absent(
    person: Person,
) -> None:
    own = {"instructions": "Be short.", "policy": {"max_tool_calls": 2, "max_attempts": 1}}
    put(person, document(HN | own))
    [task] = tasks(person)
    assert {name: task[name] for name in own} == own
    put(person, document(HN | {"policy": {"max_attempts": 1}}))
    [task] = tasks(person)
    assert "instructions" not in task
    assert task["policy"] == {"max_attempts": 1}


def test_an_absent_id_is_disabled_and_not_shown_any_more(person: Person) -> None:
    put(person, document(HN, {"title": "Other", "schedule": "1h"}))
    put(person, document(HN))
    assert dict(routines(person.agent.pk).values_list("name", "enabled")) == {"HN": True, "Other": False}
    assert [task["title"] for task in tasks(person)] == ["HN"]


def test_what_is_done_is_not_shown_and_not_disabled_by_its_absence(person: Person) -> None:
    done = add(person, "Done", schedule=None)
    JobClock.objects.filter(job=done).update(next_run_at=None)
    assert tasks(person) == []
    put(person, document(HN))
    assert CronJob.objects.get(pk=done.pk).enabled


def test_an_id_that_cannot_be_kept_is_known_again_all_the_same(person: Person) -> None:
    put(new_person("bob"), document(HN))
    for _ in range(2):
        put(person, document(HN, HN | {"id": "has spaces 每日"}))
        assert routines(person.agent.pk).count() == 2
    assert not routines(person.agent.pk).filter(pk="daily_hn").exists()
    assert routines(person.agent.pk).filter(enabled=True).count() == 2


def test_tasks_without_id_written_twice_are_the_same_routines(person: Person) -> None:
    content = document(
        {"title": "Every", "schedule": "1h"}, {"title": "Now"}, {"title": "Cron", "schedule": "0 9 * * *"}
    )
    put(person, content)
    JobClock.objects.filter(job__name="Now").update(next_run_at=None)  # it was done
    put(person, content)
    assert sorted(routines(person.agent.pk).values_list("name", "enabled")) == [
        ("Cron", True),
        ("Every", True),
        ("Now", True),
    ]
    assert JobClock.objects.get(job__name="Now").next_run_at is None


def test_a_text_whose_tasks_have_ids_is_kept_to_the_letter_and_read_with_what_runs_wrote(
    person: Person,
) -> None:
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
    job = routines(person.agent.pk).get()
    assert job.at is not None
    assert job.at.isoformat() == "2032-01-01T00:00:00+00:00" == due(job).isoformat()
    put(person, document(task | {"schedule": "1d"}))
    assert routines(person.agent.pk).get().schedule_kind == "every"
    put(person, document(task | {"schedule": None}))
    assert routines(person.agent.pk).get().at is not None


def test_a_corrupted_text_changes_no_routine_and_is_kept_as_it_is(person: Person) -> None:
    put(person, document(HN))
    before = list(CronJob.objects.values()), list(JobClock.objects.values())
    broken = document(HN).replace('"HN"', '"HN')
    parse, problem = outcome(put(person, broken))
    assert parse == "corrupted"
    assert "cannot be read" in problem
    assert before == (list(CronJob.objects.values()), list(JobClock.objects.values()))
    assert text(person) == broken
    stored = Document.objects.get(agent=person.agent, name=NAME)
    told = corruption(person.agent.pk)
    assert told is not None
    assert (told.revision, told.problem) == (stored.revision, problem)
    assert put(person, document(HN)).document.revision == stored.revision + 1
    assert corruption(person.agent.pk) is None
    assert before == (list(CronJob.objects.values()), list(JobClock.objects.values()))


def test_an_empty_text_changes_no_routine_and_its_prose_is_kept(person: Person) -> None:
    put(person, document(HN))
    assert outcome(put(person, "Only prose.\n")) == ("empty", "")
    assert routines(person.agent.pk).get().enabled
    assert heartbeat_prose(person.agent.pk) == "Only prose."
    assert [task["id"] for task in tasks(person)] == ["daily_hn"]
    assert text(person).startswith("Only prose.\n\n## Tasks\n")
    assert outcome(put(person, "")) == ("empty", "")
    assert routines(person.agent.pk).get().enabled


def test_what_a_routine_may_not_be_refuses_the_whole_text(person: Person) -> None:
    put(person, document(HN))
    before = text(person)
    Agent.objects.filter(pk=person.agent.pk).update(routine_limit=2)
    extra = [{"title": f"Routine {number}", "schedule": "1h"} for number in range(2)]
    with pytest.raises(TooManyRoutines):
        put(person, document(HN | {"title": "News"}, *extra))
    with pytest.raises(BadJob) as refusal:
        put(person, document(HN | {"schedule": None, "next_run_at": "2020-01-01T00:00:00Z"}))
    assert refusal.value.code == "past_at"
    assert text(person) == before
    assert routines(person.agent.pk).get().name == "HN"
    put(person, document(*extra))  # what is absent makes room
    assert routines(person.agent.pk).filter(enabled=True).count() == 2


ENDED = {
    "title": "Tell a joke", "schedule": None, "next_run_at": "2026-02-13T12:00:00+00:00", "state": "done",
}  # fmt: skip


@pytest.mark.parametrize(
    "once",
    [ENDED, ENDED | {"next_run_at": None}, ENDED | {"state": "pending"}],
    ids=["done at its time", "done", "its time has passed"],
)
@pytest.mark.parametrize("identity", [{}, {"id": "joke"}])
def test_what_was_done_once_is_kept_as_done_and_the_rest_is_applied(
    person: Person, once: dict[str, Any], identity: dict[str, str]
) -> None:
    given = document(HN, once | identity)
    for _ in range(2):
        assert outcome(put(person, given)) == ("ok", "")
    joke = routines(person.agent.pk).get(name="Tell a joke")
    assert joke.clock.next_run_at is None
    assert joke.clock.last_slot == joke.at
    assert due(routines(person.agent.pk).get(name="HN")) > datetime.now(UTC)
    [shown_joke] = [task for task in tasks(person) if task["title"] == "Tell a joke"]
    assert shown_joke["state"] == "done"
    assert put(person, text(person)).taken
    later = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0).isoformat()
    put(person, document(HN, once | {"id": joke.pk, "next_run_at": later}))
    assert due(joke) == datetime.fromisoformat(later)


def test_a_writer_who_has_not_seen_a_routine_does_not_disable_it(person: Person) -> None:
    put(person, document(HN))
    stored = Document.objects.get(agent=person.agent, name=NAME)
    seen = shown(stored)
    assert seen is not None
    add(person, "Made meanwhile")
    with pytest.raises(RevisionConflict):
        put(person, document(HN), basis=seen.basis)
    assert routines(person.agent.pk).filter(enabled=True).count() == 2


def test_what_runs_write_is_in_no_writers_way(person: Person) -> None:
    put(person, document(HN))
    stored = Document.objects.get(agent=person.agent, name=NAME)
    seen = shown(stored)
    assert seen is not None
    RunRecord.objects.create(run_id="daily_hn:1000", job_id="daily_hn", scheduled_for="1970-01-01T00:00:01Z")
    assert tasks(person)[0]["state"] == "pending"
    RunRecord.objects.update(state="failed", finished_at="2026-01-01T00:00:00Z", error="It broke.", attempt=2)
    [task] = tasks(person)
    assert (task["state"], task["error_message"], task["retry"]) == ("failed", "It broke.", 1)
    put(person, document(HN | {"title": "News"}), basis=seen.basis)


def test_several_writers_and_a_tool_at_once_leave_one_whole_text(person: Person) -> None:
    put(person, document(HN))
    racers = [
        in_thread(partial(put, person, document(HN, {"id": f"t{n}", "title": f"T{n}", "schedule": "1h"})))
        for n in range(3)
    ]
    racers.append(in_thread(lambda: add(person, "By tool")))
    racers.append(in_thread(lambda: update_routine("daily_hn", {"description": "x"})))
    for thread, _ in racers:
        thread.join(30)
    assert [came for _, came in racers if isinstance(came[0], Exception)] == []
    enabled = set(routines(person.agent.pk).filter(enabled=True).values_list("name", flat=True))
    assert len(enabled & {"T0", "T1", "T2"}) == 1  # each disabled those that it does not list
    assert {task["title"] for task in tasks(person)} == enabled


def test_an_agent_mends_a_corrupted_document_with_its_routine_tools(person: Person) -> None:
    put(person, document(HN))
    put(person, document(HN).replace('"HN"', '"HN'))
    tools.get("list_routines").run(heartbeat(person), {})
    assert corruption(person.agent.pk) is not None
    tools.get("update_routine").run(heartbeat(person), {"routine_id": "daily_hn", "title": "News"})
    assert corruption(person.agent.pk) is None
    assert [task["title"] for task in tasks(person)] == ["News"]
    assert '"HN,' in text(person)  # what could not be read stays, as text
    assert not mend(person.agent.pk)


def test_a_document_that_cannot_be_mended_undoes_no_tool(person: Person) -> None:
    put(person, document(HN))
    put(person, document(HN | {"description": "x" * LONGEST_DOCUMENT}).replace('"HN"', '"HN'))
    tools.get("update_routine").run(heartbeat(person), {"routine_id": "daily_hn", "title": "News"})
    assert corruption(person.agent.pk) is not None
    assert routines(person.agent.pk).get().name == "News"


def test_what_is_read_can_be_written_however_much_its_routines_say(person: Person) -> None:
    for number in range(15):
        add(person, f"T{number}", description="x" * 20_000)
    read = text(person)
    assert len(read) > LONGEST_DOCUMENT
    put(person, read)
    assert routines(person.agent.pk).filter(enabled=True).count() == 15
    with pytest.raises(BadInput):
        put(person, "x" * (LONGEST_DOCUMENT + 1) + read)
