"""The `cron` tool: what the model is told when something is missing, and whose jobs it sees (rule 4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from automations.edit import NewJob, create_job
from automations.models import CronJob, JobClock
from sessions_app.models import Session, Turn
from sessions_app.receive import Input, receive
from sessions_app.tools import ToolContext
from tests.conftest import Person


def context(session: Session, *, interactive: bool = True) -> ToolContext:
    turn: Turn = receive(session.pk, Input(content="hello"))
    return ToolContext(turn=turn, session=session, agent=session.agent, interactive=interactive)


def cron(where: ToolContext, /, **arguments: Any) -> str:
    return tools.get("cron").run(where, arguments)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no action": ({}, "action must be one of add, list, remove"),
    "unknown action": ({"action": "update"}, "action must be one of add, list, remove"),
    "no message": ({"action": "add", "every_seconds": 5}, "message is missing"),
    "no schedule": ({"action": "add", "message": "m"}, "give exactly one of every_seconds, cron_expr, at"),
    "two schedules": (
        {"action": "add", "message": "m", "every_seconds": 5, "at": "2027-01-01T00:00"},
        "got every_seconds, at",
    ),
    "zone without cron": (
        {"action": "add", "message": "m", "every_seconds": 5, "tz": "Asia/Tokyo"},
        "tz goes with cron_expr only",
    ),
    "unknown zone": ({"action": "add", "message": "m", "cron_expr": "0 9 * * *", "tz": "Mars/X"}, "Mars/X"),
    "bad time": ({"action": "add", "message": "m", "at": "tomorrow"}, "`at` must be a time such as"),
    "past time": ({"action": "add", "message": "m", "at": "2020-01-01T00:00:00Z"}, "has passed"),
    "bad interval": ({"action": "add", "message": "m", "every_seconds": "soon"}, "whole number"),
    "no job id": ({"action": "remove"}, "job_id is missing"),
    "unknown job": ({"action": "remove", "job_id": "nope"}, "no automation 'nope'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_says_what_to_do(person: Person, what: str) -> None:
    arguments, words = REFUSED[what]
    with pytest.raises(ToolFailed) as refusal:
        cron(context(person.session()), **arguments)
    assert words in str(refusal.value)
    assert not CronJob.objects.exists()


def test_add_binds_to_the_session_and_ignores_deliver(person: Person) -> None:
    session = person.session()
    said = cron(
        context(session),
        action="add",
        message="check the repository for new issues",
        every_seconds=5,
        deliver=True,
    )
    job = CronJob.objects.get()
    assert (job.session_id, job.name, job.source) == (session.pk, "check the repository for new i", "chat")
    assert (job.deliver, job.channel, job.to) == (None, "", "")
    assert job.pk in said
    assert "every 5 seconds" in said
    assert "deliver" not in tools.get("cron").parameters["properties"]
    assert tools.get("cron").parameters["required"] == ["action"]


def test_a_zoneless_time_is_in_the_agents_zone(person: Person) -> None:
    person.agent.timezone = "Asia/Tokyo"
    person.agent.save()
    session = Session.objects.select_related("agent").get(pk=person.session().pk)
    cron(context(session), action="add", message="m", at="2027-01-01T09:00")
    assert CronJob.objects.get().at is not None
    assert CronJob.objects.get().at.isoformat() == "2027-01-01T00:00:00+00:00"  # type: ignore[union-attr]


def test_list_shows_this_session_only_in_words_with_last_and_next_run(person: Person) -> None:
    mine, other = person.session(), person.session()
    create_job(
        NewJob(session_id=other.pk, message="secret elsewhere", schedule={"kind": "every", "seconds": 9})
    )
    at = context(mine)
    assert cron(at, action="list") == "This conversation has no automations."
    cron(at, action="add", message="morning", cron_expr="0 9 * * *", tz="Asia/Shanghai")
    listed = cron(at, action="list")
    assert "every day at 09:00 (Asia/Shanghai)" in listed
    assert "not run yet; next run" in listed
    assert "secret" not in listed


def test_remove_takes_its_own_sessions_jobs_only(person: Person) -> None:
    mine, other = person.session(), person.session()
    theirs = create_job(NewJob(session_id=other.pk, message="m", schedule={"kind": "every", "seconds": 9}))
    at = context(mine)
    with pytest.raises(ToolFailed):
        cron(at, action="remove", job_id=theirs.pk)
    cron(at, action="add", message="m", every_seconds=9)
    own = CronJob.objects.get(session=mine)
    assert own.pk in cron(at, action="remove", job_id=own.pk)
    assert list(CronJob.objects.values_list("pk", flat=True)) == [theirs.pk]
    assert JobClock.objects.count() == 1


def test_an_automations_turn_may_list_but_not_add(person: Person) -> None:
    at = context(person.session(), interactive=False)
    with pytest.raises(ToolFailed, match="an automation cannot create automations"):
        cron(at, action="add", message="m", every_seconds=5)
    assert cron(at, action="list")
