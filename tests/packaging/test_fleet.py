"""Three machines of docs/deploy.md: set up, upgraded while they work, and one of them killed (rules 1.9, 10.2)."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.fleet import until
from tests.packaging.nodes import HTTPS, Fleet, Node, connections, fleet, wait_until_healthy
from tests.packaging.page import blocks
from tests.soak.load import Load, insist, verdict

pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.timeout(400)]

UNITS = {
    "app1": ("rondo-web", "rondo-beat", "rondo-worker@1"),
    "app2": ("rondo-web", "rondo-beat", "rondo-worker@1"),
    "app3": ("rondo-worker@1",),
}
PASSWORD = "only-for-tests"
MOST_CONNECTIONS = 20  # of a process, as the page says


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
    until(lambda: all(_answers(node) for node in (first, second)), 90, "both web processes answer")
    wait_until_healthy(first)
    machines.token = first.machine.run("rondo token make --user admin --scope manage tests").split()[-1]
    insist(machines, "POST", "/api/agents/", {"name": "demo"}, "the-agent")


def _answers(node: Node) -> bool:
    assert all(process.poll() is None for process in node.running.values()), node.logs()
    try:
        return bool(
            httpx2.get(f"http://127.0.0.1:{node.port}/healthz", headers=HTTPS, timeout=5).status_code == 200
        )
    except httpx2.TransportError:
        return False


def _status(node: Node) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(node.machine.run("rondo status --json"))
    return told


def _where(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Kind, pid and version of what is alive."""
    return sorted(
        (each["kind"], str(each["pid"]), each["version"]) for each in told["processes"] if each["alive"]
    )


def _runs(machines: Fleet, version: str) -> list[tuple[str, str, str]]:
    """The same, by what was started."""
    return sorted(
        (re.sub(r"rondo-|@\d", "", unit), str(process.pid), version)
        for node in machines.nodes
        for unit, process in node.running.items()
    )


def test_a_browser_signs_in_at_one_machine_and_goes_on_at_the_other(machines: Fleet) -> None:
    first, second, _ = machines.nodes
    with httpx2.Client(base_url=f"http://127.0.0.1:{first.port}", headers=HTTPS, timeout=30) as http:
        page = http.get("/sign-in/")
        [csrf] = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        form = {"csrfmiddlewaretoken": csrf, "username": "admin", "password": PASSWORD}
        from_page = {
            "Referer": "https://rondo.example/sign-in/",
            "Cookie": f"csrftoken={page.cookies['csrftoken']}",
        }
        answer = http.post("/sign-in/", data=form, headers=from_page, follow_redirects=False)
        assert answer.status_code == 302, answer.text
    cookie = {"Cookie": f"sessionid={answer.cookies['sessionid']}"}
    there = httpx2.get(f"http://127.0.0.1:{second.port}/account/", headers=HTTPS | cookie, timeout=30)
    assert there.status_code == 200
    assert "admin" in there.text


def test_every_machine_tells_the_same_of_all_whatever_its_terminal_has(machines: Fleet) -> None:
    told = [_status(node) for node in machines.nodes]
    assert _where(told[0]) == _where(told[1]) == _where(told[2]) == _runs(machines, "0.1.0")
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
    tables, workers, others = (block.replace("0.1.0", "0.2.0") for block in steps)
    link, migrate = tables.splitlines()
    for node in machines.nodes:
        node.install("0.2.0")
        node.follow(link)
    machines.nodes[0].follow(migrate)
    for node in machines.nodes:
        node.follow(workers)
    _both_versions_are_named(machines.nodes[2])
    for node in machines.nodes[:2]:
        node.follow(others)
    until(
        lambda: _where(_status(machines.nodes[0])) == _runs(machines, "0.2.0"), 30, "all run the new version"
    )
    load.stop()
    assert verdict(machines, load) == {}
    assert load.posted > 10
    wait_until_healthy(machines.nodes[1])


def _both_versions_are_named(node: Node) -> None:
    until(lambda: len({version for *_, version in _where(_status(node))}) == 2, 30, "two versions run")
    text = node.machine.run("rondo status")
    [named] = [line for line in text.splitlines() if "several versions run" in line]
    assert re.search(r"0\.1\.0 in [^;]*\bbeat app1:", named) or "app1" not in text
    assert re.search(r"0\.2\.0 in [^;]*\bworker ", named)
    checks = json.loads(node.machine.run("rondo doctor --json || true"))["checks"]
    [versions] = [each for each in checks if each["name"] == "versions"]
    assert (versions["state"], versions["cure"][:18]) == ("unknown", "finish the upgrade")


@pytest.mark.rule("1.9", "10.2")
def test_a_machine_that_dies_is_named_and_takes_nothing_along(machines: Fleet) -> None:
    dead, second, third = machines.nodes
    machines.nodes = [second, third]  # the balancer has noticed
    load = Load(system=machines, name="killed-")
    load.start()
    until(lambda: load.posted > 3, 30, "messages were accepted")
    lost = {str(process.pid) for process in dead.running.values()}
    dead.kill()
    until(lambda: {str(each["pid"]) for each in _status(third)["processes"] if not each["alive"]} == lost, 60)
    doctor = json.loads(third.machine.run("rondo doctor --json || true"))["checks"]
    [found] = [each for each in doctor if each["name"] == "processes"]
    assert (found["state"], found["detail"].count(" for ")) == ("wrong", len(lost))
    load.stop()
    assert verdict(machines, load) == {}
    machines.nodes = [dead, second, third]
    for unit in dead.units:
        dead.start(unit)
    until(lambda: _answers(dead), 60, "the machine is back")
    if dead.name in {each["host"] for each in _status(dead)["processes"]}:  # else any machine replaces it
        wait_until_healthy(dead)
