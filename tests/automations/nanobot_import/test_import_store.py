"""Importing nanobot's job store: what comes in as what, what is refused, and that twice is once (rule 4.1)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automations.exceptions import BadMessage
from automations.jobs.edit import MOST_ENABLED, NewJob, create_job, update_job
from automations.jobs.explain import explain
from automations.models import CronJob, JobClock
from automations.models.job import Category, category
from automations.nanobot_import.import_store import Line, Outcome, Report, import_store
from automations.nanobot_import.store_file import StoredJob, StoreRefused, read_store
from automations.schedules.plan import schedule_of
from sessions_app.agents.edit import create_agent
from sessions_app.exceptions import NotFound
from sessions_app.models import PRIMARY_KEY, Session, SessionState
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import primary_session
from tests.automations.jobs.made import at_once, planned_for
from tests.automations.messages import later
from tests.conftest import Person, new_person
from tests.races import in_thread
from tests.up import ROOT

pytestmark = pytest.mark.rule("4.1")

SAMPLE = ROOT / "tests" / "data" / "nanobot_jobs.json"
KEY = "telegram:42"


@pytest.fixture
def person(transactional_db: None) -> Person:
    return new_person("ada", dreams=True)


def a_job(**fields: Any) -> dict[str, Any]:
    """A bound job as nanobot writes it; fields of `schedule`, `payload` and `state` are laid over."""
    payload = {"kind": "agent_turn", "message": "look", "sessionKey": KEY, "channelMeta": {}}
    job: dict[str, Any] = {"id": "abcd1234", "name": "daily", "enabled": True}
    job |= {"schedule": {"kind": "every", "atMs": None, "everyMs": 60_000, "expr": None, "tz": None}}
    job |= {"payload": payload | {"deliver": False, "channel": None, "to": None}}
    job |= {"state": {"nextRunAtMs": None, "lastRunAtMs": None}}
    for name, value in fields.items():
        is_part = isinstance(value, dict) and isinstance(job.get(name), dict)
        job[name] = job[name] | value if is_part else value
    return job


def store(*jobs: Any) -> bytes:
    return json.dumps({"version": 1, "jobs": jobs}).encode()


def brought(person: Person, *jobs: Any) -> tuple[Line, ...]:
    return import_store(person.agent.pk, store(*jobs)).lines


def one(person: Person, **fields: Any) -> Line:
    [line] = brought(person, a_job(**fields))
    return line


def imported() -> list[CronJob]:
    return list(CronJob.objects.filter(source="import").order_by("pk"))


def everything() -> list[Any]:
    models = (CronJob, JobClock, Session)
    return [list(model.objects.order_by("pk").values()) for model in models]


def test_the_sample_comes_in_by_category(person: Person) -> None:
    report = import_store(person.agent.pk, SAMPLE.read_bytes())
    expected = {"bound": 2, "legacy": 1, "system": 1, "not_stored": 1, "refused": 1, "already_there": 0}
    assert report.totals == expected
    tea, news, garden = (CronJob.objects.get(pk=name) for name in ("3f9c2a1b", "77aa01cd", "b2d4e6f8"))
    assert [category(job) for job in (tea, news, garden)] == [Category.BOUND, Category.BOUND, Category.LEGACY]
    assert tea.session is not None
    assert (tea.session.key, tea.session.type, tea.every_seconds) == ("web:9d1e", "sub", 2)
    assert news.session == primary_session(person.agent)
    assert (news.expr, news.timezone) == ("0 9 * * 1-5", "Asia/Shanghai")
    assert (garden.session, garden.session_key) == (None, "telegram:4242")
    assert (garden.deliver, garden.channel, garden.to) == (True, "telegram", "4242")
    assert garden.channel_meta == {"message_thread_id": 7}
    dream = CronJob.objects.get(agent=person.agent, system_event="dream")
    assert (dream.expr, dream.timezone, dream.imported_id) == ("30 4 * * *", "Europe/Berlin", "dream")
    refused = next(line for line in report.lines if line.outcome is Outcome.REFUSED)
    assert (refused.place, refused.stored_id, refused.name) == ("jobs[3]", "0c0c0c0c", "dentist")
    assert "has passed" in refused.note
    assert not CronJob.objects.filter(imported_id="heartbeat").exists()


def test_importing_twice_changes_nothing_and_a_dry_run_nothing_at_all(person: Person) -> None:
    empty = everything()
    dry = import_store(person.agent.pk, SAMPLE.read_bytes(), dry_run=True)
    assert everything() == empty
    assert dry.totals == import_store(person.agent.pk, SAMPLE.read_bytes()).totals
    before = everything()
    assert import_store(person.agent.pk, SAMPLE.read_bytes()).totals["already_there"] == 4
    assert everything() == before


def test_a_second_import_keeps_edited_jobs_and_restores_deleted_ones(person: Person) -> None:
    one(person)
    update_job("abcd1234", {"name": "mine", "enabled": False})
    assert one(person).outcome is Outcome.ALREADY_THERE
    assert CronJob.objects.get(pk="abcd1234").name == "mine"
    assert delete_session(Session.objects.get(key=KEY).pk, with_dependents=True).deleted
    assert one(person).outcome is Outcome.IMPORTED


def test_a_second_import_does_not_refuse_a_finished_one_shot(person: Person) -> None:
    at = datetime.now(UTC) + timedelta(seconds=30)
    soon = {"kind": "at", "atMs": int(at.timestamp() * 1000), "everyMs": None}
    assert one(person, schedule=soon).outcome is Outcome.IMPORTED
    assert one(person, schedule=soon | {"atMs": 1_760_000_000_000}).outcome is Outcome.ALREADY_THERE


def test_two_imports_at_once_bring_everything_in_once(person: Person) -> None:
    content = SAMPLE.read_bytes()
    reports: list[Report] = at_once(*[lambda: import_store(person.agent.pk, content)] * 6)
    assert all(isinstance(report, Report) for report in reports), reports
    assert sorted(report.totals["bound"] for report in reports) == [0, 0, 0, 0, 0, 2]
    assert len(imported()) == 3


def test_a_second_agent_importing_the_same_store_gets_new_ids(person: Person) -> None:
    other, content = create_agent(person.user, "other"), SAMPLE.read_bytes()
    at_once(*(partial(import_store, pk, content) for pk in (person.agent.pk, other.pk)))
    assert CronJob.objects.filter(imported_id="3f9c2a1b").count() == 2
    assert CronJob.objects.filter(pk="3f9c2a1b").count() == 1


LEGACY = {"deliver": True, "channel": "telegram", "to": 42, "channelMeta": {"thread": 1}, "sessionKey": None}
EMPTY = {"payload": {"deliver": "", "channel": "", "to": " "}}
CATEGORIES: list[tuple[dict[str, Any], Category | None]] = [
    *((fields, Category.BOUND) for fields in ({}, EMPTY, {"name": "dream"})),
    *(({"payload": {name: value}}, Category.LEGACY) for name, value in LEGACY.items()),
    ({"id": "dream"}, Category.SYSTEM),
    ({"payload": {"kind": "system_event"}}, None),
]


@contextmanager
def undone() -> Iterator[None]:
    """What is stored here is taken back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_the_category_follows_the_rule(person: Person) -> None:
    for fields, expected in CATEGORIES:
        with undone():
            line = one(person, **fields)
            assert line.category == expected, (fields, line)
            if expected is None:
                assert line.outcome is Outcome.REFUSED, fields
            elif expected is not Category.SYSTEM:
                assert category(imported()[0]) is expected, fields


KEYS = {  # of the store, and of the session here
    PRIMARY_KEY: PRIMARY_KEY,
    "websocket:9d1e": "web:9d1e",
    "web:9d1e": "web:9d1e",
    "slack:C1:17.5": "slack:C1:17.5",
    **dict.fromkeys(("cron:abcd", "unified:other", "heartbeat", "slack:")),
}


def test_a_bound_job_belongs_to_the_session_of_its_key(person: Person) -> None:
    before = Session.objects.count()
    for key, expected in KEYS.items():
        with undone():
            line = one(person, payload={"sessionKey": key})
            if expected is None:
                assert line.outcome is Outcome.REFUSED, key
                assert (imported(), Session.objects.count()) == ([], before), key
                continue
            [job] = imported()
            assert job.session is not None, key
            assert (job.session.key, job.session.agent) == (expected, person.agent), key
            assert job.session.chat_id in {expected.partition(":")[2], ""}, key
            assert ("is a web thread here" in line.note) == (key != expected), key


def test_an_open_session_is_used_and_an_archived_one_refused(person: Person, telegram: None) -> None:
    session = person.session(key=KEY)
    one(person)
    assert imported()[0].session == session
    Session.objects.filter(pk=session.pk).update(state=SessionState.ARCHIVED)
    line = one(person, id="other")
    assert line.outcome is Outcome.REFUSED
    assert "archived" in line.note


TOLERATED: dict[str, dict[str, Any]] = {
    "a schedule in snake case": {"schedule": {"everyMs": None, "every_ms": 60_000}},
    "a payload in snake case": {"payload": {"sessionKey": None, "session_key": KEY, "channel_meta": {}}},
    "a state in snake case": {"state": {"next_run_at_ms": None}},
    "texts for numbers": {"schedule": {"everyMs": "60000"}},
    "a fraction that is none": {"schedule": {"everyMs": 60000.0}},
    "nulls": {
        **dict.fromkeys(("name", "enabled", "state")),
        "payload": {"deliver": None, "channelMeta": None},
    },
    "unknown fields": {"colour": [1, {"x": None}], "schedule": {"jitter": 5}, "payload": {"model": "m"}},
    "flags as texts": {"enabled": "true", "payload": {"deliver": "no"}},
    "a number for a name": {"name": 7},
    "a name of two lines": {"name": "a\nb"},
}


def test_the_store_is_read_tolerantly(person: Person) -> None:
    names = {"nulls": "look", "a number for a name": "7", "a name of two lines": "a b"}
    for what, fields in TOLERATED.items():
        with undone():
            line = one(person, **fields)
            assert (line.outcome, line.category) == (Outcome.IMPORTED, Category.BOUND), (what, line.note)
            [job] = imported()
            assert (job.every_seconds, job.enabled, job.message) == (60, True, "look"), what
            assert job.name == names.get(what, "daily"), what


def test_a_bare_list_and_missing_parts_are_enough(person: Person) -> None:
    job = {"id": "x1", "schedule": {"kind": "every", "everyMs": 1000}, "payload": {"message": "m"}}
    [line] = import_store(person.agent.pk, b"\xef\xbb\xbf" + json.dumps([job]).encode()).lines
    assert (line.outcome, line.category, line.id) == (Outcome.IMPORTED, Category.LEGACY, "x1")
    for empty in (b"[]", b'{"jobs": null}', b'{"jobs": [], "version": 2}'):
        assert import_store(person.agent.pk, empty).lines == ()


REFUSED_ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"id": None}, "it has no id"),
    "a long id": ({"id": "x" * 201}, "id is longer than 200"),
    "no message": ({"payload": {"message": None}}, "the message is empty"),
    "a long message": ({"payload": {"message": "x" * 20_001}}, "longer than 20000"),
    "a NUL": ({"payload": {"message": "a\x00b"}}, "payload.message holds a character"),
    "no schedule": ({"schedule": None}, "it has no schedule"),
    "an unknown schedule": ({"schedule": {"kind": "moon"}}, "unknown schedule kind 'moon'"),
    "bad fields": ({"schedule": {"kind": "cron", "expr": "61 * * * *"}}, "61"),
    "no interval": ({"schedule": {"everyMs": None}}, "everyMs must be whole seconds"),
    "a word for an interval": ({"schedule": {"everyMs": "often"}}, "'often', which is not a number"),
    "too much": ({"schedule": {"everyMs": "1e400"}}, "which is not a number"),
    "no instant": ({"schedule": {"kind": "at"}}, "atMs is missing"),
    "the past": ({"schedule": {"kind": "at", "atMs": 1_760_000_000_000}}, "has passed"),
    "the end of time": ({"schedule": {"kind": "at", "atMs": 10**30}}, "not a time in milliseconds"),
    "a bad plan": ({"state": {"nextRunAtMs": "soon"}}, "nextRunAtMs is 'soon'"),
    "neither on nor off": ({"enabled": "perhaps"}, "'perhaps', not true or false"),
    "a long channel": ({"payload": {"channel": "x" * 65}}, "channel is longer than 64"),
    "a NUL in the meta": ({"payload": {"channelMeta": {"a": ["\x00"]}}}, "channelMeta holds a character"),
}


def test_a_bad_job_is_refused_while_the_others_are_imported(person: Person) -> None:
    good = a_job(id="good", payload={"sessionKey": "slack:1"})
    for what, (fields, reason) in REFUSED_ALONE.items():
        with undone():
            bad, other = brought(person, a_job(**fields), good)
            assert (bad.place, bad.outcome) == ("jobs[0]", Outcome.REFUSED), what
            assert reason in bad.note, what
            assert other.outcome is Outcome.IMPORTED, what
            assert [job.pk for job in imported()] == ["good"], what
            assert not Session.objects.filter(key=KEY).exists(), what


def test_an_id_that_stands_twice_comes_in_once(person: Person) -> None:
    first, second = brought(person, a_job(), a_job(name="other"))
    assert (first.outcome, second.outcome) == (Outcome.IMPORTED, Outcome.REFUSED)
    assert second.note == "jobs[0] has the same id"


CORRUPT: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "line 1, column 1"),
    "no JSON": (b'{\n  "jobs": [\n    {"id": }\n', "line 3, column 12"),
    "no UTF-8": (b'{"jobs":\n  "\xff"}', "line 2, byte 4"),
    "UTF-16": (json.dumps({"jobs": []}).encode("utf-16"), "line 1, byte 1"),
    "a number": (b"7", "the file is a number"),
    "no jobs": (b'{"job": []}', "the file has no `jobs`"),
    "a job that is a text": (store(a_job(), "x"), "jobs[1] is a text"),
    "fields that are a list": (store(a_job(), a_job(schedule={"expr": [9]})), "jobs[1].schedule.expr is a list"),
    "a flag for a number": (store(a_job(schedule={"everyMs": True})), "jobs[0].schedule.everyMs is true or false"),
    "a message that is an object": (store(a_job(payload={"message": {}})), "jobs[0].payload.message is an object"),
    "a key twice": (b'{"jobs": [{"schedule": {"kind": 1, "kind": 2}}]}', "jobs[0].schedule.kind is repeated"),
    "not a number": (b'{"jobs": [{"id": NaN}]}', "jobs[0].id is NaN"),
    "a number without end": (b'{"jobs": [{"id": ' + b"9" * 5000 + b"}]}", "jobs[0].id is a number with too many"),
    "a deep one": (b'{"jobs": ' + b"[" * 100_000, "nested too deeply"),
}  # fmt: skip


def test_a_corrupt_file_is_refused_whole_with_the_place_named(person: Person) -> None:
    before = everything()
    for what, (content, place) in CORRUPT.items():
        with pytest.raises(StoreRefused) as refusal:
            import_store(person.agent.pk, content)
        assert place in str(refusal.value), what
        assert "\n" not in str(refusal.value), what
        assert everything() == before, what


def test_an_interval_keeps_its_beat(person: Person) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    ahead, ago = now + timedelta(seconds=40, milliseconds=250), now - timedelta(hours=5, milliseconds=750)
    plans = {
        "ahead": ({"nextRunAtMs": ms(ahead)}, ahead),
        "overdue": ({"nextRunAtMs": ms(ago)}, ago),
        "after the last": ({"nextRunAtMs": None, "lastRunAtMs": str(ms(ago))}, ago),
        "far ahead": ({"nextRunAtMs": ms(ahead + timedelta(days=4000))}, ahead),
    }
    lines = brought(person, *(a_job(id=name, state=state) for name, (state, _) in plans.items()))
    assert {line.outcome for line in lines} == {Outcome.IMPORTED}
    for name, (_, beat) in plans.items():
        following = planned_for(CronJob.objects.get(imported_id=name))
        assert now < following <= datetime.now(UTC) + timedelta(seconds=60)
        assert (following - beat) % timedelta(seconds=60) == timedelta(0)


def ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def test_schedules_without_a_zone_are_in_the_agents(person: Person) -> None:
    person.agent.timezone = "Asia/Tokyo"
    person.agent.save()
    line = one(person, schedule={"kind": "cron", "expr": "0 9 * * *"})
    assert line.schedule == "every day at 09:00 (Asia/Tokyo)"
    assert imported()[0].timezone == "Asia/Tokyo"


def test_a_disabled_job_is_imported_paused_even_when_overdue(person: Person) -> None:
    past = {"kind": "at", "atMs": 1_760_000_000_000, "everyMs": None}
    for line in brought(person, a_job(enabled=False), a_job(id="p", enabled=False, schedule=past)):
        assert (line.outcome, line.enabled, line.next_run_at) == (Outcome.IMPORTED, False, None)
    assert not JobClock.objects.filter(job__source="import", next_run_at__isnull=False).exists()
    update_job("abcd1234", {"enabled": True})
    assert JobClock.objects.get(job="abcd1234").next_run_at is not None


@pytest.mark.rule("8.2")
def test_a_group_is_imported_as_group_and_refuses_private_messages(person: Person) -> None:
    groups = ("telegram:-100123", "whatsapp:123@g.us", "slack:C024BE91L", "feishu:oc_abc")
    for number, key in enumerate((*groups, "telegram:42", "slack:D024BE91L", "email:oc_abc@example.org")):
        one(person, id=f"j{number}", payload={"sessionKey": key})
        session = Session.objects.get(key=key)
        if key in groups:
            assert session.chat_type == "group", key
            with pytest.raises(BadMessage, match="private chats only"):
                later(session)
        else:
            assert later(session).chat_type == "private", key


def test_no_session_gets_more_enabled_automations_than_it_may_have(person: Person, telegram: None) -> None:
    session = person.session(key=KEY)
    create_job(NewJob(session_id=session.pk, message="mine", schedule={"kind": "every", "seconds": 60}))
    jobs = [a_job(id=f"j{number}") for number in range(MOST_ENABLED + 1)]
    lines = brought(person, *jobs, a_job(id="off", enabled=False))
    refused = [line for line in lines if line.outcome is Outcome.REFUSED]
    assert [line.place for line in refused] == ["jobs[49]", "jobs[50]"]
    assert "50" in refused[0].note
    assert CronJob.objects.filter(session=session, enabled=True).count() == MOST_ENABLED


def test_an_id_of_another_form_is_replaced_and_known_again(person: Person) -> None:
    for stored in ("with space", "a:b", "x" * 33, "日报"):
        line = one(person, id=stored)
        assert line.id != stored
        assert "not valid here" in line.note
        assert one(person, id=stored).id == line.id


def test_an_agent_that_goes_meanwhile_gets_nothing(person: Person) -> None:
    gone = create_agent(person.user, "gone")
    pk = gone.pk
    with transaction.atomic():
        for rows in (CronJob.objects, Session.objects):
            rows.filter(agent=gone).delete()
        gone.delete()
        thread, came = in_thread(lambda: import_store(pk, store(a_job())))
        thread.join(1)
    thread.join(10)
    assert isinstance(came[0], NotFound)
    assert imported() == []


def told(*arguments: str) -> str:
    out = StringIO()
    call_command("import_jobs", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_speaks_json(person: Person, tmp_path: Path) -> None:
    answer = json.loads(told(str(SAMPLE), "--agent", "ada/demo", "--json"))
    assert answer["ok"] is True
    assert answer["totals"]["legacy"] == 1
    assert answer["jobs"][0]["session_key"] == "web:9d1e"
    broken = tmp_path / "jobs.json"
    broken.write_text("{")
    out = StringIO()
    with pytest.raises(SystemExit) as end:
        call_command("import_jobs", str(broken), "--agent", "demo", "--json", stdout=out)
    assert end.value.code == 1
    problem = json.loads(out.getvalue())
    assert (problem["ok"], problem["error"]["code"]) == (False, "corrupt_store")


def test_the_command_refuses_in_one_line(person: Person, tmp_path: Path) -> None:
    create_agent(new_person("bob").user, "solo")
    new_person("eve")
    broken, none = tmp_path / "jobs.json", tmp_path / "none"
    broken.write_text('{"jobs": [{"id": []}]}')
    refusals = [
        (broken, "solo", f"{broken}: jobs[0].id is a list, which is not allowed"),
        (none, "solo", f"{none}: No such file or directory"),
        (SAMPLE, "nobody", "there is no agent 'nobody'"),
        (SAMPLE, "ada/solo", "there is no agent 'ada/solo'"),
        (SAMPLE, "demo", "several users have an agent 'demo'; use one of ada/demo, bob/demo, eve/demo"),
    ]
    for file, agent, text in refusals:
        with pytest.raises(CommandError) as refusal:
            told(str(file), "--agent", agent)
        assert str(refusal.value) == f"{text}; nothing was imported"
    assert imported() == []


def test_a_reserved_session_key_is_refused_even_if_it_exists(person: Person) -> None:
    legacy = a_job(id="leg1", payload={"sessionKey": None})
    bound = a_job(id="b1", payload={"sessionKey": "cron:leg1"})
    for _ in range(2):
        assert brought(person, legacy, bound)[1].outcome == "refused"
        owner = {"owner": person.user, "type": "job"}
        Session.objects.get_or_create(agent=person.agent, key="cron:leg1", defaults=owner)
    assert not CronJob.objects.filter(pk="b1").exists()


@pytest.mark.usefixtures("real_telegram")
def test_a_chat_that_is_not_connected_here_is_imported_with_a_warning(person: Person) -> None:
    assert one(person).outcome is Outcome.IMPORTED
    session = Session.objects.get(key=KEY)
    assert (session.channel, session.chat_id) == ("telegram", "42")
    [warning] = explain(person.user, imported()[0].pk).warnings
    assert "this chat of Telegram is not connected to the agent" in warning
    refused = one(person, id="other123", payload={"sessionKey": "webhook:ftp://x/"})
    assert refused.outcome is Outcome.REFUSED, "an address that a channel of this server does not take"


SOME = [None, "", "0", "60000", "1e3", "nan", "-5", "true", "\x00", "\ud800", 999, 10**15, 10**19]
ODD = st.one_of(
    st.sampled_from(SOME),
    st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
)
NAMES = st.text(max_size=5)
ANYTHING = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def one_of(*usual: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(usual) | ODD


JOBS = some(
    id=one_of("a", "b", "dream", "heartbeat", "x" * 40), name=ODD, enabled=ODD, colour=ANYTHING,
    schedule=some(
        kind=one_of("cron", "every", "at"), atMs=ODD, everyMs=ODD, expr=one_of("0 9 * * *", "61 * * * *"),
        tz=one_of("Europe/Berlin", "Mars/X"),
    ),
    payload=some(
        kind=one_of("system_event"), deliver=ODD, channel=one_of("telegram"), to=ODD, channelMeta=ANYTHING,
        sessionKey=one_of("web:1", "websocket:2", "unified:default", "cron:x"),
    ),
    state=some(nextRunAtMs=ODD, lastRunAtMs=ODD),
).map(lambda fields: a_job(**fields))  # fmt: skip


def came_of(person: Person, content: bytes) -> Report | str:
    """What came of an import: its report, or the refusal of the whole file."""
    try:
        return import_store(person.agent.pk, content)
    except StoreRefused as refusal:
        return str(refusal)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.lists(JOBS, max_size=4))
def test_any_jobs_are_imported_once_or_refused_with_a_reason(person: Person, jobs: list[Any]) -> None:
    content = store(*jobs)
    with undone():
        before = everything()
        report = came_of(person, content)
        if isinstance(report, str):
            assert "jobs[" in report
            assert everything() == before
            return
        assert len(report.lines) == len(jobs)
        json.dumps(report.to_json(), allow_nan=False).encode()
        assert all(line.in_words().isprintable() for line in report.lines)
        assert all(line.note for line in report.lines if line.outcome is Outcome.REFUSED)
        check_rows()
        after = everything()
        again = came_of(person, content)
        assert isinstance(again, Report)
        assert not {line.outcome for line in again.lines} & {Outcome.IMPORTED, Outcome.TAKEN_OVER}
        assert everything() == after


def check_rows() -> None:
    """Each row can be planned and stored, and is what its category says."""
    connection.check_constraints()
    for job in imported():
        schedule_of(job)
        assert category(job) is (Category.LEGACY if job.session is None else Category.BOUND)
        assert job.message.strip()
        assert job.enabled or JobClock.objects.get(job=job).next_run_at is None


@settings(max_examples=100)
@given(content=st.binary(max_size=200) | ANYTHING.map(lambda tree: json.dumps({"jobs": tree}).encode()))
def test_any_bytes_are_parsed_or_refused_in_one_line(content: bytes) -> None:
    refusal = ""
    jobs: list[StoredJob] = []
    try:
        jobs = read_store(content)
    except StoreRefused as refused:
        refusal = str(refused)
    assert refusal.isprintable()
    assert bool(refusal) <= (not jobs)
