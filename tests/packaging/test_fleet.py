"""Three machines of docs/deploy.md: set up, upgraded while they work, restored (rules 1.9, 10.2)."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from chaos.load import Load, ask, insist, verdict
from tests.fleet import until
from tests.packaging.nodes import HTTPS, Fleet, Node, connections, fleet, own_database, wait_until_healthy
from tests.packaging.page import blocks
from tests.up import ROOT

pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.timeout(400)]

UNITS = {
    "app1": ("rondo-web", "rondo-beat", "rondo-worker@turns", "rondo-worker@auto"),
    "app2": ("rondo-web", "rondo-beat", "rondo-worker@turns", "rondo-worker@auto"),
    "app3": ("rondo-worker@turns", "rondo-worker@auto"),
}
PASSWORD = "only-for-tests"
MOST_CONNECTIONS = 20  # of a process, as the page says
BURN = "DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
FUTURE = "SELECT count(*) FROM sessions_app_event WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())"


@pytest.fixture(scope="module")
def machines() -> Iterator[Fleet]:
    """2 web processes, 2 beats and 3 workers, by the page's commands alone."""
    folder = Path(tempfile.mkdtemp(prefix="rondo-fleet-"))
    folder.chmod(0o755)
    try:
        with fleet(folder, UNITS) as machines:
            _start(machines)
            yield machines
    finally:
        shutil.rmtree(folder)


def _start(machines: Fleet) -> None:
    first, second, third = machines.nodes
    create, processes, _ = blocks("Start")
    first.follow(create.replace("--username", "--noinput --username"), DJANGO_SUPERUSER_PASSWORD=PASSWORD)
    for node in (first, second):
        node.follow(processes)  # also `check --deploy`, without a warning
    [worker_alone] = blocks("Add a machine")
    third.follow(worker_alone)
    assert all(node.running.keys() == set(node.units) for node in machines.nodes)
    assert (first.folder / "static" / "rondo").is_dir()
    until(lambda: all(_answers(node) for node in (first, second)), 90, "both web processes answer")
    wait_until_healthy(first)
    machines.token = first.machine.run("rondo token make --user admin --scope manage tests").split()[-1]
    insist(machines, "POST", "/api/agents/", {"name": "demo"}, "the-agent")


def _answers(node: Node) -> bool:
    assert all(process.poll() is None for process in node.running.values()), node.logs()
    with suppress(httpx2.TransportError):
        answer = httpx2.get(f"http://127.0.0.1:{node.port}/healthz", headers=HTTPS, timeout=5)
        return bool(answer.status_code == 200)
    return False


def _status(node: Node) -> dict[str, Any]:
    """What `rondo status` says: no process while the database is too busy to answer it."""
    said = node.machine.run("rondo status --json || true")
    told: dict[str, Any] = json.loads(said) if said.startswith("{") else {"processes": []}
    return told


def _where(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Kind, pid and version of what is alive."""
    alive = [each for each in told["processes"] if each["alive"]]
    return sorted((each["kind"], str(each["pid"]), each["version"]) for each in alive)


def _runs(machines: Fleet, version: str) -> list[tuple[str, str, str]]:
    """The same, by what was started."""
    started = [each for node in machines.nodes for each in node.running.items()]
    return sorted((re.sub(r"rondo-|@\w+", "", unit), str(process.pid), version) for unit, process in started)


def test_a_browser_signs_in_at_one_machine_and_goes_on_at_the_other(machines: Fleet) -> None:
    first, second, _ = machines.nodes
    with httpx2.Client(base_url=f"http://127.0.0.1:{first.port}", headers=HTTPS, timeout=30) as http:
        page = http.get("/sign-in/")
        [csrf] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        form = {"csrfmiddlewaretoken": csrf, "username": "admin", "password": PASSWORD}
        cookie = {"Cookie": f"csrftoken={page.cookies['csrftoken']}"}
        from_page = {"Referer": "https://rondo.example/sign-in/"} | cookie
        answer = http.post("/sign-in/", data=form, headers=from_page, follow_redirects=False)
        assert answer.status_code == 302, answer.text
        assert "secure" in answer.headers["set-cookie"].lower()
    cookie = {"Cookie": f"sessionid={answer.cookies['sessionid']}"}
    there = httpx2.get(f"http://127.0.0.1:{second.port}/account/", headers=HTTPS | cookie, timeout=30)
    assert there.status_code == 200
    assert "admin" in there.text


def test_every_machine_tells_the_same_of_all_whatever_its_terminal_has(machines: Fleet) -> None:
    told = [_status(node) for node in machines.nodes]
    assert _where(told[0]) == _where(told[1]) == _where(told[2]) == _runs(machines, "0.2.0")
    hosts = {each["host"] for each in told[0]["processes"]}
    assert hosts == set(UNITS) or len(hosts) == 1  # without the right to name them
    assert {each["address"] for each in told[0]["processes"] if each["kind"] == "web"} == {
        f"127.0.0.1:{node.port}" for node in machines.nodes if "rondo-web" in node.units
    }
    third = machines.nodes[2].machine
    text = third.run("TURN_SHARDS=3 RONDO_DOORS=none; export TURN_SHARDS RONDO_DOORS", "rondo status")
    assert "WARNING" not in text
    assert "RONDO_DOORS" not in text
    secret = third.environ["SECRET_KEY"], third.environ["DB_PASSWORD"], third.environ["BROKER_PASSWORD"]
    assert [each for each in secret if each in text + json.dumps(told)] == []
    assert connections(machines.database_url) < MOST_CONNECTIONS * sum(map(len, UNITS.values()))


@pytest.mark.rule("1.9", "10.2")
def test_an_upgrade_by_the_page_loses_and_doubles_nothing(machines: Fleet) -> None:
    load = Load(system=machines, name="upgrade-")
    load.start()
    version, *steps = blocks("Upgrade")
    assert version in blocks("Install")[0]
    tables, workers, others = (block.replace("0.2.0", "0.3.0") for block in steps)
    link, migrate = tables.splitlines()
    for node in machines.nodes:
        node.install("0.3.0")
        node.follow(link)
    machines.nodes[0].follow(migrate)
    for node in machines.nodes:
        node.follow(workers)
    _both_versions_are_named(machines.nodes[2])
    for node in machines.nodes[:2]:
        node.follow(others)
    expected = _runs(machines, "0.3.0")
    until(lambda: _where(_status(machines.nodes[0])) == expected, 30, "all run the new version")
    load.stop()
    assert verdict(machines, load) == {}
    assert load.posted > 10
    wait_until_healthy(machines.nodes[1])


def _both_versions_are_named(node: Node) -> None:
    until(lambda: len({version for *_, version in _where(_status(node))}) == 2, 30, "two versions run")
    checks = json.loads(node.machine.run("rondo doctor --json || true"))["checks"]
    [found] = [each for each in checks if each["name"] == "processes"]
    assert (found["state"], found["cure"][:18]) == ("unknown", "finish the upgrade")


def test_a_program_gets_a_token_and_what_watches_finds_the_metrics(machines: Fleet) -> None:
    first = machines.nodes[0].machine
    [tokens], [watch] = blocks("Make a token for a program"), blocks("Watch it")
    token, listed = first.run(tokens).strip().split("\n", 1)
    assert "talk" in listed
    assert token not in listed
    assert ask(machines, token, "GET", "/api/agents/")[0] == 200
    assert ask(machines, token, "POST", "/api/agents/", {"name": "more"})[0] == 403
    assert 'rondo_ready{check="database"} 1.0' in first.run(watch)
    prometheus = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
    [target] = re.findall(r'targets: \["(.+)"\]', prometheus)
    assert f"http://{target}/metrics" in watch


def test_a_restored_backup_goes_on_with_every_appointment(machines: Fleet, tmp_path: Path) -> None:
    """The last one: the machines move to another PostgreSQL."""
    first = machines.nodes[0]
    made, _ = insist(machines, "POST", "/api/sessions/", {"agent": "demo", "key": "web:kept"}, "kept")
    daily = {"kind": "cron", "expr": "0 9 * * *", "timezone": "Asia/Tokyo"}
    later = _add(machines, made["id"], daily)
    soon = _add(machines, made["id"], {"kind": "every", "seconds": 5})
    with psycopg.connect(machines.database_url, autocommit=True) as old:
        old.execute(BURN)
    until(lambda: _succeeded(machines, soon), 40)
    known, planned = _succeeded(machines, soon), _next_run(machines, later)
    first.machine.run(*blocks("Backup"))
    for node in machines.nodes:
        for unit in node.units:
            node.stop(unit)
    with own_database(tmp_path / "new", PASSWORD) as (places, environ):
        for node in machines.nodes:
            node.machine.places |= places
            node.machine.environ |= environ
        _restore(machines)
        until(lambda: _answers(first), 60, "the first web process answers")
        until(lambda: len(_succeeded(machines, soon)) > len(known), 40)
        assert known <= _succeeded(machines, soon)
        assert _next_run(machines, later) == planned
        wait_until_healthy(first)
        for node in machines.nodes:
            node.kill()


def _restore(machines: Fleet) -> None:
    """From an empty server to machines that run."""
    first = machines.nodes[0]
    _, database, _ = blocks("Prepare the database and the broker")
    aside, restore, start = blocks("Restore")
    first.machine.run(database)
    first.machine.run(aside)
    for node in machines.nodes:
        node.machine.run(blocks("Install")[1])
    load, _, migrate = restore.partition("rondo migrate")
    first.machine.run(load)
    assert _events_of_the_future(machines) > 0  # the old server was far ahead
    first.machine.run("rondo migrate" + migrate)
    assert _events_of_the_future(machines) == 0
    for node in machines.nodes:
        node.follow(start)
        assert node.running.keys() == set(node.units)


def _add(machines: Fleet, session: str, schedule: dict[str, Any]) -> str:
    job, path = {"message": "go", "schedule": schedule}, f"/api/sessions/{session}/automations/"
    return str(insist(machines, "POST", path, job)[0]["id"])


def _next_run(machines: Fleet, automation: str) -> str:
    return str(insist(machines, "GET", f"/api/automations/{automation}/")[0]["next_run_at"])


def _succeeded(machines: Fleet, automation: str) -> set[str]:
    listed, _ = insist(machines, "GET", f"/api/automations/{automation}/runs/?page_size=100")
    return {row["run_id"] for row in listed["results"] if row["state"] == "succeeded"}


def _events_of_the_future(machines: Fleet) -> int:
    with psycopg.connect(machines.database_url) as connection:
        row = connection.execute(FUTURE).fetchone()
    assert row is not None
    return int(row[0])
