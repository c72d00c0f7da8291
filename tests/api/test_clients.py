"""What docs/api.md shows works: readers of events over a bad network, and a typed client."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User

from sessions_app.events import Cursor
from sessions_app.models import Event
from tests.api.conftest import Site, Window
from tests.docs.pages import blocks, section
from tests.fleet import until
from tests.proxy import Proxy
from tests.tokens import token_of
from tests.up import ROOT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.full]

FILES = Path(__file__).parent / "typescript"
NODE = shutil.which("node")
MODULES = Path(os.environ.get("RONDO_NODE_MODULES") or ROOT / ".node" / "node_modules")


def tool(name: str) -> str | None:
    """The path of a program of a package."""
    ours = MODULES / ".bin" / name
    return str(ours) if ours.exists() else shutil.which(name)


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip a test where one of the programs is missing."""
    missing = [name for name in programs if tool(name) is None]
    return pytest.mark.skipif(
        NODE is None or bool(missing),
        reason=f"not installed: {', '.join(missing) or 'node'} (make node-tools)",
    )


READERS = {
    "events.py": ("Read events in Python", "python", sys.executable),
    "events.mjs": ("Read events in JavaScript", "js", NODE or "node"),
}


@pytest.fixture
def beat(site: Site) -> Iterator[None]:
    beat = site.fleet.beat()
    yield
    beat.kill()


@pytest.fixture
def proxy(window: Window) -> Iterator[Proxy]:
    """What stands between the reader and the server."""
    proxy = Proxy(window.site.url)
    yield proxy
    proxy.end()


def code_of(heading: str, language: str) -> str:
    [code] = blocks(section("api.md", heading), language)
    return code


@contextmanager
def reading(name: str, folder: Path, window: Window, url: str) -> Iterator[Path]:
    """The program of the page, which reads through the proxy; the file that it prints to."""
    heading, language, program = READERS[name]
    script, printed = folder / name, folder / "printed"
    script.write_text(code_of(heading, language))
    with printed.open("w") as output, (folder / "errors").open("w") as errors:
        command = [program, str(script), url, window.token, window.session]
        child = subprocess.Popen(command, stdout=output, stderr=errors)
        try:
            yield printed
        finally:
            child.kill()
            child.wait()


def stored(window: Window, since: int) -> list[str]:
    """The events of the session in the order of their cursors."""
    rows = Event.objects.filter(session_id=window.session, pk__gt=since).order_by("xid", "pk")
    return [f"{Cursor(xid=int(row.xid), id=row.pk)} {row.type}" for row in rows]


@pytest.mark.rule("9.2")
@pytest.mark.parametrize("name", ["events.py", pytest.param("events.mjs", marks=needs())])
def test_a_reader_goes_on_after_a_broken_connection(
    name: str, window: Window, proxy: Proxy, tmp_path: Path
) -> None:
    with reading(name, tmp_path, window, proxy.url) as printed:

        def ids() -> list[str]:
            lines = [line.split()[:2] for line in printed.read_text().splitlines()]
            return [" ".join(words) for words in lines if words[0] not in {"None", "null"}]

        until(lambda: any(link.answers for link in proxy.links), 20, "the reader is connected")
        since = max((row.pk for row in Event.objects.all()), default=0)
        window.turn("one")
        until(lambda: len(ids()) == len(stored(window, since)))
        turn = window.send(f"[[hold:{name}]] two").json()["id"]
        until(lambda: ids()[-1].endswith("turn_start"))
        assert proxy.cut() >= 1  # in the middle of a turn
        window.site.model.release(name)
        until(lambda: window.http.get(f"/api/turns/{turn}/").json()["state"] == "succeeded")
        until(lambda: len(ids()) >= len(stored(window, since)))
        assert proxy.cut() >= 1
        window.turn("three")
        until(lambda: len(ids()) >= len(stored(window, since)))
        assert ids() == stored(window, since)
        assert [each.split()[1] for each in ids()].count("turn_end") == 3


@pytest.fixture
def built(site: Site, tmp_path: Path) -> Path:
    """The folder of the TypeScript client, with the types of the running server."""
    for name in ("act.ts", "tsconfig.json", "package.json"):
        shutil.copy(FILES / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES)
    schema = httpx2.get(f"{site.url}/api/schema/", headers={"Accept": "application/json"})
    (tmp_path / "schema.json").write_text(schema.text)
    run(tmp_path, tool("openapi-typescript"), "schema.json", "-o", "schema.d.ts")
    return tmp_path


def run(folder: Path, *command: Any) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs("openapi-typescript", "tsc")
def test_a_typed_client_drives_the_main_act(built: Path, beat: None, window: Window) -> None:
    run(built, tool("tsc"), "-p", ".")  # also checks that a wrong call is an error
    found = json.loads(run(built, NODE, "built/act.js", window.site.url, window.token))
    assert found["state"] == "succeeded"
    assert "blue" in found["reply"]
    assert found["roles"] == ["user", "assistant"] * 3
    assert found["problem"] == {
        "status": 400, "code": "unknown_timezone", "type": "/api/docs/errors/#unknown_timezone",
    }  # fmt: skip


@needs("openapi-typescript", "tsc")
def test_the_typed_program_of_the_page_is_right(built: Path) -> None:
    given = "declare const token: string;\ndeclare const session: string;\n"
    (built / "act.ts").write_text(given + code_of("TypeScript client", "ts") + "console.log(turn?.state);\n")
    run(built, tool("tsc"), "-p", ".")


@needs("spectral")
def test_spectral_finds_nothing_in_the_schema(site: Site, tmp_path: Path) -> None:
    schema = httpx2.get(f"{site.url}/api/schema/", headers={"Accept": "application/json"})
    (tmp_path / "schema.json").write_text(schema.text)
    rules = str(FILES / "spectral.yaml")
    run(tmp_path, tool("spectral"), "lint", "--fail-severity", "hint", "--ruleset", rules, "schema.json")


CLIENT = "generated_client"


def module(name: str) -> Any:
    """One of the generated package."""
    return importlib.import_module(f"{CLIENT}.{name}")


def call(operation: str, client: Any, model: str, **fields: Any) -> Any:
    """Call an operation with a body of a class of the schema."""
    [found] = Path(module("api").__path__[0]).glob(f"*/{operation}.py")
    body = getattr(module("models"), model).from_dict(fields)
    return module(f"api.{found.parent.name}.{operation}").sync(client=client, body=body)


def test_the_program_of_the_page_talks_by_a_client_generated_from_the_schema(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = httpx2.get(f"{site.url}/api/schema/", headers={"Accept": "application/json"})
    (tmp_path / "schema.json").write_text(schema.text)
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    said = run(tmp_path, *command, "--path", "schema.json", "--output-path", CLIENT)
    assert "warning" not in said.lower(), said
    monkeypatch.syspath_prepend(tmp_path)
    token = token_of(User.objects.create_user("ada"))
    with module("client").AuthenticatedClient(base_url=site.url, token=token, prefix="Token") as client:
        call("create_agent", client, "NewAgent", name="demo")
        session = call("create_session", client, "NewSession", agent="demo")
    (tmp_path / "rondo_client").symlink_to(tmp_path / CLIENT)
    program = code_of("Python client", "python")
    for there, here in {"http://localhost:8000": site.url, "…": token}.items():
        assert there in program
        program = program.replace(there, here)
    (tmp_path / "talk.py").write_text(
        f"from uuid import UUID\nsession_id = UUID('{session.id}')\n{program}\nprint(turn.state)"
    )
    assert run(tmp_path, sys.executable, "talk.py").strip() == "succeeded"
