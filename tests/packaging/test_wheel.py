"""The wheel `rondo-server`: what it holds, and that it runs from an empty folder with the packages of the run lock."""

import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from config.installation import VERSION, data_folder
from tests.fleet import until
from tests.packaging.installed import Installed, build_wheel, install, pins, project
from tests.up import ROOT, Up

pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.timeout(300)]

APPS = ("config", "interfaces", "automations", "sessions_app", "agent_core")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rondo-wheel-"))
    made.chmod(0o755)  # the account of the embedded servers reads their programs there
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    return build_wheel(folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, folder: Path) -> Installed:
    return install(wheel, folder)


@pytest.fixture(scope="module")
def up(installed: Installed) -> Iterator[Up]:
    up = Up(
        folder=installed.folder,
        data=installed.data,
        program=[installed.command],
        script=[],
        cwd=installed.stand,
        environ=installed.environ,
        has_default_data=True,
    )
    try:
        up.start()
        up.wait_ready()
        yield up
    finally:
        up.end()


def test_the_wheel_holds_every_file_of_the_apps_and_the_templates_and_nothing_else(wheel: Path) -> None:
    found = [path for top in (*APPS, "templates") for path in (ROOT / top).rglob("*") if path.is_file()]
    here = [ROOT / "manage.py", *(path for path in found if "__pycache__" not in path.parts)]
    expected = {f"rondo_server/{path.relative_to(ROOT)}" for path in here}
    for needed in ("sessions_app/migrations/0001_initial.py", "interfaces/static/rondo/chat.css"):
        assert f"rondo_server/{needed}" in expected
    with zipfile.ZipFile(wheel) as opened:
        held = set(opened.namelist())
    assert {name for name in held if ".dist-info/" not in name} == expected
    assert any(name.endswith("/licenses/LICENSE") for name in held)


def test_the_run_lock_holds_no_test_tool() -> None:
    run, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert len(run) > 50
    assert run.items() <= dev.items()  # the tests run with the versions that people run
    tools = {_name(line) for line in project()["optional-dependencies"]["dev"]}
    assert {"playwright", "pytest", "hypothesis", "mypy", "ruff", "hatchling"} <= tools
    assert tools - dev.keys() == set()
    assert tools & run.keys() == {"pyyaml"}  # drf-spectacular needs it
    assert [name for name in run if name.startswith("pytest") or name.endswith("-stubs")] == []


def _name(requirement: str) -> str:
    """The name of a package at the start of a requirement, as pip writes it."""
    return re.split(r"[\[<>=~!; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_up_gives_a_first_answer_from_an_empty_folder(installed: Installed, up: Up) -> None:
    assert "rondo sign_in_link\n" in up.output
    connection = up.connection()
    headers = {"Authorization": f"Token {connection['token']}"}
    with httpx2.Client(base_url=connection["url"], headers=headers, timeout=40) as http:
        session = http.post("/api/sessions/", json={"agent": "demo", "key": "web:wheel"}).json()
        body = {"content": "My favourite colour is blue."}
        path = f"/api/sessions/{session['id']}/messages/"
        turn = http.post(path, json=body, headers={"Prefer": "wait=30"}).json()
        assert (turn["state"], turn["error"]) == ("succeeded", None), turn
        page = http.get("/sign-in/")
        assert "<code>rondo sign_in_link</code>" in page.text  # a template
        assert http.get("/static/rondo/rondo.css").status_code == 200
    assert list(installed.stand.iterdir()) == []  # the data are in the user's folder


def test_chat_answers_and_doctor_and_status_find_the_server(installed: Installed, up: Up) -> None:
    asked = installed.run("chat", typed="What did I ask?")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith('You said: "What did I ask?".')
    until(lambda: installed.run("doctor").stdout.endswith("\nhealthy\n"), 60)  # a busy worker answers late
    assert "alive" in installed.run("status", "--data-dir", str(installed.data)).stdout


def test_the_command_knows_its_version_and_its_commands(installed: Installed) -> None:
    assert installed.run("--version").stdout == f"Rondo {VERSION}\n"
    told = installed.run("--help")
    assert told.returncode == 0
    assert told.stdout.startswith("usage: rondo COMMAND")
    ours = {path.stem for path in ROOT.glob("*/management/commands/*.py")} - {"__init__", "bootstrap"}
    assert [name for name in ours if f"\n    {name} " not in told.stdout] == []
    assert installed.run("chat", "--help").stdout.startswith("usage: rondo chat ")
    assert "start it with `rondo up" in installed.run("status", "--data-dir", "nowhere").stderr
    assert "Unknown command: 'stats'. Did you mean status?" in installed.run("stats").stderr


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/somewhere", "XDG_DATA_HOME": "/data"}, "/data/rondo"),
        ({"HOME": "/somewhere"}, "/somewhere/.local/share/rondo"),
        ({"HOME": "/somewhere", "XDG_DATA_HOME": "relative"}, "/somewhere/.local/share/rondo"),
    ],
)
def test_a_wheel_keeps_its_data_in_the_users_folder(environ: dict[str, str], folder: str) -> None:
    assert data_folder(environ, is_checkout=False) == Path(folder)
    assert data_folder(environ, is_checkout=True) == Path(".rondo")
