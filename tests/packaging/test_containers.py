"""deploy/Containerfile and deploy/compose.yaml, as far as they can be tried without an engine for containers."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml

from config import env
from config.celery import app
from config.env import SHORTEST_KEY, EnvError
from config.supervisor.fleet import WORKER_PATIENCE
from tests.packaging.installed import project
from tests.packaging.page import blocks, clean, exec_start
from tests.up import ROOT, run

DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "rondo"}
ELSEWHERE = {"FORWARDED_ALLOW_IPS"}  # uvicorn's


def instructions() -> list[tuple[str, str]]:
    """The instructions of the container file; a line that ends with a backslash goes on in the next."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


def only(name: str) -> str:
    [value] = [value for word, value in instructions() if word == name]
    return value


def flags_of(command: str) -> set[str]:
    """The flags that a command of ours takes."""
    from celery.bin.worker import worker

    parameters = {"web": uvicorn.main.params, "worker": worker.params, "beat": [], "migrate": []}[command]
    return {flag for each in parameters for flag in each.opts}


def filled(text: str) -> str:
    """With a password in the place of each variable of compose."""
    return re.sub(r"\$\{(\w+)[^}]*\}", "abc123", text)


def test_the_container_file_has_what_an_engine_needs() -> None:
    assert re.search(rf"useradd .*--uid {only('USER')}\b", CONTAINERFILE)
    assert only("STOPSIGNAL") == "SIGTERM"  # as every process of ours ends by
    assert json.loads(only("ENTRYPOINT")) == ["rondo"]
    name, *flags = json.loads(only("CMD"))
    assert {flag for flag in flags if flag.startswith("-")} <= flags_of(name)
    assert flags[flags.index("--port") + 1] == only("EXPOSE")
    assert "STATIC_ROOT=/app/static" in only("ENV")


def test_every_image_from_outside_is_named_by_its_digest() -> None:
    bases = [value.split()[0] for word, value in instructions() if word == "FROM"]
    services = [service["image"] for service in SERVICES.values() if service["image"] != "rondo"]
    assert len(set(bases)) == 1  # the environment is built for the Python that runs it
    assert bases
    assert services
    for image in bases + services:
        assert re.fullmatch(r"[a-z]+:[0-9][\w.-]*@sha256:[0-9a-f]{64}", image), image


@pytest.mark.full
def test_the_image_can_collect_its_static_files(tmp_path: Path) -> None:
    """The step that runs our code while the image is built, with the values that it has there."""
    [step] = [value for word, value in instructions() if word == "RUN" and "collectstatic" in value]
    program = tmp_path / "bin" / "rondo"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "manage.py"}" "$@"\n')
    program.chmod(0o755)
    script = "useradd() { :; }\n" + step.replace("/app", str(tmp_path))
    done = run("bash", "-euc", script, env=clean(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "static" / "rondo").is_dir()


@pytest.mark.parametrize("extras", ["", "otel,telegram"])
def test_the_image_has_the_extras_that_its_build_names(tmp_path: Path, extras: str) -> None:
    assert only("ARG") == 'EXTRAS=""'
    [step] = [value for word, value in instructions() if word == "RUN" and "$EXTRAS" in value]
    pip, calls = tmp_path / "bin" / "pip", tmp_path / "calls"
    pip.parent.mkdir()
    pip.write_text(f'#!/bin/sh\necho "$@" >>"{calls}"\n')
    pip.chmod(0o755)
    environ = clean() | {"EXTRAS": extras}
    run("sh", "-euc", step.replace("/app", str(tmp_path)), env=environ, cwd=tmp_path, check=True)
    expected = ["install", "--no-cache-dir", f".[{extras}]"] if extras else []
    assert (calls.read_text().split() if calls.exists() else []) == expected
    assert set(extras.split(",")) - {""} <= project()["optional-dependencies"].keys()


@pytest.mark.parametrize("name", OURS)
def test_a_service_has_settings_that_load(name: str) -> None:
    service = OURS[name]
    assert service["env_file"] == "rondo.env"
    example = (DEPLOY / "rondo.env.example").read_text()
    settings = dict(line.split("=", 1) for line in example.splitlines() if "=" in line and line[0] != "#")
    assert settings["SECRET_KEY"] == ""  # nobody goes on with a key that all know
    with pytest.raises(EnvError, match="not set: SECRET_KEY"):
        env.load(settings)
    settings |= {each: filled(value) for each, value in service["environment"].items()}
    assert settings.keys() - ELSEWHERE <= {each.name for each in env.variables()}
    loaded = env.load(settings | {"SECRET_KEY": "k" * SHORTEST_KEY})
    assert loaded.database_url == "postgresql://rondo:abc123@postgres:5432/rondo"
    assert loaded.celery_broker_url == "amqp://rondo:abc123@rabbitmq:5672//"
    assert {"postgres", "rabbitmq"} <= SERVICES.keys()  # the hosts of these addresses
    assert f"STATIC_ROOT={loaded.static_root}" in only("ENV")  # where the image has collected them


def test_only_a_proxy_on_the_same_machine_is_believed() -> None:
    """It comes from the gateway of the engine's network, whose address nobody knows before."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    assert OURS["web"]["environment"]["FORWARDED_ALLOW_IPS"] == "*"


def test_the_build_reads_what_it_copies_and_no_more() -> None:
    """Without the list, an engine takes in the whole checkout, with the virtual environment and the secrets."""
    lines = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    everything, *kept = [line for line in lines if line and not line.startswith("#")]
    assert everything == "*"
    copies = [value for word, value in instructions() if word == "COPY" and "--from" not in value]
    copied = {name for value in copies for name in value.split()[:-1]}
    assert {line.removeprefix("!") for line in kept if line.startswith("!")} == copied
    assert [line for line in kept if not line.startswith("!")] == ["**/__pycache__"]


def test_every_command_takes_its_flags() -> None:
    given = [service["command"] for service in OURS.values() if "command" in service]
    units = [each.name for each in (DEPLOY / "systemd").iterdir()]
    given += [exec_start(unit.replace("%%", "%"), "1")[1:] for unit in units]
    assert len(given) == 7
    for name, *words in given:
        assert {word for word in words if word.startswith("-")} <= flags_of(name), (name, words)
    [port] = OURS["web"]["ports"]
    assert port.rpartition(":")[2] == only("EXPOSE")
    assert app.conf.broker_url  # the worker of these flags is that of config.celery


def test_a_container_of_a_worker_gets_the_time_to_hand_back_its_turns() -> None:
    workers = [service for service in OURS.values() if service.get("command", [])[:1] == ["worker"]]
    assert {service["environment"]["TURN_QUEUES"] for service in workers} == {"turns", "auto"}
    for service in workers:
        assert int(service["stop_grace_period"].removesuffix("s")) > WORKER_PATIENCE
    assert all(service["init"] for service in OURS.values())


def test_the_page_sets_every_variable_that_compose_asks_for() -> None:
    asked = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    [block] = blocks("Containers")
    [exported] = [line for line in block.splitlines() if line.startswith("export ")]
    assert asked == set(re.findall(r"(\w+)=", exported))
    services = re.findall(r"run --rm (\w+) (\w+)", block)
    assert services == [("web", "createsuperuser")]


def test_git_ignores_the_copy_of_the_settings_that_compose_names() -> None:
    name = OURS["web"]["env_file"]
    assert (DEPLOY / f"{name}.example").exists()
    done = run("git", "check-ignore", "--quiet", "--no-index", f"deploy/{name}")
    if "not a git repository" in done.stderr:
        pytest.skip("the checkout has no history")
    assert done.returncode == 0
