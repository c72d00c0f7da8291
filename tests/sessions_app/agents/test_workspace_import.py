"""`manage.py import_everbot`: documents of a workspace, once, and never over what was written here."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from automations.models import CronJob
from sessions_app.agents.documents import LONGEST_DOCUMENT, put_document
from sessions_app.agents.workspace_import import NoWorkspace, WorkspaceReport, import_workspace
from sessions_app.models import Document
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("6.7")

FILES = {
    "AGENTS.md": "You are Demo.\r\n",
    "USER.md": "\ufeffAda, in Oslo.",
    "MEMORY.md": "- likes tea ☕",
    "SKILLS.md": "",
    "HEARTBEAT.md": "# Things to look at\n",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "demo_agent"
    (folder / "sessions").mkdir(parents=True)
    (folder / ".cache").mkdir()
    for name, text in FILES.items():
        (folder / name).write_bytes(text.encode())
    return folder


def outcomes(report: WorkspaceReport) -> dict[str, str]:
    return {line.name: str(line.outcome) for line in report.lines}


def stored(person: Person) -> dict[str, tuple[str, int]]:
    rows = Document.objects.filter(agent=person.agent)
    return {row.name: (row.content, row.revision) for row in rows}


def test_every_document_is_brought_in_as_it_is(person: Person, workspace: Path) -> None:
    report = import_workspace(person.agent.pk, workspace)
    assert set(outcomes(report).values()) == {"imported", "already there"}
    # an empty file is a document that was never written
    assert outcomes(report)["SKILLS.md"] == "already there"
    assert stored(person)["AGENTS.md"] == ("You are Demo.\n", 1)
    assert stored(person)["USER.md"] == ("Ada, in Oslo.", 1)
    assert stored(person)["MEMORY.md"] == ("- likes tea ☕", 1)
    assert "HEARTBEAT.md" in stored(person)
    assert report.others == ("sessions",)


def test_twice_is_once_and_a_dry_run_is_never(person: Person, workspace: Path) -> None:
    planned = import_workspace(person.agent.pk, workspace, dry_run=True)
    assert stored(person) == {}
    assert outcomes(planned) == outcomes(import_workspace(person.agent.pk, workspace))
    before = stored(person)
    assert set(outcomes(import_workspace(person.agent.pk, workspace)).values()) == {"already there"}
    assert stored(person) == before
    put_document(person.agent.pk, "MEMORY.md", "- likes coffee now")
    again = import_workspace(person.agent.pk, workspace)
    assert outcomes(again)["MEMORY.md"] == "already there"
    assert stored(person)["MEMORY.md"] == ("- likes coffee now", 2)


def test_a_file_that_changed_is_taken_unless_somebody_wrote_here(person: Person, workspace: Path) -> None:
    import_workspace(person.agent.pk, workspace)
    (workspace / "USER.md").write_text("Ada, in Bergen.")
    (workspace / "MEMORY.md").write_text("- likes milk")
    put_document(person.agent.pk, "MEMORY.md", "- likes coffee now")
    report = import_workspace(person.agent.pk, workspace)
    assert (outcomes(report)["USER.md"], outcomes(report)["MEMORY.md"]) == ("updated", "kept")
    assert stored(person)["USER.md"] == ("Ada, in Bergen.", 2)
    assert stored(person)["MEMORY.md"] == ("- likes coffee now", 2)
    assert outcomes(import_workspace(person.agent.pk, workspace, replace=True))["MEMORY.md"] == "updated"
    assert stored(person)["MEMORY.md"] == ("- likes milk", 3)


def test_what_was_written_here_before_the_first_import_is_kept(person: Person, workspace: Path) -> None:
    put_document(person.agent.pk, "AGENTS.md", "mine")
    put_document(person.agent.pk, "MEMORY.md", FILES["MEMORY.md"])
    report = import_workspace(person.agent.pk, workspace)
    assert (outcomes(report)["AGENTS.md"], outcomes(report)["MEMORY.md"]) == ("kept", "already there")
    assert stored(person)["AGENTS.md"] == ("mine", 1)


def test_a_document_that_is_refused_is_so_by_itself(person: Person, workspace: Path) -> None:
    (workspace / "AGENTS.md").write_bytes(b"\xff\xfe")
    (workspace / "USER.md").write_bytes(b"a\x00b")
    (workspace / "SKILLS.md").write_text("x" * (LONGEST_DOCUMENT + 1))
    (workspace / "HEARTBEAT.md").write_text("x" * (4 * LONGEST_DOCUMENT + 1))
    report = import_workspace(person.agent.pk, workspace)
    notes = {line.name: line.note for line in report.lines}
    assert outcomes(report) == dict.fromkeys(FILES, "refused") | {"MEMORY.md": "imported"}
    assert "UTF-8" in notes["AGENTS.md"]
    assert "NUL" in notes["USER.md"]
    assert "longer than" in notes["SKILLS.md"]
    assert "too large" in notes["HEARTBEAT.md"]
    assert set(stored(person)) == {"MEMORY.md"}


def test_heartbeat_md_routines_are_applied_once_and_errors_reported(person: Person, workspace: Path) -> None:
    task = '{"id": "daily_hn", "title": "Look at HN", "schedule": "0 9 * * *", "execution_mode": "isolated"}'
    (workspace / "HEARTBEAT.md").write_text(f'# Mine\n\n```json\n{{"version": 2, "tasks": [{task}]}}\n```\n')
    planned = import_workspace(person.agent.pk, workspace, dry_run=True)
    assert outcomes(planned)["HEARTBEAT.md"] == "imported"
    assert not CronJob.objects.exists()
    for outcome in ("imported", "already there"):
        assert outcomes(import_workspace(person.agent.pk, workspace))["HEARTBEAT.md"] == outcome
        [job] = CronJob.objects.all()
        assert (job.pk, job.name, job.revision) == ("daily_hn", "Look at HN", 1)
    (workspace / "HEARTBEAT.md").write_text("```json\n{nonsense\n```\n")
    report = import_workspace(person.agent.pk, workspace, replace=True)
    [line] = [line for line in report.lines if line.name == "HEARTBEAT.md"]
    assert "cannot be read" in line.note
    assert CronJob.objects.get().enabled


def test_a_folder_without_any_document_is_refused(person: Person, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / "MEMORY.md").mkdir()
    with pytest.raises(NoWorkspace):
        import_workspace(person.agent.pk, tmp_path)
    with pytest.raises(CommandError, match="nothing was imported"):
        call_command("import_everbot", str(tmp_path), agent="demo")
    with pytest.raises(CommandError, match="No such file"):
        call_command("import_everbot", str(tmp_path / "away"), agent="demo")


def test_the_command_reports_to_people_and_to_programs(person: Person, workspace: Path, capsys: Any) -> None:
    new_person("bob")
    with pytest.raises(CommandError, match="ada/demo, bob/demo"):
        call_command("import_everbot", str(workspace), agent="demo")
    call_command("import_everbot", str(workspace), "--dry-run", agent="ada/demo")
    assert capsys.readouterr().out.startswith("dry run: nothing is changed")
    call_command("import_everbot", str(workspace), "--json", agent="ada/demo")
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["others"], len(answer["documents"])) == (True, ["sessions"], 5)
    call_command("import_everbot", str(workspace), agent="ada/demo")
    assert "MEMORY.md: already there, 13 characters, revision 1\n" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        call_command("import_everbot", str(workspace / "sessions"), "--json", agent="ada/demo")
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no_workspace"
