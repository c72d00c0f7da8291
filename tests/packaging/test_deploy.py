"""docs/deploy.md and deploy/: followed to a login, backed up, and restored on another PostgreSQL (rule 10.2)."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from config import env
from config.doors import DOORS
from config.supervisor import postgres, valkey
from tests.migrated import wait_until_ready
from tests.packaging.page import Machine, blocks, clean, exec_start
from tests.up import ROOT, free_port, until

pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.timeout(300)]

DEPLOY = ROOT / "deploy"
SUPERUSER = "postgres"  # of a server that was installed as the page says
PASSWORD = "only-for-tests"
UNITS = ("rondo-web", "rondo-beat", "rondo-worker@1", "rondo-worker@2")
HTTPS = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "198.51.100.7", "Host": "rondo.example"}
BURN = "DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"


@dataclass(kw_only=True)
class Fleet:
    """One simulated machine, its servers, and the processes that its units start."""

    folder: Path
    machine: Machine
    port: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    servers: list[tuple[subprocess.Popen[bytes], signal.Signals]] = field(default_factory=list)

    def postgres(self, name: str) -> postgres.Postgres:
        """A PostgreSQL of its own, as a machine has one after its installation."""
        data, log = self.folder / name, self.folder / f"{name}.log"
        server = postgres.prepare(data=data, log=log, password=PASSWORD)
        process = server.spawn()
        self.servers.append((process, signal.SIGINT))
        wait_until_ready(server, process)
        programs = str(server.programs)
        superuser = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGUSER": SUPERUSER,
            "PGPASSWORD": PASSWORD,
        }
        self.machine.environ |= superuser | {"PATH": f"{programs}:{clean()['PATH']}"}
        self.machine.places["10.0.0.10:5432"] = f"127.0.0.1:{server.port}"
        return server

    def broker(self) -> None:
        server = valkey.prepare(
            data=self.folder / "broker", log=self.folder / "broker.log", password="broker"
        )
        process = server.spawn()
        self.servers.append((process, signal.SIGTERM))
        wait_until_ready(server, process)
        self.machine.places["amqp://rondo:$BROKER_PASSWORD@10.0.0.10:5672//"] = server.url

    def start(self, unit: str, instance: str = "") -> None:
        """What systemd does with the unit, and its end when the test ends."""
        words = [
            self.machine.text(word).replace("8000", str(self.port)) for word in exec_start(unit, instance)
        ]
        with (self.folder / f"{unit}{instance}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    words, cwd="/", env=clean() | self.machine.settings() | {"HOME": str(self.folder)},
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                )
            )  # fmt: skip

    def http(self, **headers: str) -> httpx2.Client:
        """A client behind the proxy of the page, which talks HTTPS."""
        return httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", headers=HTTPS | headers, timeout=30)

    def start_all(self) -> None:
        """The units that the page enables."""
        for unit in UNITS:
            name, at, instance = unit.partition("@")
            self.start(f"{name}{at}.service", instance)
        until(self._ready, 60)

    def _ready(self) -> bool:
        assert all(process.poll() is None for process in self.processes), self.logs()
        try:
            return bool(httpx2.get(f"http://127.0.0.1:{self.port}/readyz", headers=HTTPS).status_code == 200)
        except httpx2.TransportError:
            return False

    def logs(self) -> str:
        return "\n".join(path.read_text()[-1500:] for path in sorted(self.folder.glob("*.log")))

    def stop_all(self) -> None:
        for process in self.processes:
            process.terminate()
        # uvicorn ends itself with the signal that it got
        assert {process.wait(30) for process in self.processes} <= {0, -signal.SIGTERM}
        self.processes.clear()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for process, number in reversed(self.servers):
            process.send_signal(number)
            process.wait(30)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    folder = Path(tempfile.mkdtemp(prefix="rondo-deploy-"))
    folder.chmod(0o755)
    environ = clean() | {"HOME": str(folder), "FOLDER": str(folder)}
    fleet = Fleet(folder=folder, machine=Machine(folder=folder, environ=environ))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "USER", SUPERUSER)
        try:
            _install(fleet)
            yield fleet
        finally:
            fleet.end()
            shutil.rmtree(folder)


def _install(fleet: Fleet) -> None:
    """The page up to its first start. That the wheel installs is shown by test_wheel.py; here the checkout is it."""
    folder, machine = fleet.folder, fleet.machine
    program = folder / "rondo"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "manage.py"}" "$@"\n')
    program.chmod(0o755)
    machine.places |= {
        "/srv/rondo/current/bin": str(folder),
        "/srv/rondo": str(folder),
        "/etc/rondo": f"{folder}/etc",
    }
    fleet.postgres("old")
    fleet.broker()
    [secrets] = blocks("Deploy")
    fixed = machine.run(secrets, 'echo "$DB_PASSWORD $BROKER_PASSWORD $SECRET_KEY"').split()
    names = ("DB_PASSWORD", "BROKER_PASSWORD", "SECRET_KEY")
    machine.environ |= dict(zip(names, fixed, strict=True))
    _, database, _ = blocks("Prepare the database and the broker")
    machine.run(database)
    _, settings, command = blocks("Install")
    machine.run(settings)
    machine.remember(command)


@pytest.fixture(scope="module")
def running(fleet: Fleet) -> Fleet:
    """The page up to its end of "Start"."""
    create, processes, _ = blocks("Start")
    fleet.machine.run(
        create.replace("--username", "--noinput --username"), DJANGO_SUPERUSER_PASSWORD=PASSWORD
    )
    checked, started = processes.split("cp deploy/systemd", 1)
    fleet.machine.run(checked)  # also `check --deploy`, without a warning
    assert (fleet.folder / "static" / "rondo").is_dir()
    assert [unit for unit in UNITS if f" {unit}" not in started] == []
    fleet.start_all()
    return fleet


def _sign_in(http: httpx2.Client) -> None:
    page = http.get("/sign-in/")
    [token] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    form = {"csrfmiddlewaretoken": token, "username": "admin", "password": PASSWORD}
    headers = {
        "Referer": "https://rondo.example/sign-in/",
        "Cookie": f"csrftoken={page.cookies['csrftoken']}",
    }
    answer = http.post("/sign-in/", data=form, headers=headers, follow_redirects=False)
    assert answer.status_code == 302, answer.text
    assert "secure" in answer.headers["set-cookie"].lower()
    home = http.get("/", headers={"Cookie": f"sessionid={answer.cookies['sessionid']}"})
    assert "You have no agent yet" in home.text


def test_the_page_leads_to_a_login_and_to_a_fleet_that_runs(running: Fleet) -> None:
    with running.http() as http:
        _sign_in(http)
    [*_, look] = blocks("Start")
    assert look == "rondo status\nrondo doctor\n"
    told = running.machine.run("rondo status")
    assert told.count(": alive") == len(UNITS), told
    _wait_until_healthy(running.machine)


def test_a_program_gets_a_token_and_what_watches_finds_the_metrics(running: Fleet) -> None:
    [tokens] = blocks("Make a token for a program")
    token, listed = running.machine.run(tokens).strip().split("\n", 1)
    assert "talk" in listed
    assert token not in listed
    with running.http(Authorization=f"Token {token}") as http:
        assert http.get("/api/agents/").status_code == 200
        assert http.post("/api/agents/", json={"name": "more"}).status_code == 403
    [watch] = blocks("Watch it")
    told = running.machine.run(watch.replace("8000", str(running.port)))
    assert 'rondo_ready{check="database"} 1.0' in told
    [target] = re.findall(r'targets: \["(.+)"\]', (DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert f"http://{target}/metrics" in watch


def test_a_restored_backup_goes_on_with_every_appointment(running: Fleet) -> None:
    machine = running.machine
    token = machine.run("rondo token make --user admin --scope manage tests").split()[-1]
    with running.http(Authorization=f"Token {token}") as http:
        http.post("/api/agents/", json={"name": "demo"}).raise_for_status()
        session = http.post("/api/sessions/", json={"agent": "demo", "key": "web:kept"}).json()["id"]
        daily = {"kind": "cron", "expr": "0 9 * * *", "timezone": "Asia/Tokyo"}
        later = _add(http, session, {"name": "later", "message": "Say later", "schedule": daily})
        every = {"kind": "every", "seconds": 5}
        soon = _add(http, session, {"name": "soon", "message": "Say soon", "schedule": every})
        with psycopg.connect(machine.settings()["DATABASE_URL"], autocommit=True) as old:
            old.execute(BURN)
        until(lambda: _succeeded(http, soon), 40)
        known, planned = _succeeded(http, soon), _next_run(http, later)
        [backup] = blocks("Backup")
        machine.run(backup)
        running.stop_all()

        running.postgres("new")
        _restore(machine)
        running.start_all()
        until(lambda: len(_succeeded(http, soon)) > len(known), 40)
        assert set(known) <= set(_succeeded(http, soon))
        assert _next_run(http, later) == planned
        _wait_until_healthy(machine)
    running.stop_all()


def _wait_until_healthy(machine: Machine) -> None:
    """On a busy machine a worker may take longer to answer than `doctor` waits."""
    told: list[str] = []

    def healthy() -> bool:
        told.append(machine.run("rondo doctor || true"))
        return told[-1].endswith("\nhealthy\n")

    try:
        until(healthy, 60)
    except AssertionError:
        raise AssertionError(told[-1]) from None


def _restore(machine: Machine) -> None:
    """The page's sections from an empty server to tables that are filled."""
    _, database, _ = blocks("Prepare the database and the broker")
    _, settings, _ = blocks("Install")
    aside, restore, start = blocks("Restore")
    machine.run(database)
    machine.run(aside)
    machine.run(settings)
    load, _, migrate = restore.partition("rondo migrate")
    machine.run(load)
    assert _events_of_the_future(machine) > 0  # the old server was far ahead
    machine.run("rondo migrate" + migrate)
    assert _events_of_the_future(machine) == 0
    assert sorted(UNITS) == sorted(re.findall(r"rondo-[a-z]+(?:@\d)?", start))


def _next_run(http: httpx2.Client, automation: str) -> str:
    return str(http.get(f"/api/automations/{automation}/").json()["next_run_at"])


def _add(http: httpx2.Client, session: str, automation: dict[str, Any]) -> str:
    made = http.post(f"/api/sessions/{session}/automations/", json=automation)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def _succeeded(http: httpx2.Client, automation: str) -> list[str]:
    listed = http.get(f"/api/automations/{automation}/runs/?page_size=100")
    assert listed.status_code == 200, listed.text
    return [row["run_id"] for row in listed.json()["results"] if row["state"] == "succeeded"]


def _events_of_the_future(machine: Machine) -> int:
    with psycopg.connect(machine.settings()["DATABASE_URL"]) as connection:
        row = connection.execute(
            "SELECT count(*) FROM sessions_app_event WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_the_page_names_every_file_of_deploy() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text()
    names = {path.name for path in DEPLOY.iterdir() if path.is_file()}
    assert [name for name in names if f"deploy/{name}" not in text] == []


def test_the_proxy_passes_every_body_that_a_door_takes() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    usual, *places = re.split(r"^    location ~ ", text, flags=re.MULTILINE)
    sizes = [(place.split(" {")[0], _megabytes(place)) for place in places]
    for door in DOORS.values():
        found = [size for pattern, size in sizes if re.search(pattern, f"/{door.prefix}")]
        assert (found or [_megabytes(usual)])[0] > door.megabytes, door.prefix


def _megabytes(text: str) -> int:
    [size] = re.findall(r"client_max_body_size (\d+)m;", text)
    return int(size)


def test_files_of_settings_name_variables_that_exist() -> None:
    known = {each.name for each in env.variables()} | {"FORWARDED_ALLOW_IPS"}  # uvicorn's
    [_, settings, _] = blocks("Install")
    for text in ((DEPLOY / "rondo.env.example").read_text(), settings):
        named = set(re.findall(r"^([A-Z_]+)=", text, re.MULTILINE))
        assert len(named) > 5
        assert named - known == set()


def test_systemd_accepts_the_units() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    units = [str(path) for path in (DEPLOY / "systemd").iterdir()]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False, timeout=60
    )
    complaints = [line for line in done.stderr.splitlines() if "is not executable" not in line]
    assert complaints == []  # the command is not installed here
