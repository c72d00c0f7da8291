"""The agent's tools for its routines: where they are offered, what they say, and intents that become routines once."""

from functools import partial
from typing import Any

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from automations.models import CronJob, JobClock, JobHealth, JobPreflight
from automations.models.health import SLOWED_AFTER
from automations.routines.edit import NewRoutine, agent_routines, remove_routine
from automations.routines.reflection import MEMORY, NoIntent, find_intents, mark_registered, register_intent
from automations.tools.routines import offered
from sessions_app.agents.documents import put_document
from sessions_app.exceptions import RevisionConflict
from sessions_app.models import Agent, Document, MailboxEvent, Session, SessionType, Turn, TurnKind
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import primary_session
from sessions_app.turns.tool_calls import ToolContext
from tests.automations.jobs.made import add, at_once
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("5.6", "6.4", "6.5")

NAMES = ("add_routine", "list_routines", "update_routine", "remove_routine")


def context(session: Session, kind: str = TurnKind.MESSAGE) -> ToolContext:
    turn: Turn = receive(session.pk, MessageInput(content="hello"))
    turn.kind = kind
    return ToolContext(turn=turn, session=session, agent=session.agent, interactive=kind == TurnKind.MESSAGE)


def call(where: ToolContext, name: str, /, **arguments: Any) -> str:
    return tools.get(name).run(where, arguments)


def heartbeat(person: Person) -> ToolContext:
    session = Session(agent=person.agent, owner=person.user, key="heartbeat:demo", type=SessionType.HEARTBEAT)
    documents = dict(Document.objects.filter(agent=person.agent).values_list("name", "content"))
    about = {"session": session, "agent": person.agent, "documents": documents, "interactive": False}
    return ToolContext(turn=Turn(session=session, kind=TurnKind.HEARTBEAT), **about)


def test_scheduled_turns_are_neither_offered_nor_allowed_the_tools(person: Person) -> None:
    automation = "an automation cannot manage routines"
    kinds = dict.fromkeys((TurnKind.AUTOMATION, TurnKind.LEGACY, TurnKind.SYSTEM), automation)
    kinds |= {TurnKind.JOB: "a background job cannot manage routines; say in your answer"}
    for kind, words in kinds.items():
        where = context(person.session(), kind)
        assert not offered(where), kind
        for name in NAMES:
            with pytest.raises(ToolFailed, match=words):
                call(where, name, title="x", schedule="1h")
    assert not CronJob.objects.exists()
    assert offered(context(person.session()))
    assert offered(heartbeat(person))
    assert all(tools.get(name).transactional for name in NAMES)


@pytest.mark.rule("3.5", "4.2")
def test_tool_schemas_omit_what_the_turn_cannot_use(person: Person) -> None:
    """Else the schema stands: where a part of a tool cannot be used, the model does not hear of it (rules 4.2, 5.6)."""
    add, cron = tools.get("add_routine"), tools.get("cron")
    chat, slot = context(person.session()), context(person.session(), TurnKind.AUTOMATION)
    assert add.spec_for(chat) == add.spec()
    assert cron.spec_for(chat) == cron.spec()
    beats = add.spec_for(heartbeat(person))
    offered_in = [spec.parameters["properties"].keys() for spec in (add.spec(), beats)]
    assert offered_in[0] - offered_in[1] == {"allow_duplicate"}
    assert "use cron" not in beats.description
    assert "at once" not in beats.description
    with pytest.raises(ToolFailed, match="leave allow_duplicate out"):
        call(heartbeat(person), "add_routine", title="x", schedule="1h", allow_duplicate=True)
    assert cron.spec_for(slot).parameters["properties"].keys() == {"action", "job_id", "since", "until"}
    with pytest.raises(ToolFailed, match="an automation cannot create"):
        call(slot, "cron", action="add", message="x", every_seconds=60)


def test_add_in_a_conversation_makes_it_the_home(person: Person, session: Session) -> None:
    daily = {"schedule": "0 9 * * *", "timezone": ""}
    said = call(context(session), "add_routine", title="HN", description="Read it.", **daily)
    job = agent_routines(person.agent.pk).get()
    assert (job.home_id, job.source, job.name) == (session.pk, "chat", "HN")
    assert job.created_by_turn_id is not None
    assert said.startswith(f"Added routine {job.pk} 'HN': 0 9 * * * (UTC), inline. First run: 20")


def test_each_routine_registered_by_a_heartbeat_is_reported(person: Person) -> None:
    call(context(person.session()), "add_routine", title="Asked for", schedule="1h")
    assert not MailboxEvent.objects.exists()
    for title in ("HN", "Another"):
        call(heartbeat(person), "add_routine", title=title, schedule="1d")
        job = agent_routines(person.agent.pk).get(name=title)
        told = MailboxEvent.objects.latest("id")
        assert told.target == primary_session(person.agent)
        assert (told.event_type, told.source_key) == ("routine_registered", "heartbeat:demo")
        assert told.summary == f'A heartbeat registered a routine by itself: "{title}" ({job.pk}, inline).'
        assert told.detail.startswith(told.summary)
    assert MailboxEvent.objects.filter(dropped_at=None).count() == 2


def refused(where: ToolContext, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as refusal:
        call(where, "add_routine", **arguments)
    return str(refusal.value)


def test_a_heartbeat_registers_nothing_twice_however_it_words_the_schedule(person: Person) -> None:
    there = add(person, "Tea", schedule="1h")
    for again in ({"schedule": "2h"}, {"schedule": "0 9 * * *"}, {}):
        said = refused(heartbeat(person), title=" TEA", **again)
        assert f"the routine {there.pk} with this title exists already" in said
    assert "allow_duplicate" in refused(heartbeat(person), title="Tea", schedule="2h", allow_duplicate=True)
    done = add(person, "Call mum")
    JobClock.objects.filter(job=done).update(next_run_at=None, last_slot=done.at)
    assert "exists already" in refused(heartbeat(person), title="Call mum"), "done once is done"
    call(heartbeat(person), "add_routine", title="Call mum", schedule="0 9 * * 0")
    assert agent_routines(person.agent.pk).count() == 3


@pytest.mark.parametrize("hard", [False, True])
def test_what_a_person_removed_no_heartbeat_registers_or_enables(person: Person, hard: bool) -> None:
    memory = put_document(person.agent.pk, MEMORY, TEXT)
    job = add(person, "Sort notes", schedule="1d")
    remove_routine(job.pk, hard=hard)
    said = refused(heartbeat(person), title="sort  notes", schedule="2d")
    assert ("was deleted" if hard else "is disabled") in said
    asked_for: dict[str, Any] = {"title": "Sort notes", "schedule": "1d"}
    asked_for |= {"memory_line": 6, "memory_revision": memory.revision}
    if hard:
        assert "only a person may register it again" in refused(heartbeat(person), **asked_for)
        assert not agent_routines(person.agent.pk).exists()
    else:
        assert "only a person can enable it again" in call(heartbeat(person), "add_routine", **asked_for)
        with pytest.raises(ToolFailed, match="only a person can enable it again"):
            call(heartbeat(person), "update_routine", routine_id=job.pk, enabled=True)
        assert not agent_routines(person.agent.pk).get().enabled
    call(context(person.session()), "add_routine", title="Sort notes", schedule="1d")
    assert agent_routines(person.agent.pk).filter(enabled=True).count() == 1


def test_what_goes_with_its_home_is_not_registered_again(person: Person) -> None:
    home = person.session(chat_type="group")  # a private thread's would move to the primary session
    call(context(home), "add_routine", title="Sort notes", schedule="1d")
    Turn.objects.all().delete()
    assert delete_session(home.pk, with_dependents=True).deleted
    assert "was deleted" in refused(heartbeat(person), title="Sort notes", schedule="1d")


def test_a_heartbeat_is_told_that_a_new_routine_waits_for_its_end(person: Person) -> None:
    said = call(heartbeat(person), "add_routine", title="HN", execution_mode="isolated")
    assert "It does not run before this heartbeat has ended." in said


def test_list_update_and_remove(person: Person) -> None:
    where = context(person.session())
    assert call(where, "list_routines") == "There are no routines."
    call(where, "add_routine", title="Water", description="Say:\ndrink", schedule="1h")
    job = agent_routines(person.agent.pk).get()
    listed = call(where, "list_routines")
    assert f"- {job.pk} 'Water': Say: drink (1h, UTC, inline, scheduled; next run 20" in listed
    said = call(where, "update_routine", routine_id=job.pk, schedule="2h", execution_mode="isolated")
    assert f"Updated routine {job.pk} 'Water': 2h (UTC), isolated. Next run: 20" in said
    assert call(where, "remove_routine", routine_id=job.pk) == f"Disabled routine {job.pk}."
    assert call(where, "list_routines") == "There are no routines."
    assert "disabled; next run none" in call(where, "list_routines", include_disabled=True)
    assert call(where, "remove_routine", routine_id=job.pk, hard=True) == f"Deleted routine {job.pk}."


@pytest.mark.rule("11.1", "11.2", "11.5", "11.6")
def test_a_list_says_what_is_set_and_what_stops_a_routine(person: Person) -> None:
    gate = {"kind": "http_changed", "url": "https://example.org/?key=secret"}
    job = add(person, "Tea", schedule="1d", gate=gate, limits={"day": {"usd": "0.50"}})
    since = job.created_at
    JobHealth.objects.create(job=job, failures_in_a_row=SLOWED_AFTER, failing_since=since, failed_last=since)
    problem = {"code": "bad_gate", "text": "There is no such gate.", "since": since.isoformat()}
    JobPreflight.objects.update_or_create(job=job, defaults={"problems": [problem]})
    listed = call(context(person.session()), "list_routines")
    for part in ("gate http_changed", "$0.50 a day", problem["text"], "slowed down until"):
        assert part in listed
    assert "secret" not in listed


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no title": ("add_routine", {}, "title is missing"),
    "unknown parameter": ("add_routine", {"title": "x", "channel": "y"}, "unknown parameter 'channel'"),
    "bad schedule": ("add_routine", {"title": "x", "schedule": "soon"}, "neither an interval such as `30m`"),
    "zone": ("add_routine", {"title": "x", "timezone": "Mars/X"}, "takes an IANA name such as Europe/Berlin"),
    "duplicate": ("add_routine", {"title": "water", "schedule": "60m"}, "update that one, or pass allow_dup"),
    "half an intent": (
        "add_routine",
        {"title": "x", "memory_line": 3},
        "give memory_line and memory_revision",
    ),
    "no id": ("update_routine", {"title": "x"}, "routine_id is missing: list_routines shows the ids"),
    "unknown id": ("update_routine", {"routine_id": "nope", "title": "x"}, "no such routine; list_routines"),
}


def test_a_refusal_says_what_to_do(person: Person) -> None:
    where = context(person.session())
    call(where, "add_routine", title="Water", schedule="1h")
    wrong = []
    for what, (name, arguments, words) in REFUSED.items():
        with pytest.raises(ToolFailed) as refusal:
            call(where, name, **arguments)
        if words not in str(refusal.value):
            wrong.append((what, str(refusal.value)))
    assert wrong == []
    assert agent_routines(person.agent.pk).count() == 1


def test_the_limit_and_another_agents_routine(person: Person) -> None:
    Agent.objects.filter(pk=person.agent.pk).update(routine_limit=0)
    where = context(person.session())
    with pytest.raises(ToolFailed, match="may have at most 0 enabled routines; remove one first"):
        call(where, "add_routine", title="x")
    theirs = add(new_person("bob"), "x", schedule="1h")
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
    texts = {6: "Every Friday sort the notes", 7: "water the plants", 8: "call mum on Sundays"}
    assert [(each.line, each.text) for each in find_intents(TEXT)] == [*texts.items()]
    assert find_intents("") == ()


def test_marking_changes_the_mark_and_nothing_else() -> None:
    marked = mark_registered(TEXT, 6, "abc")
    assert marked == TEXT.replace("[待注册]", "[已注册: abc]")
    assert "water the plants [registered: abc]" in mark_registered(TEXT, 7, "abc")
    for line in (0, 1, 6, 99):
        with pytest.raises(NoIntent):
            mark_registered(marked, line, "again")


def test_an_intent_becomes_a_routine_once(person: Person) -> None:
    memory = put_document(person.agent.pk, MEMORY, TEXT)
    given = NewRoutine(agent_id=person.agent.pk, title="Sort notes", schedule="0 9 * * 5")
    job = register_intent(6, memory.revision, given)
    assert (job.source, agent_routines(person.agent.pk).count()) == (given.source, 1)
    written = Document.objects.get(agent=person.agent, name=MEMORY)
    assert f"- Every Friday sort the notes → [已注册: {job.pk}]\n" in written.content
    assert written.revision == memory.revision + 1
    with pytest.raises(NoIntent):
        register_intent(6, written.revision, given)
    with pytest.raises(RevisionConflict):
        register_intent(8, memory.revision, NewRoutine(agent_id=person.agent.pk, title="Call mum"))
    assert agent_routines(person.agent.pk).count() == 1


def test_of_several_heartbeats_that_read_one_intent_one_registers_it(person: Person) -> None:
    memory = put_document(person.agent.pk, MEMORY, TEXT)

    def register(number: int) -> CronJob:
        given = NewRoutine(agent_id=person.agent.pk, title=f"Notes {number}", schedule="1d")
        return register_intent(6, memory.revision, given)

    assert sum(isinstance(came, CronJob) for came in at_once(*(partial(register, n) for n in range(4)))) == 1
    assert agent_routines(person.agent.pk).count() == 1


def test_an_intent_whose_routine_is_there_already_is_only_marked(person: Person) -> None:
    memory = put_document(person.agent.pk, MEMORY, TEXT)
    call(heartbeat(person), "add_routine", title="Sort Notes", schedule="1d")
    there = agent_routines(person.agent.pk).get()
    assert (there.home_id, there.source) == (None, "heartbeat_reflect")
    again = {"title": "sort notes", "schedule": "1d", "memory_line": 6, "memory_revision": memory.revision}
    assert there.pk in call(heartbeat(person), "add_routine", **again)
    assert MailboxEvent.objects.count() == agent_routines(person.agent.pk).count() == 1, "it is reported once"
    assert f"[已注册: {there.pk}]" in Document.objects.get(agent=person.agent, name=MEMORY).content
