"""The `cron` tool: what the model is told when something is missing, and whose jobs it sees (rule 4.2)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent_core import tools
from agent_core.exceptions import ToolFailed
from automations.jobs.edit import update_job
from automations.models import CronJob, JobClock, JobHealth, JobKind, JobPreflight, RunRecord, RunState
from automations.models.health import SLOW_INTERVAL, SLOWED_AFTER
from automations.tools.cron import NAMES, READS, in_words
from automations.tools.cron_reads import at_text
from interfaces.web.conversation_calls import shown_call
from sessions_app.models import Agent, ConsentQuestion, Session, SessionType, Turn, TurnInput, TurnKind
from sessions_app.models.turn_input import HookSender
from sessions_app.queue.kinds import kind_of
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.spending.accounts import mark_stopped
from sessions_app.turns.tool_calls import ToolContext
from tests.agent_core.planner.plans import RESPOND, plan, revision, says
from tests.agent_core.planner.plans import tool as step
from tests.automations.jobs.made import DAILY, new, past_run, planned_for
from tests.automations.tools.test_routines import context
from tests.conftest import Person, new_person
from tests.inside import Inside, call, makes
from tests.talk import last_said

pytestmark = pytest.mark.rule("4.2")


def cron(where: ToolContext, /, **arguments: Any) -> str:
    return tools.get("cron").run(where, arguments)


ADD, FIVE, NINE = {"action": "add", "message": "m"}, {"every_seconds": 5}, {"cron_expr": "0 9 * * *"}
ONE_OF = "give exactly one of every_seconds, cron_expr, rrule, at"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no action": ({}, "action must be one of add, list, upcoming, explain"),
    "an action that is no text": ({"action": ["add"]}, "action must be one of add, list, upcoming, explain"),
    "unknown keyword": (
        ADD | FIVE | {"channel": "x"},
        "unknown parameter 'channel'; the parameters are action,",
    ),
    "no message": ({"action": "add", "every_seconds": 5}, "message is missing: say what"),
    "a message that is no text": (FIVE | {"action": "add", "message": 5}, "message is missing: say what"),
    "no schedule": (ADD, ONE_OF),
    "two schedules": (ADD | FIVE | {"at": "2027-01-01T00:00"}, f"{ONE_OF}; got every_seconds, at"),
    "zone without cron": (ADD | FIVE | {"tz": "Asia/Tokyo"}, "tz can only be given with cron_expr"),
    "unknown zone": (ADD | NINE | {"tz": "Mars/X"}, "There is no time zone 'Mars/X'. tz takes an IANA name"),
    "bad cron": (ADD | {"cron_expr": "0 9 * *"}, "cron_expr: A cron expression has exactly 5 fields"),
    "rule without a start": (ADD | {"rrule": "FREQ=DAILY"}, "rrule needs starts_at"),
    "start without a rule": (ADD | NINE | {"starts_at": "2026-12-01T09:00"}, "rrule needs starts_at"),
    "bad rule": (ADD | {"rrule": "HOURLY", "starts_at": "2026-12-01T09:00"}, "rrule: 'HOURLY' is not a part"),
    "last workday in cron": (
        ADD | {"cron_expr": "0 17 LW * *"},
        "`FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1`",
    ),
    "days out of an interval": (
        ADD | FIVE | {"except_dates": ["2026-12-24"]},
        "except_dates can only be given with",
    ),
    "bad day": (ADD | NINE | {"except_dates": ["Christmas"]}, "except_dates: `except` has dates such as"),
    "bad country": (
        ADD | NINE | {"except_holidays": "Germany"},
        "except_holidays: No public holidays of 'Germany'",
    ),
    "bad time": (ADD | {"at": "tomorrow"}, "`at` must be a time such as `2027-01-01T09:00:00+01:00`."),
    "past time": (ADD | {"at": "2020-01-01T00:00:00Z"}, "has passed. It is now 20"),
    "interval of nothing": (ADD | {"every_seconds": 0}, "every_seconds: The interval must be from 1 to"),
    "name of two lines": (ADD | {"every_seconds": 5, "name": "a\nb"}, "the name contains a line break"),
    "a name that is no text": (ADD | {"every_seconds": 5, "name": 5}, "name must be text"),
    "no job id": ({"action": "remove"}, "job_id is missing: list shows the ids"),
    "unknown job": ({"action": "remove", "job_id": "nope"}, "no automation 'nope'; list shows the ids"),
    "NUL": ({"action": "remove", "job_id": "a\x00"}, "job_id holds a NUL character"),
    "reserved id": ({"action": "remove", "job_id": "dream"}, "'dream' is a system job; it is protected"),
}


def test_a_refusal_says_what_to_do(person: Person) -> None:
    where, wrong = context(person.session()), []
    for what, (arguments, words) in REFUSED.items():
        with pytest.raises(ToolFailed) as refusal:
            cron(where, **arguments)
        if words not in str(refusal.value):
            wrong.append((what, str(refusal.value)))
    assert wrong == []
    assert not CronJob.objects.exists()


def test_what_is_scheduled_already_is_shown_as_no_failure(session: Session) -> None:
    new(session, message="m", schedule={"kind": "every", "seconds": 5})
    with pytest.raises(ToolFailed) as refusal:
        cron(context(session), **ADD, **FIVE)
    result = {"outcome": "failed", "error_class": type(refusal.value).__name__, "output": str(refusal.value)}
    assert shown_call({"name": "cron"}, result).outcome == "already"


@pytest.mark.rule("11.2")
def test_a_list_says_what_keeps_automations_from_running(session: Session) -> None:
    slot = datetime.now(UTC).replace(microsecond=0)
    slowed, stopped, troubled, well = (new(session, message=f"task {number}") for number in range(4))
    JobHealth.objects.create(job=slowed, failures_in_a_row=SLOWED_AFTER, failing_since=slot, failed_last=slot)
    end = slot + timedelta(days=2)
    mark_stopped(session.agent_id, [stopped.pk], end.isoformat())
    JobClock.objects.update(next_run_at=slot + timedelta(minutes=5))
    problem = {"code": "bad_gate", "text": "There is no such gate.", "since": slot.isoformat()}
    JobPreflight.objects.update_or_create(job=troubled, defaults={"problems": [problem]})
    lines = dict(
        zip(
            (slowed, stopped, troubled, well), cron(context(session), action="list").splitlines(), strict=True
        )
    )
    assert at_text(slot + SLOW_INTERVAL, slowed.timezone) in lines[slowed]
    assert at_text(end, stopped.timezone) in lines[stopped]
    assert problem["text"] in lines[troubled]
    assert at_text(slot + timedelta(minutes=5), well.timezone) in lines[well]


@pytest.mark.rule("11.1", "11.3", "11.6", "11.7")
def test_a_list_shows_what_people_have_set_and_what_the_last_run_lacked(session: Session) -> None:
    gate = {"kind": "http_changed", "url": "https://example.org/?key=secret"}
    limits = {"day": {"usd": "0.50"}}
    job = new(session, message="tea", gate=gate, limits=limits, allow_tools=[], max_output_tokens=90)
    past_run(job, 1, RunState.SUCCEEDED, attention="empty")
    paused = new(session, message="coffee", enabled=False)
    since = {"failing_since": paused.created_at, "failed_last": paused.created_at}
    JobHealth.objects.create(job=paused, failures_in_a_row=20, paused_reason="failing", **since)
    first, second = cron(context(session), action="list").splitlines()
    for part in ("(succeeded, empty)", "gate http_changed", "$0.50 a day", "allow_tools none", "tokens 90"):
        assert part in first
    assert "secret" not in first
    assert "resume" in second


@pytest.mark.rule("11.1", "11.6", "11.7")
def test_the_agents_own_tools_set_no_cap_gate_or_model(session: Session) -> None:
    where = context(session)
    sets: dict[str, Any] = {"limits": {"day": {"usd": "9"}}, "gate": None, "model": "offline"}
    call_of: dict[str, dict[str, Any]] = {
        "cron": ADD | FIVE,
        "add_routine": {"title": "Tea"},
        "update_routine": {"routine_id": "x"},
    }
    for tool, given in call_of.items():
        for name, value in sets.items():
            with pytest.raises(ToolFailed, match=name):
                tools.get(tool).run(where, given | {name: value})
    assert not CronJob.objects.exists()


def test_add_binds_to_the_session_and_every_action_ignores_deliver(session: Session) -> None:
    at = context(session)
    new_issues = "check the repository for new issues"
    said = cron(at, action="add", message=new_issues, every_seconds=5, deliver=True)
    job = CronJob.objects.get()
    name = "check the repository for new i"
    assert (job.session_id, job.name, job.source) == (session.pk, name, "chat")
    assert (job.deliver, job.channel, job.to, job.channel_meta) == (None, "", "", None)
    assert job.created_by_turn_id == at.turn.pk
    assert said.startswith(f"Added “{name}”: every 5 seconds. Next run: ")
    assert said.endswith(f"[{job.pk}]")
    assert "every 5 seconds" in cron(at, action="list", deliver=None)
    assert cron(at, action="remove", job_id=job.pk, deliver=False).startswith("Removed")


def test_what_is_empty_counts_as_not_given(person: Person) -> None:
    """Many models fill every parameter in."""
    empty = {"cron_expr": "", "at": None, "tz": "", "name": "", "job_id": None}
    cron(context(person.session()), **ADD, every_seconds=5, **empty)
    assert CronJob.objects.get().name == "m"


def test_a_session_that_is_no_persons_has_no_automations(person: Person) -> None:
    at = context(person.session())
    for kind in (SessionType.HEARTBEAT, SessionType.JOB):
        at.session.type = kind
        for action in ("add", "list", "remove"):
            with pytest.raises(ToolFailed, match="automations belong to a person's conversation"):
                cron(at, **(ADD | {"action": action, "every_seconds": 5}))


def test_times_without_a_zone_are_in_the_agents(person: Person) -> None:
    person.agent.timezone = "Asia/Tokyo"
    person.agent.save()
    where = context(Session.objects.select_related("agent").get(pk=person.session().pk))
    cron(where, action="add", message="m", at="2027-01-01T09:00")
    assert CronJob.objects.get().at == datetime(2027, 1, 1, tzinfo=UTC)
    said = cron(where, **ADD, cron_expr="0 9 * * *")
    assert "every day at 09:00 (Asia/Tokyo)" in said
    assert " 09:00. [" in said


def test_what_cron_cannot_say_is_a_rule(person: Person) -> None:
    at, start = context(person.session()), {"starts_at": "2026-11-30T09:00", "tz": "Europe/Berlin"}
    last = "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"
    for rule, words in (
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO", "every two weeks on Monday at 09:00 (Europe/Berlin)"),
        (last, "on the last weekday (Mon\u2013Fri) of the month at 09:00 (Europe/Berlin)"),
    ):
        assert words in cron(at, **ADD, rrule=rule, **start)
        assert words in cron(at, action="list")
    begun = start | {"starts_at": "2026-11-16T09:00"}
    with pytest.raises(ToolFailed, match="same message and schedule"):  # however it is written and begun
        cron(at, **ADD, rrule="RRULE:BYDAY=MO;INTERVAL=2;FREQ=WEEKLY", **begun)
    job, zone = CronJob.objects.get(expr=last), ZoneInfo("Europe/Berlin")
    day = planned_for(job).astimezone(zone).date()
    said = cron(at, action="change", job_id=job.pk, except_dates=[str(day)], except_holidays="DE")
    named = f" except on public holidays in Germany and on {day.day} {day:%b %Y} ("
    assert words.replace(" (Europe", f"{named}Europe") in said
    assert planned_for(job).astimezone(zone).date() > day
    asked = in_words(at, {"action": "remove", "job_id": job.pk})
    assert asked.words == f"Remove “m” ({words.replace(' (Europe', f'{named[:-2]}, Europe')}?"


def test_list_describes_this_sessions_automations_with_last_and_next_run(person: Person) -> None:
    mine, other = person.session(), person.session()
    new(other, message="secret elsewhere")
    at = context(mine)
    assert cron(at, action="list") == "This conversation has no automations."
    cron(at, action="add", message="morning", cron_expr="0 9 * * *", tz="Asia/Shanghai")
    job = CronJob.objects.get(session=mine)
    (line,) = cron(at, action="list").splitlines()
    assert line.startswith("- “morning”: every day at 09:00 (Asia/Shanghai); not run yet; next run ")
    assert line.endswith(f" 09:00 [{job.pk}]")
    slot = datetime(2026, 11, 20, 1, tzinfo=UTC)
    ended = {"job": job, "scheduled_for": slot, "finished_at": slot}
    RunRecord.objects.create(run_id="r:1", state=RunState.SUCCEEDED, **ended)
    later = ended | {"scheduled_for": slot + timedelta(days=1)}
    RunRecord.objects.create(run_id="r:2", state=RunState.SKIPPED, reason="overlap", **later)
    assert "; last run Friday, 2026-11-20 09:00 (succeeded); next run " in cron(at, action="list")


def test_list_says_why_there_is_no_next_run(session: Session) -> None:
    at = context(session)
    cron(at, **ADD, at="2099-01-01T09:00Z")
    job = CronJob.objects.get()
    assert "once at 2099-01-01 09:00 (UTC)" in cron(at, action="list")
    JobClock.objects.update(next_run_at=None)
    assert "; not run yet; done [" in cron(at, action="list")
    run = RunRecord.objects.create(run_id="r:1", job=job, scheduled_for=datetime(2099, 1, 1, 9, tzinfo=UTC))
    assert "; last run Thursday, 2099-01-01 09:00 (queued); no further run [" in cron(at, action="list")
    run.state, run.finished_at = RunState.FAILED, datetime(2099, 1, 1, 9, tzinfo=UTC)
    run.save()
    assert "; last run Thursday, 2099-01-01 09:00 (failed); failed [" in cron(at, action="list")
    run.delete()
    update_job(job.pk, {"enabled": False})
    assert "; paused [" in cron(at, action="list")
    CronJob.objects.update(fault="There is no time zone 'Mars/X'.", timezone="Mars/X")
    assert "; set aside after a fault [" in cron(at, action="list")


ON_ONE = [
    each for each in NAMES if each not in {"add", "list", "upcoming"}
]  # they take the id of an automation


def test_no_call_reaches_an_automation_of_another_conversation_or_person(person: Person) -> None:
    """What is there is refused as what is not."""
    mine, other, strangers = person.session(), person.session(), new_person("bob").session()
    elsewhere, theirs, at = new(other), new(strangers), context(mine)
    before = list(CronJob.objects.order_by("pk").values())
    for scope, job in (("", elsewhere), ("", theirs), ("all", theirs)):
        for action in ON_ONE:
            said = []
            for job_id in (job.pk, "x" * len(job.pk)):
                with pytest.raises(ToolFailed) as refusal:
                    cron(at, action=action, scope=scope, job_id=job_id, name="n")
                said.append(str(refusal.value).replace(job_id, "?"))
            assert said[0] == said[1], action
    assert list(CronJob.objects.order_by("pk").values()) == before
    assert theirs.pk not in cron(at, action="list", scope="all") + cron(at, action="upcoming", scope="all")


@pytest.mark.rule("3.5")
def test_only_the_owners_own_message_in_a_private_chat_reaches_all(person: Person) -> None:
    """A group, a hook, a limited token, another one's words that joined the turn, and a scheduled turn do not."""
    group, home = person.session(chat_type="group"), person.session()
    job = new(home)
    slot, post, limited, joined = (
        context(person.session(), kind) for kind in (TurnKind.AUTOMATION, *[TurnKind.MESSAGE] * 3)
    )
    posted = TurnInput.of_post(HookSender(hook="h", name="h", sender="eve", as_person=True))
    post.turn.metadata, limited.turn.metadata = posted.to_json(), TurnInput(limited=True).to_json()
    guest = receive(joined.session.pk, MessageInput(content="all of it", about=posted))
    Turn.objects.filter(pk=guest.pk).update(host=joined.turn)
    for where in (context(group), slot, post, limited, joined, replace(context(home), stranger="h")):
        for action in sorted({*NAMES} - {"add"}):
            asks = tools.get("cron").spec(where).in_words
            given = {"action": action, "scope": "all", "job_id": job.pk}
            assert asks(given).problem or action in READS, action
            with pytest.raises(ToolFailed, match=r"leave scope out|only a person's message can"):
                cron(where, **given, name="n")
    assert job.name in cron(context(person.session()), action="list", scope="all")


@pytest.mark.rule("3.5")
def test_a_question_has_the_stored_name_and_a_yes_does_not_outlive_a_change(inside: Inside) -> None:
    for number, engine in enumerate(("chat", "planner")):
        Agent.objects.update(engine=engine)
        session = inside.person.session()
        job = new(session, name="Stand” (never)? “up\u202e", schedule=DAILY | {"expr": "30 8 * * 1-5"})
        remove, asks = {"action": "remove", "job_id": job.pk}, says("I would like to.")
        ask = [makes(call("cron", **remove)), asks] if not number else [plan(step("cron", **remove), RESPOND)]
        inside.say(session, "Remove it.", *ask)
        words = "Remove “Stand' (never)? 'up\\u202e” (on weekdays at 08:30, Europe/Berlin)?"
        [asked] = ConsentQuestion.objects.get(session=session).calls
        assert (asked["words"], asked["says_all"]) == (words, True)
        assert f"    {words}\n    cron with {{" in last_said(session)
        update_job(job.pk, {"message": "other"})
        inside.say(session, "yes", *(ask if not number else []))
        assert CronJob.objects.filter(pk=job.pk).exists(), engine
        inside.say(session, "yes", *(ask if not number else [revision("continue"), says("Gone.")]))
        assert not CronJob.objects.filter(pk=job.pk).exists(), engine
        turn = inside.say(
            session, "Again.", *(ask if not number else [*ask, revision("finish", answer="None.")])
        )
        assert not ConsentQuestion.objects.filter(turn=turn).exists(), "nobody is asked for what is not there"


def test_appointments_are_changed_paused_skipped_and_explained(person: Person) -> None:
    mine, other = person.session(), person.session(title="Health")
    job, far = new(mine, name="Bins", message="bins"), new(other, name="Walk", message="walk")
    at, one = context(mine), {"job_id": job.pk}
    assert "every Wednesday at 09:00 (Europe/Berlin)" in cron(
        at, action="change", **one, cron_expr="0 9 * * 3", tz="Europe/Berlin"
    )
    weekly = planned_for(job)
    assert at_text(weekly, job.timezone) in cron(at, action="skip", **one)
    assert planned_for(job) > weekly
    assert "skipped" in cron(at, action="upcoming", until=(weekly + timedelta(days=1)).isoformat())
    cron(at, action="unskip", **one)
    assert (planned_for(job), RunRecord.objects.count()) == (weekly, 0)
    with pytest.raises(ToolFailed, match="still to come"):
        cron(at, action="unskip", **one)
    cron(at, action="skip", **one, slots=2)
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    RunRecord.objects.update(scheduled_for=begun, slots_from=begun)
    cron(at, action="unskip", **one)
    assert planned_for(job) == weekly
    assert RunRecord.objects.filter(slots_to__lte=datetime.now(UTC)).exists(), "what has passed stays"
    later, begin = weekly + timedelta(hours=5), weekly - timedelta(minutes=1)
    move = partial(cron, at, action="move", **one)
    assert at_text(later, job.timezone) in move(slot=weekly.isoformat(), to=later.isoformat())
    with pytest.raises(ToolFailed, match="no run is planned"):
        move(slot=weekly.isoformat(), to=later.isoformat())
    move(slot=later.isoformat(), to=weekly.isoformat())
    assert planned_for(job) == weekly
    pause = {"since": begin.isoformat(), "until": later.isoformat()}
    assert f"Paused from {at_text(begin, job.timezone)} until" in cron(at, action="pause", **one, **pause)
    assert "paused from" in cron(at, action="list")
    new(mine, name="Soon", schedule={"kind": "at", "at": (weekly + timedelta(seconds=30)).isoformat()})
    until = (weekly + timedelta(minutes=1)).isoformat()
    assert "“Soon” was left as it is" in cron(at, action="pause", scope="all", until=until)
    assert min(planned_for(job), planned_for(far)) > weekly
    assert "Bins" in cron(at, action="resume", scope="conversation")
    assert planned_for(job) == weekly
    past_run(far, 1, RunState.FAILED, "model_refused", provider_message="KEY", error="It failed.")
    said = cron(at, action="explain", scope="all", job_id=far.pk)
    assert ("Failed" in said, "KEY" in said) == (True, False)
    assert "“Walk” in “Health”" in cron(at, action="upcoming", scope="all").replace(",", "")
    assert "Walk" not in cron(at, action="upcoming")


def test_a_system_job_is_protected_and_not_listed(person: Person) -> None:
    """It belongs to no session, so the rule of one's own session would call it unknown: it has words of its own."""
    stranger = new_person("bob")
    every = {"schedule_kind": "every", "every_seconds": 60, "anchor": datetime(2026, 1, 1, tzinfo=UTC)}
    system = {"kind": JobKind.SYSTEM_EVENT, "system_event": "dream"} | every
    each_has = partial(CronJob.objects.create, name="d", **system)
    own, theirs = (each_has(agent=each.agent) for each in (person, stranger))
    at = context(person.session())
    assert cron(at, action="list") == "This conversation has no automations."
    for job, words in (
        (own, f"'{own.pk}' is a system job; it is protected"),
        (theirs, f"no automation '{theirs.pk}'"),
    ):
        for action, scope in product(ON_ONE, ("", "all")):
            with pytest.raises(ToolFailed, match=words):
                cron(at, action=action, scope=scope, job_id=job.pk)
    assert CronJob.objects.count() == 2


def test_an_automations_turn_may_read_and_remove_but_not_write(session: Session) -> None:
    cron(context(session), **ADD, every_seconds=5)
    at, own = context(session, TurnKind.AUTOMATION), CronJob.objects.get().pk
    for action in sorted({*NAMES} - {*READS, "remove"}):
        with pytest.raises(ToolFailed, match="an automation cannot create or change automations"):
            cron(at, action=action, job_id=own, message="m", scope="conversation")
    assert own in cron(at, action="explain", job_id=own) + cron(at, action="upcoming")
    assert "every 5 seconds" in cron(at, action="list")
    assert cron(at, action="remove", job_id=CronJob.objects.get().pk)


def test_only_a_persons_message_may_create_automations() -> None:
    kinds_of_turn = [kind_of(Turn(kind=kind)) for kind in TurnKind]
    assert {kind.name for kind in kinds_of_turn if kind.interactive} == {TurnKind.MESSAGE}
