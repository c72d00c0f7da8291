"""`manage.py up`: started, refused, wounded and stopped as real processes."""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from config.supervisor import postgres, spawn
from config.supervisor.children import SAME_REQUEST_SECONDS
from config.supervisor.fleet import WORKER_PATIENCE
from tests.fleet import until
from tests.up import ROOT, Up, alive, all_pids, clean_environ, run

pytestmark = [pytest.mark.full, pytest.mark.processes]

NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")


@pytest.fixture(scope="module")
def shared_up() -> Iterator[Up]:
    with tempfile.TemporaryDirectory(prefix="rondo-up-") as folder:
        up = Up(folder=Path(folder))
        yield up
        up.end()


@pytest.fixture
def up(shared_up: Up) -> Up:
    """A running system; tests that end it leave that to the next one to mend."""
    if shared_up.process is None or shared_up.process.poll() is not None:
        shared_up.start()
        shared_up.wait_ready()
    return shared_up


def test_the_first_start_prints_a_link_that_signs_in_and_the_password(up: Up) -> None:
    connection = up.connection()
    ready, about, account, stop = up.output.partition("Ready: ")[2].splitlines()
    assert ready.startswith(f"{connection['url']}/enter/")
    assert about.endswith(f"manage.py sign_in_link --data-dir {up.data}")
    assert f"{connection['admin_user']}, password {connection['admin_password']} " in account
    assert "Ctrl-C" in stop
    assert " ended (" not in up.output
    assert _press_button(ready) == 303
    assert _press_button(ready) == 410
    for log in (up.data / "logs").iterdir():
        assert ready.split("/")[-2] not in log.read_text(), log


def _press_button(link: str) -> int:
    """Follow the link as a browser does; the status of the last answer."""
    with httpx2.Client(timeout=10) as http:
        page = http.get(link)
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        if not found:
            return page.status_code
        answer = http.post(link, data={"csrfmiddlewaretoken": found[1]})
        assert "Your account" in http.get(page.url.join("/account/")).text
        return answer.status_code


def _manage(
    *arguments: str, cwd: Path | None = None, typed: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    command, shown = [sys.executable, str(ROOT / "manage.py"), *arguments], clean_environ() | environ
    return run(*command, cwd=cwd, env=shown, input=typed)


def test_a_command_joins_the_up_that_data_dir_names(up: Up, tmp_path: Path) -> None:
    link = _manage("sign_in_link", "--data-dir", str(up.data), cwd=tmp_path)
    assert _press_button(link.stdout.strip()) == 303, link.stderr
    # also between the options, with a sign, and before the variables of another server
    elsewhere = {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "SECRET_KEY": "x" * 50}
    told = _manage("status", f"--data-dir={up.data}", "--json", cwd=tmp_path, **elsewhere)
    assert json.loads(told.stdout)["workers"]
    for arguments in (["--data-dir", str(tmp_path)], ["--data-dir"], ["--data-dir="]):
        refused = _manage("automations", "list", *arguments, cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (1, "")
        [line] = refused.stderr.splitlines()
        assert line.startswith("rondo: ")
        assert "data" in line


def test_a_running_up_has_what_its_page_says(up: Up) -> None:
    connection = up.connection()
    assert stat.S_IMODE((up.data / "connection.json").stat().st_mode) == 0o600
    names = ("url", "token", "admin_user", "admin_password", "database_url", "broker_url", "pids")
    assert set(connection) == set(names)
    assert set(connection["pids"]) == {"web", "worker", "beat", "postgres", "broker"}
    assert [len(connection["pids"][kind]) for kind in ("web", "worker", "beat")] == [1, 2, 1]
    assert all(alive(pid) for pid in all_pids(connection))
    for path in ("/healthz", "/readyz", "/api/agents/demo/", "/static/admin/css/base.css"):
        assert up.get(path) == 200, path
    secrets = [connection["token"], connection["admin_password"]]
    secrets += [connection[name].split("@")[0].rpartition(":")[2] for name in ("database_url", "broker_url")]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in all_pids(connection)]
    assert not [secret for secret in secrets if any(secret in line for line in lines)]
    with psycopg.connect(connection["database_url"]) as database:
        row = database.execute("SELECT pg_size_bytes(current_setting('shared_buffers')) / 2^20").fetchone()
    assert row == (postgres._buffers(),)


@pytest.mark.parametrize(
    ("limit", "megabytes"),
    [("4294967296\n", 256), ("max\n", 500), ("", 500), ("536870912", 128), (None, 500)],
)
def test_the_cache_heeds_the_limit_of_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, megabytes: int
) -> None:
    file = tmp_path / "memory.max"
    if limit is not None:
        file.write_text(limit)
    monkeypatch.setattr(postgres, "LIMITS", [str(file)])
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 8000 * 256, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert postgres._buffers() == megabytes
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2**24, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert postgres._buffers() == (1024 if megabytes == 500 else megabytes)


def test_no_client_chooses_the_address_that_limits_count_by(up: Up) -> None:
    for number in range(3):
        forged = {"X-Forwarded-For": f"198.51.100.{number}"}
        assert httpx2.get(f"{up.url}/api/agents/", headers=forged, timeout=10).status_code == 401
    log = up.data / "logs" / "web.log"
    until(lambda: log.read_text().count('"GET /api/agents/ ') >= 3)
    assert "198.51.100." not in log.read_text()  # the access log shows the address that counts


def test_a_wildcard_host_is_warned_of_in_one_line(tmp_path: Path) -> None:
    with Up(folder=tmp_path).running("--host", "0.0.0.0", "--workers", "0", "--beats", "0") as everywhere:
        [warned] = [line for line in everywhere.output.splitlines() if "Warning" in line]
    words = "accepts any host name; set ALLOWED_HOSTS to the names of this server"
    assert warned == f"Warning: --host 0.0.0.0 {words}"


def test_a_second_up_on_the_same_data_is_refused(up: Up, tmp_path: Path) -> None:
    complaint = Up(folder=tmp_path, data=up.data).refused()
    assert "is in use by another `up`" in complaint
    assert up.process is not None
    assert str(up.process.pid) in complaint
    assert up.get("/healthz") == 200


def test_a_sigkill_leaves_no_process_and_keeps_the_data(up: Up) -> None:
    before = up.connection()
    with psycopg.connect(before["database_url"]) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        connection.execute("INSERT INTO kept VALUES (42)")
    assert up.stop(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: not [pid for pid in all_pids(before) if alive(pid)], 10)
    up.start()
    up.wait_ready()
    after = up.connection()
    assert (after["token"], after["admin_password"]) == (before["token"], before["admin_password"])
    assert "/enter/" in up.output
    assert before["admin_password"] not in up.output  # it was shown at the first start
    with psycopg.connect(after["database_url"]) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall()[-1] == (42,)
        assert connection.execute("SELECT count(*) FROM auth_user").fetchall() == [(1,)]
        connection.execute("DROP TABLE kept")


def _clean_stops(up: Up) -> int:
    return (up.data / "logs" / "postgres.log").read_text().count("database system is shut down")


def test_signals_that_come_together_are_one_request(up: Up) -> None:
    """As `timeout 30 manage.py up` and a second Ctrl-C send them."""
    pids, before = all_pids(up.connection()), _clean_stops(up)
    assert up.process is not None
    up.process.send_signal(signal.SIGTERM)
    up.process.send_signal(signal.SIGINT)
    until(lambda: not all(alive(pid) for pid in pids))  # it stops already
    assert up.stop(signal.SIGTERM) == 0
    assert not [pid for pid in pids if alive(pid)]
    assert not (up.data / "connection.json").exists()
    assert "kill" not in up.output
    assert _clean_stops(up) == before + 1


def test_a_later_second_signal_hurries_workers_but_not_servers(up: Up) -> None:
    connection, before = up.connection(), _clean_stops(up)
    os.kill(connection["pids"]["worker"][0], signal.SIGSTOP)  # it would keep us for WORKER_PATIENCE
    assert up.process is not None
    began = time.monotonic()
    up.process.send_signal(signal.SIGINT)
    sources = [*connection["pids"]["web"], *connection["pids"]["beat"]]
    # they go by themselves, the second is for the worker
    until(lambda: not any(alive(pid) for pid in sources))
    time.sleep(max(0.0, began + SAME_REQUEST_SECONDS + 0.5 - time.monotonic()))  # else no second request
    assert up.stop(signal.SIGINT) == 0
    assert time.monotonic() - began < WORKER_PATIENCE
    [killed] = [line for line in up.output.splitlines() if "kill" in line]
    assert killed == "worker1-turns killed at your second request"
    assert not [pid for pid in all_pids(connection) if alive(pid)]
    assert _clean_stops(up) == before + 1


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        complaint = Up(folder=tmp_path, port=port).refused()
    assert f"cannot listen on 127.0.0.1:{port}" in complaint
    assert not (tmp_path / "data" / "postgres").exists()


def test_unusable_data_and_wrong_flags_are_refused_in_one_line(tmp_path: Path) -> None:
    keys = '"secret_key": "k", "database_password": "p", "broker_password": "p", "admin_password": "p"'
    for layout, complaint in ((1, "was created by PostgreSQL 12"), (0, "was created by another version")):
        up = Up(folder=tmp_path, data=tmp_path / f"layout-{layout}")
        (up.data / "postgres").mkdir(parents=True)
        (up.data / "postgres" / "PG_VERSION").write_text("12\n")
        (up.data / "secrets.json").write_text(f'{{"layout": {layout}, {keys}, "api_token": "t"}}')
        assert complaint in up.refused()
    (tmp_path / "file").touch()
    assert "cannot write to" in Up(folder=tmp_path, data=tmp_path / "file").refused()
    for flags in (["--port", "0"], ["--workers", "many"], ["--beats", "-1"], ["--colour"]):
        assert "manage.py up --help" in Up(folder=tmp_path).refused(*flags), flags


def _someone_else() -> tuple[list[str], dict[str, str]]:
    """A Python that the account `nobody` can run with our packages; skips when there is none."""
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    environ = {"PATH": os.defpath, "PYTHONPATH": packages}
    for program in (sys.executable, "/usr/bin/python3"):
        same = f"import sys, django, celery; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        try:
            command = [program, "-c", same]
            run(*command, check=True, user=NOBODY, group=NOBODY, env=environ)
        except (OSError, subprocess.CalledProcessError):
            continue
        return [program], environ
    pytest.skip("the account nobody can run no Python of this version with our packages here")


@root_only
def test_an_ordinary_user_can_run_it() -> None:
    program, environ = _someone_else()
    account = {"user": NOBODY, "group": NOBODY}
    with tempfile.TemporaryDirectory(prefix="rondo-up-") as name:
        up = Up(folder=Path(name), program=program, environ=environ, popen=account)
        up.data.mkdir()
        for folder in (up.folder, up.data):
            os.chown(folder, NOBODY, NOBODY)
        with up.running():
            assert (up.data / "connection.json").stat().st_uid == NOBODY
            assert up.stop() == 0


@root_only
def test_root_runs_web_workers_and_beats_as_the_account_of_the_servers() -> None:
    program, environ = _someone_else()
    with (
        tempfile.TemporaryDirectory(prefix="rondo-root-") as name,
        Up(folder=Path(name), program=program, environ=environ).running() as up,
    ):
        owner = (up.data / "postgres").stat().st_uid
        assert owner != 0
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in all_pids(up.connection())} == {owner}
        assert " run as root" not in up.output
        assert up.stop() == 0


@root_only
def test_programs_the_server_account_cannot_reach_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="rondo-closed-") as name:
        top = Path(name)
        top.chmod(0o755)
        closed = top / "closed"
        (closed / "tools").mkdir(parents=True, mode=0o700)
        closed.chmod(0o700)
        shutil.copy2(shutil.which("true") or "/bin/true", closed / "tools" / "true")
        monkeypatch.setattr(spawn, "SHARED", top / "shared")
        nobody = spawn.Account(uid=NOBODY, gid=NOBODY)
        asked: Any = {"site": closed, "parts": ("tools",), "label": "tools-1"}
        found = spawn.runnable_program("tools/true", account=nobody, **asked)
        assert found == top / "shared" / "tools-1" / "tools" / "true"
        itself = spawn.runnable_program("tools/true", account=spawn.Account(), **asked)
        assert itself == closed / "tools" / "true"


def test_help_lists_up_before_anything_is_configured() -> None:
    done = _manage("help")
    assert done.returncode == 0, done.stderr
    assert "\n    up  " in done.stdout
    assert "\nup\n" in _manage("help", "--commands").stdout  # with those of Django


def test_commands_explain_themselves_where_no_server_runs(tmp_path: Path) -> None:
    for command in ("chat", "automations", "sign_in_link", "token"):
        done = _manage(command, "--help", "--data-dir", str(tmp_path / "none"))
        assert (done.returncode, done.stdout.startswith(f"usage: manage.py {command} ")) == (0, True), command
    refused = _manage("chat", "--data-dir", str(tmp_path / "none"))
    assert (refused.returncode, refused.stderr[:24]) == (1, "rondo: no server runs on")


def test_the_word_help_in_a_text_is_a_word() -> None:
    done = _manage("automations", "add", "help", "--every", "300")
    assert (done.returncode, done.stderr.splitlines()[0][:15]) == (1, "rondo: not set:")


SETTINGS = {
    "SECRET_KEY": "only-for-this-one-test",
    "DATABASE_URL": "postgresql://nobody:secret@127.0.0.1:1/none",
    "CELERY_BROKER_URL": "memory://",
}
PROGRAMS = {
    "manage": [str(ROOT / "manage.py"), "check"],
    "web": ["-m", "config.web"],
    "worker": ["-m", "celery", "-A", "config", "worker", "-P", "threads", "-c", "1"],
    "beat": ["-m", "config.beat"],
    "worker by the command line": [str(ROOT / "manage.py"), "worker", "-c", "1"],
    "celery beat": ["-m", "celery", "-A", "config", "beat", "--pidfile="],
}


COMPLAINTS = {
    ("RONDO_PLUGINS", "nosuch.tools"): "RONDO_PLUGINS names nosuch.tools, which is not installed",
    ("RONDO_MODEL", "foo"): "RONDO_MODEL must be offline or provider:name, ",
    ("SECRET_KEY", "short"): "SECRET_KEY is too short: ",
}


def test_a_bad_variable_ends_every_process_with_one_line() -> None:
    for program, (name, value) in zip(PROGRAMS, itertools.cycle(COMPLAINTS), strict=False):
        environ = {**clean_environ(), **SETTINGS, name: value}
        environ.pop("PYTEST_VERSION", None)  # as a process that is not under test
        done = run(sys.executable, *PROGRAMS[program], env=environ)
        assert done.returncode == 1, program
        [line] = done.stderr.splitlines()
        assert line.startswith(f"rondo: {COMPLAINTS[name, value]}"), program


def test_an_error_inside_a_plugin_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "broken_plugin.py").write_text("import nosuch\n")
    environ = SETTINGS | {"RONDO_PLUGINS": "broken_plugin", "PYTHONPATH": str(tmp_path)}
    done = _manage("check", cwd=tmp_path, **environ)
    assert "broken_plugin.py" in done.stderr
    assert "No module named 'nosuch'" in done.stderr


def test_an_unusable_database_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for url, complaint in (
        (SETTINGS["DATABASE_URL"], "cannot reach the database of DATABASE_URL: "),
        ("mysql://nobody:secret@127.0.0.1/none", "DATABASE_URL is invalid"),
    ):
        up = Up(folder=tmp_path, environ={**clean_environ(), "DATABASE_URL": url})
        assert complaint in up.refused()
        assert "secret" not in up.output
        assert not (up.data / "broker").exists()


def test_a_command_in_its_folder_uses_a_running_ups_servers(up: Up, tmp_path: Path) -> None:
    (tmp_path / ".rondo").symlink_to(up.data)
    store = str(ROOT / "tests" / "data" / "nanobot_jobs.json")
    command = ["import_jobs", "--agent", "demo", "--dry-run", store]
    joined = _manage(*command, cwd=tmp_path)
    assert joined.returncode == 0, joined.stderr
    assert "2 bound, 1 legacy, 1 system" in joined.stdout
    asked = _manage("chat", cwd=tmp_path, typed="lovely")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.startswith('You said: "lovely".')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    configured = {"SECRET_KEY": "configured-otherwise"}
    for alone in (_manage(*command, cwd=elsewhere), _manage(*command, cwd=tmp_path, **configured)):
        assert alone.returncode == 1
        assert "not set: " in alone.stderr
