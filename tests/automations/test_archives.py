"""Everything of a user as an archive: what is exported and imported is the same but ids; nothing hostile comes in."""

import asyncio
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZipFile

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from automations.archives import read, restore
from automations.archives.export import LINES, export
from automations.archives.restore import import_archive
from automations.models import CronJob, ScheduledMessage
from automations.scheduled_messages import MessageToSchedule, schedule_message
from sessions_app.agents.documents import put_document, put_preference
from sessions_app.agents.edit import update_agent
from sessions_app.limits import quotas
from sessions_app.memory.task_state import remember
from sessions_app.models import Agent, Document, Message, Session, Turn
from sessions_app.sessions.open import archive_session
from tests.automations.jobs.made import add, new
from tests.conftest import Person, new_person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("10.8")]
SECRET = "secret-4711"
TEXT = 'Zoë said: "…"\n\n```md\n{"a": [1]}\n```\n\u2028 \U0001f600 # no title'
SOON = datetime.now(UTC) + timedelta(days=3)


@pytest.fixture
def ada(person: Person) -> Person:
    """Somebody with something of every kind."""
    agent = person.agent
    update_agent(
        agent.pk, {"policy": {"max_tool_calls": 3}, "timezone": "Asia/Tokyo", "allow_tools": ["cron"]}
    )
    server = {"docs": {"url": "https://mcp.example.org/mcp", "headers": {"X-Key": SECRET}}}
    Agent.objects.filter(pk=agent.pk).update(mcp_servers=server, signing_secret=SECRET)
    add(person, "Water", schedule="1h", description=TEXT)
    put_document(agent.pk, "USER.md", TEXT)
    put_preference(agent, person.user.pk, TEXT)
    session = person.session(title="Trip to Lisbon")
    add(person, "Once", next_run_at=SOON.isoformat(), session_id=session.pk, execution_mode="isolated")
    new(session, name="daily", message=TEXT, ping_url="https://example.org/ping", max_retry=2)
    new(session, name="once", schedule={"kind": "at", "at": SOON.isoformat()}, enabled=False)
    schedule_message(MessageToSchedule(session_id=session.pk, send_at=SOON.isoformat(), message_text=TEXT))
    remember(session.pk, {"current_goal": TEXT, "open_loops": ["a", "b"]})
    turn = Turn.objects.create(
        session=session, kind="message", lane="turns", state="succeeded", finished_at=SOON
    )
    call = {"calls": [{"id": "1", "name": "cron", "arguments": {"deep": [{"x": None}]}}]}
    result = {
        "results": [{"id": "1", "name": "cron", "output": TEXT, "outcome": "failed", "error_class": "E"}]
    }
    said = [("user", TEXT, {}, {"request": SECRET}), ("assistant", "", call, {}), ("tool", "", result, {})]
    for seq, (role, text, parts, about) in enumerate(
        [*said, ("assistant", TEXT, {}, {"closure": "failed"})], 1
    ):
        Message.objects.create(
            session=session, seq=seq, role=role, content=text, parts=parts, metadata=about, turn=turn
        )
    Session.objects.filter(pk=session.pk).update(last_seq=4, window_from_seq=2)
    archive_session(person.session(title="Old"))
    return person


def lines_of(archive: bytes) -> list[Any]:
    with ZipFile(io.BytesIO(archive)) as opened:
        return [json.loads(line) for line in opened.read(LINES).decode().split("\n")[:-1]]


def packed(lines: Iterable[Any], name: str = LINES, how: int = ZIP_DEFLATED) -> io.BytesIO:
    found = io.BytesIO()
    with ZipFile(found, "w", how) as opened:
        opened.writestr(
            name, "".join(each if isinstance(each, str) else f"{json.dumps(each)}\n" for each in lines)
        )
    return found


def comparable(lines: list[Any]) -> list[Any]:
    """The lines without ids, and what does not come in on purpose."""
    aside = {"turn", "enabled", "events_url", "allow_tools", "mcp_servers", "updated_at", "ping_url", "gate"}
    kept = [each for each in lines if each.keys().isdisjoint({"archive", "turn", "scheduled_message"})]
    return [
        {kind: {k: v for k, v in about.items() if k not in aside}}
        for each in kept
        for kind, about in each.items()
    ]


def test_what_was_exported_and_imported_is_exported_again_the_same(ada: Person) -> None:
    first = b"".join(export(ada.user))
    assert SECRET.encode() not in b"".join(
        ZipFile(io.BytesIO(first)).read(n) for n in ZipFile(io.BytesIO(first)).namelist()
    )
    kinds = {kind for each in lines_of(first) for kind in each}
    assert kinds == {
        *("archive", "agent", "document", "preferences", "routine", "conversation", "memory", "automation"),
        *("scheduled_message", "message", "turn"),
    }
    eve = User.objects.create_user("eve")
    import_archive(eve, io.BytesIO(first))
    assert comparable(lines_of(b"".join(export(eve)))) == comparable(lines_of(first))
    assert not CronJob.objects.filter(agent__owner=eve, enabled=True, system_event="").exists()
    assert Agent.objects.get(owner=eve).allow_tools == []
    assert not Turn.objects.filter(owner_id=eve.pk).exists()
    assert all("findings" in each.metadata for each in Message.objects.filter(session__owner=eve))
    import_archive(eve, io.BytesIO(first))
    assert sorted(Agent.objects.filter(owner=eve).values_list("name", flat=True)) == ["demo", "demo 2"]


def test_an_archive_with_anything_wrong_stores_nothing(
    ada: Person, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    good = lines_of(b"".join(export(ada.user)))
    eve, at = User.objects.create_user("eve"), {next(iter(each)): n for n, each in enumerate(good)}
    monkeypatch.setattr(read, "LONGEST_LINE", 100_000)
    monkeypatch.setattr(restore, "MOST_PLANNED", 6)
    monkeypatch.setattr(restore, "STORED_AT_ONCE", 2)
    monkeypatch.setattr(quotas, "CHECKED_EACH", 400_000)
    settings.RONDO_MEGABYTES_PER_USER = 1

    def bad(kind: str, **wrong: Any) -> list[Any]:
        before = {"archive": (), "agent": ("archive",)}.get(kind, ("archive", "agent", "conversation"))
        return [*(good[at[each]] for each in before), {kind: good[at[kind]][kind] | wrong}]

    automation = good[at["automation"]]
    deep = json.dumps({"message": {"role": "user"}})[:-2] + ',"x":' + "[" * 5000 + "]" * 5000 + "}}\n"
    wrong: list[list[Any]] = [
        *([], good[1:], [*good, "{}\n"], [*good, "no\n"], [*good, {"agent": 1}], [*good, {"secret": {}}]),
        *([*good, {"a": {}, "b": {}}], [*good, deep], [*good, "[" * 99_000 + "\n"], [*good, "x" * 100_001]),
        *([good[0], good[at["message"]]], [*good, *[automation] * 5], bad("archive", version=2)),
        *(bad("agent", name=each) for each in ("", "../x", "x" * 65, 7)),
        *(bad("agent", **{key: value}) for key, value in (("timezone", "Mars"), ("policy", 3), ("limits", {"x": 1}))),
        *(bad("document", name=each) for each in ("../AGENTS.md", 3)),
        *(bad("message", **{key: v}) for key, v in (("role", "system"), ("content", None), ("parts", []))),
        *(bad("message", parts={"calls": [each]}) for each in (1, {"id": "1", "name": "x", "arguments": "{}"})),
        *(bad("message", marks={"closure": each}) for each in ("<b>", [1])),
        *(bad("message", created_at=each) for each in ("2026-01-01", "0001-01-01T00:00:00Z", "x", None)),
        *(bad("automation", schedule=each) for each in ("daily", {"kind": "every", "seconds": 10**30}, {}, None)),
        *(bad("automation", **{key: 10**40}) for key in ("timeout_seconds", "jitter_seconds", "message")),
        bad("conversation", title="a\nb"), bad("conversation", window_from_seq="x"), bad("memory", open_loops="x"),
        bad("routine", schedule="never"), [*bad("message"), *bad("message", content="x" * 90_000)[-1:] * 20],
    ]  # fmt: skip
    for number, lines in enumerate(wrong):
        try:
            done = import_archive(eve, packed(lines))
        except read.ArchiveRefused:
            continue
        pytest.fail(f"{number}: {done}, {str(lines[-1])[-200:]}")
    for raw in (
        b"",
        b"PK\x05\x06",
        packed(good, "../archive.jsonl").getvalue(),
        packed(good).getvalue()[:-30],
        *(packed(good, how=how).getvalue() for how in (ZIP_BZIP2, ZIP_LZMA)),
    ):
        with pytest.raises(read.ArchiveRefused):
            import_archive(eve, io.BytesIO(raw))
    for name, most, why in (("LARGEST", 1_000, "too long"), ("LARGEST_READ", 50, "directory")):
        monkeypatch.setattr(read, name, most)
        with pytest.raises(read.ArchiveRefused, match=why):
            import_archive(eve, packed(good))
    assert not Agent.objects.filter(owner=eve).exists()


def test_nothing_that_comes_in_runs_or_calls_out(ada: Person) -> None:
    gate = {"kind": "http_changed", "url": "https://example.org/"}
    CronJob.objects.filter(agent=ada.agent, name__in=["daily", "Once"]).update(gate=gate)
    lines, eve = lines_of(b"".join(export(ada.user))), User.objects.create_user("eve")
    block = '```json\n{"%s": [{"title": "Call", "schedule": "1h"}]}\n```\n'
    text = f"Prose.\n{block % 'tasks'}{block % chr(92).join(('t', 'u0061sks'))}"  # the second counts without the first
    lines.insert(2, {"document": {"name": "HEARTBEAT.md", "content": text}})
    done = import_archive(eve, packed(lines))
    assert Document.objects.get(agent__owner=eve, name="HEARTBEAT.md").content == "Prose.\n\n\n"
    assert not CronJob.objects.filter(agent__owner=eve, enabled=True, system_event="").exists()
    assert not CronJob.objects.filter(agent__owner=eve).exclude(ping_url="", gate=None).exists()
    assert not ScheduledMessage.objects.filter(session__owner=eve).exists()
    assert done["left out"] == 1


def test_it_comes_over_the_pages_the_api_and_the_commands(ada: Person, tmp_path: Path) -> None:
    async def all_of(answer: Any) -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    client, file = Client(), tmp_path / "all.zip"
    client.force_login(ada.user)
    session = Session.objects.get(title="Trip to Lisbon")
    whole = comparable(lines_of(b"".join(export(ada.user))))
    by_api = client.get("/api/export/", headers={"Accept": "application/zip"})
    for answer in (client.post("/account/export/"), by_api):
        assert comparable(lines_of(asyncio.run(all_of(answer)))) == whole
    text = asyncio.run(all_of(client.get(f"/sessions/{session.pk}/markdown/"))).decode()
    assert text.startswith("# Trip to Lisbon\n")
    assert text.count(TEXT.strip()) == 2
    assert "*Used `cron`*" in text
    other = Client()
    other.force_login(new_person("eve").user)
    assert other.get(f"/sessions/{session.pk}/markdown/").status_code == 404
    refused = [client.get("/api/export/") for _ in range(8)][-1]
    assert (refused.status_code, int(refused.headers["Retry-After"]) > 0) == (429, True)
    call_command("export", str(file), "--user", "ada")
    call_command("import_archive", str(file), "--user", "eve")
    assert Agent.objects.filter(owner__username="eve").count() == 2
    for user, path in (("nobody", file), ("eve", tmp_path / "none")):
        with pytest.raises(CommandError):
            call_command("import_archive", str(path), "--user", user)
