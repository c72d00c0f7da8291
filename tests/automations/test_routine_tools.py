"""The agent's tools for its routines: where they are offered, what they say, and intents that become routines once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from automations.intents import MEMORY, NoIntent, intents, mark_registered, register_intent
from automations.models import CronJob
from automations.routine_tools import offered
from automations.routines import NewRoutine, add_routine, routines
from sessions_app.agents import put_document
from sessions_app.exceptions import RevisionConflict
from sessions_app.models import Agent, Document, MailboxEvent, Session, SessionType, Turn, TurnKind
from sessions_app.open import primary_session
from sessions_app.receive import Input, receive
from sessions_app.tools import ToolContext
from tests.conftest import Person, new_person
from tests.races import in_thread

NAMES = ("add_routine", "list_routines", "update_routine", "remove_routine")


def context(session: Session, kind: str = TurnKind.MESSAGE) -> ToolContext:
    turn: Turn = receive(session.pk, Input(content="hello"))
    turn.kind = kind
    return ToolContext(turn=turn, session=session, agent=session.agent, interactive=kind == TurnKind.MESSAGE)


def call(where: ToolContext, name: str, /, **arguments: Any) -> str:
    return tools.get(name).run(where, arguments)


def heartbeat(person: Person) -> ToolContext:
    session = Session(agent=person.agent, owner=person.user, key="heartbeat:demo", type=SessionType.HEARTBEAT)
    return ToolContext(
        turn=Turn(session=session, kind=TurnKind.HEARTBEAT),
        session=session,
        agent=person.agent,
        interactive=False,
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (TurnKind.AUTOMATION, "an automation cannot manage routines"),
        (TurnKind.LEGACY, "an automation cannot manage routines"),
        (TurnKind.SYSTEM, "an automation cannot manage routines"),
        (TurnKind.JOB, "a background job cannot manage routines; say in your answer"),
    ],
)
def test_what_runs_by_schedule_is_not_offered_the_tools_and_is_refused(
    person: Person, kind: str, words: str
) -> None:
    where = context(person.session(), kind)
    assert not offered(where)
    for name in NAMES:
        with pytest.raises(ToolFailed) as refusal:
            call(where, name, title="x", schedule="1h")
        assert words in str(refusal.value)
    assert not CronJob.objects.exists()


def test_people_and_heartbeats_are_offered_the_tools(person: Person) -> None:
    assert offered(context(person.session()))
    assert offered(heartbeat(person))
    assert all(tools.get(name).transactional for name in NAMES)


def test_add_in_a_conversation_makes_it_the_home(person: Person) -> None:
    session = person.session()
    said = call(
        context(session), "add_routine", title="HN", description="Read it.", schedule="0 9 * * *", timezone=""
    )
    job = routines(person.agent.pk).get()
    assert (job.home_id, job.source, job.name) == (session.pk, "chat", "HN")
    assert job.created_by_turn_id is not None
    assert said.startswith(f"Added routine {job.pk} 'HN': 0 9 * * * (UTC), inline. First run: 20")


def test_add_in_a_heartbeat_is_its_reflection(person: Person) -> None:
    call(heartbeat(person), "add_routine", title="HN", schedule="1d")
    job = routines(person.agent.pk).get()
    assert (job.home_id, job.source) == (None, "heartbeat_reflect")


def test_the_first_routine_that_an_agent_registers_by_itself_is_told_of_and_later_ones_are_not(
    person: Person,
) -> None:
    call(context(person.session()), "add_routine", title="Asked for", schedule="1h")
    assert not MailboxEvent.objects.exists()
    call(heartbeat(person), "add_routine", title="HN", schedule="1d")
    job = routines(person.agent.pk).get(name="HN")
    told = MailboxEvent.objects.get()
    assert told.target == primary_session(person.agent)
    assert (told.event_type, told.source_key) == ("routine_registered", "heartbeat:demo")
    assert told.summary == f'A heartbeat registered a routine by itself: "HN" ({job.pk}, inline).'
    assert told.detail.startswith(told.summary)
    call(heartbeat(person), "add_routine", title="Another", schedule="1d")
    call(heartbeat(new_person("bob")), "add_routine", title="HN", schedule="1d")
    assert MailboxEvent.objects.count() == 2  # one for each agent


def test_a_routine_that_an_intent_only_names_is_not_told_of_again(person: Person) -> None:
    memory = put_document(person.agent.pk, MEMORY, TEXT)
    call(heartbeat(person), "add_routine", title="Sort notes", schedule="1d")
    again = {"title": "sort notes", "schedule": "1d", "memory_line": 6, "memory_revision": memory.revision}
    call(heartbeat(person), "add_routine", **again)
    assert MailboxEvent.objects.count() == routines(person.agent.pk).count() == 1


def test_list_update_and_remove(person: Person) -> None:
    where = context(person.session())
    assert call(where, "list_routines") == "There are no routines."
    call(where, "add_routine", title="Water", description="Say:\ndrink", schedule="1h")
    job = routines(person.agent.pk).get()
    listed = call(where, "list_routines")
    assert f"- {job.pk} 'Water': Say: drink (1h, UTC, inline, scheduled; next run 20" in listed
    said = call(where, "update_routine", routine_id=job.pk, schedule="2h", execution_mode="isolated")
    assert f"Updated routine {job.pk} 'Water': 2h (UTC), isolated. Next run: 20" in said
    assert call(where, "remove_routine", routine_id=job.pk) == f"Disabled routine {job.pk}."
    assert call(where, "list_routines") == "There are no routines."
    assert "disabled; next run none" in call(where, "list_routines", include_disabled=True)
    assert call(where, "remove_routine", routine_id=job.pk, hard=True) == f"Deleted routine {job.pk}."


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no title": ("add_routine", {}, "title is missing"),
    "unknown parameter": (
        "add_routine",
        {"title": "x", "channel": "y"},
        "'channel' is not known; the parameters",
    ),
    "bad schedule": ("add_routine", {"title": "x", "schedule": "soon"}, "neither an interval such as `30m`"),
    "past": (
        "add_routine",
        {"title": "x", "next_run_at": "2020-01-01T00:00:00Z"},
        "has passed. It is now 20",
    ),
    "zone": ("add_routine", {"title": "x", "timezone": "Mars/X"}, "takes an IANA name such as Europe/Berlin"),
    "duplicate": ("add_routine", {"title": "water", "schedule": "60m"}, "update that one, or pass allow_dup"),
    "half an intent": (
        "add_routine",
        {"title": "x", "memory_line": 3},
        "memory_line goes with memory_revision",
    ),
    "no id": ("update_routine", {"title": "x"}, "routine_id is missing: list_routines shows the ids"),
    "unknown id": ("update_routine", {"routine_id": "nope", "title": "x"}, "no such routine; list_routines"),
    "NUL": ("remove_routine", {"routine_id": "a\x00"}, "no such routine; list_routines"),
    "bad mode": (
        "add_routine",
        {"title": "x", "execution_mode": "session"},
        "must be one of inline, isolated",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_says_what_to_do(person: Person, what: str) -> None:
    where = context(person.session())
    call(where, "add_routine", title="Water", schedule="1h")
    name, arguments, words = REFUSED[what]
    with pytest.raises(ToolFailed) as refusal:
        call(where, name, **arguments)
    assert words in str(refusal.value)
    assert routines(person.agent.pk).count() == 1


def test_the_limit_and_another_agents_routine(person: Person) -> None:
    Agent.objects.filter(pk=person.agent.pk).update(routine_limit=0)
    where = context(person.session())
    with pytest.raises(ToolFailed, match="may have 0 enabled routines; remove one first"):
        call(where, "add_routine", title="x")
    theirs = add_routine(NewRoutine(agent_id=new_person("bob").agent.pk, title="x", schedule="1h"))
    for name in ("update_routine", "remove_routine"):
        with pytest.raises(ToolFailed, match="no such routine"):
            call(where, name, routine_id=theirs.pk)
    assert CronJob.objects.get(pk=theirs.pk).enabled


TEXT = """\
## Likes
- brief reports

## Routine intents
- Check Hacker News every day → [registered: daily_hn]
- Every Friday sort the notes → [待注册]
* water the plants [To be registered]
1. [ ] call mum: [to be registered] on Sundays
"""


def test_intents_are_the_marked_lines() -> None:
    assert [(each.line, each.text) for each in intents(TEXT)] == [
        (6, "Every Friday sort the notes"),
        (7, "water the plants"),
        (8, "call mum on Sundays"),
    ]
    assert intents("") == ()


def test_marking_changes_the_mark_and_nothing_else() -> None:
    marked = mark_registered(TEXT, 6, "abc")
    assert marked == TEXT.replace("[待注册]", "[registered: abc]")
    for line in (0, 1, 6, 99):
        with pytest.raises(NoIntent):
            mark_registered(marked, line, "again")


def test_an_intent_becomes_a_routine_once(person: Person) -> None:
    memory = put_document(person.agent.pk, MEMORY, TEXT)
    given = NewRoutine(agent_id=person.agent.pk, title="Sort notes", schedule="0 9 * * 5")
    job = register_intent(6, memory.revision, given)
    assert (job.source, routines(person.agent.pk).count()) == ("heartbeat_reflect", 1)
    written = Document.objects.get(agent=person.agent, name=MEMORY)
    assert f"- Every Friday sort the notes → [registered: {job.pk}]\n" in written.content
    assert written.revision == memory.revision + 1
    with pytest.raises(NoIntent):
        register_intent(6, written.revision, given)
    with pytest.raises(RevisionConflict):
        register_intent(8, memory.revision, NewRoutine(agent_id=person.agent.pk, title="Call mum"))
    assert routines(person.agent.pk).count() == 1


def test_of_several_heartbeats_that_read_one_intent_one_registers_it(person: Person) -> None:
    memory = put_document(person.agent.pk, MEMORY, TEXT)

    def register(number: int) -> CronJob:
        given = NewRoutine(agent_id=person.agent.pk, title=f"Notes {number}", schedule="1d")
        return register_intent(6, memory.revision, given)

    racers = [in_thread(partial(register, n)) for n in range(4)]
    for thread, _ in racers:
        thread.join(20)
    assert sum(isinstance(came[0], CronJob) for _, came in racers) == 1
    assert routines(person.agent.pk).count() == 1


def test_an_intent_whose_routine_is_there_already_is_only_marked(person: Person) -> None:
    memory = put_document(person.agent.pk, MEMORY, TEXT)
    there = add_routine(NewRoutine(agent_id=person.agent.pk, title="Sort Notes", schedule="1d"))
    said = call(
        heartbeat(person),
        "add_routine",
        title="sort notes",
        schedule="1d",
        memory_line=6,
        memory_revision=memory.revision,
    )
    assert there.pk in said
    assert routines(person.agent.pk).count() == 1
    assert f"[registered: {there.pk}]" in Document.objects.get(agent=person.agent, name=MEMORY).content
