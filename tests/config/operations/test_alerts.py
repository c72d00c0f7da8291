"""The alert rules of deploy/: each condition is made real in a running server, scraped, and given to the rule file."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from agent_core.testing import ModelServer
from automations.jobs.edit import NewJob, create_job
from automations.models import RunRecord, RunState
from sessions_app.models import Delivery, DeliveryState
from sessions_app.turns.receive import MOST_WAITING, MessageInput, receive
from tests.api.conftest import start_web
from tests.conftest import Person
from tests.fleet import QUICK, Fleet, until
from tests.sessions_app.deliveries.receivers import Receiver, http_receiver
from tests.talk import ended
from tests.tokens import token_of
from tests.up import ROOT

RULES = ROOT / "deploy" / "prometheus" / "rondo.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "rondo.json"
RUNBOOK = ROOT / "docs" / "operations.md"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: the package prometheus)"
)
_LINE = re.compile(r"(?P<series>\w+(?:\{.*\})?) (?P<value>\S+)")
_NAME = re.compile(r"\brondo_\w+")
HALF = 40  # samples of 15 s: ten minutes
FIRING = 'sort(count by (alertname) (ALERTS{alertstate="firing"}))'

Scrape = dict[str, str]


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


@dataclass(kw_only=True)
class Watched:
    """A running server, whose metrics are scraped over HTTP."""

    url: str
    fleet: Fleet
    receiver: Receiver
    scrapes: dict[str, Scrape] = field(default_factory=dict)

    def scrape(self) -> Scrape:
        answer = httpx2.get(f"{self.url}/metrics", timeout=20)
        assert answer.status_code == 200
        return {
            found["series"]: found["value"]
            for line in answer.text.splitlines()
            if (found := _LINE.fullmatch(line))
        }

    def until(self, series: str, least: float) -> Scrape:
        """The first scrape in which this series is so high."""
        found: list[Scrape] = []

        def look() -> bool:
            found[:] = [self.scrape()]
            return float(found[0].get(series, "-1")) >= least

        until(look, 30, f"{series} is {least}")
        return found[0]


@pytest.fixture
def watched(fleet: Fleet, model_server: ModelServer, settings: Any, tmp_path: Path) -> Iterator[Watched]:
    with http_receiver() as receiver:
        settings.RONDO_WEBHOOK_HOSTS = (receiver.host,)
        fleet.environ |= {"RONDO_WEBHOOK_HOSTS": receiver.host}
        url, web = start_web(tmp_path, **QUICK)
        fleet.processes.append(web)
        yield Watched(url=url, fleet=fleet, receiver=receiver)


def use_up_a_budget(watched: Watched, person: Person) -> Scrape:
    """A turn that takes longer than its policy allows."""
    person.agent.policy = {"timeout_seconds": 1, "max_attempts": 1}
    person.agent.save()
    turn = receive(person.session().pk, MessageInput(content="[[hold:for-ever]]"))
    until(lambda: ended(turn))
    assert turn.error_code == "timeout"
    return watched.until('rondo_turn_limits_reached_total{limit="timeout"}', 1)


def fail_three_times(watched: Watched, person: Person) -> Scrape:
    """An automation whose model answers 503, every second."""
    session = person.session()
    schedule = {"kind": "every", "seconds": 1}
    job = NewJob(session_id=session.pk, name="fails", message="[[fail:503]]", schedule=schedule, max_runs=3)
    create_job(job)
    failed = RunRecord.objects.filter(session=session, state=RunState.FAILED)
    until(lambda: failed.count() == 3)
    watched.until('rondo_runs_total{outcome="failed",reason="model_unavailable"}', 3)
    return watched.until("rondo_failing_automations", 1)


def lose_a_letter(watched: Watched, person: Person) -> Scrape:
    """A webhook whose receiver says that the address is gone."""
    address = watched.receiver.set("/gone", "410")
    session = person.session(channel="webhook", address=address)
    receive(session.pk, MessageInput(content="hello"))
    until(lambda: Delivery.objects.filter(session=session, state=DeliveryState.FAILED).exists())
    return watched.until('rondo_open_deliveries{state="failed"}', 1)


def fill_a_queue(watched: Watched, person: Person) -> Scrape:
    """One message more than may wait, while no worker lives."""
    token = token_of(person.user)
    address = f"{watched.url}/api/sessions/{person.session().pk}/messages/"
    headers = {"Authorization": f"Token {token}"}
    with httpx2.Client(headers=headers, timeout=20) as http:
        answers = [http.post(address, json={"content": f"{n}"}).status_code for n in range(MOST_WAITING + 1)]
    assert (set(answers[:-1]), answers[-1]) == ({202}, 429)
    return watched.until('rondo_queue_full_total{queue="session"}', 1)


@needs_promtool
@pytest.mark.rule("10.1")
def test_each_condition_fires_its_alert_and_quiet_fires_none(
    watched: Watched, person_with_server: Person, tmp_path: Path
) -> None:
    person, fleet = person_with_server, watched.fleet
    worker, beat = fleet.worker(), fleet.beat()
    quiet = watched.until("rondo_beat_rounds_total", 1)
    loud = {
        "RondoBudgetReached": use_up_a_budget(watched, person),
        "RondoAutomationFailing": fail_three_times(watched, person),
        "RondoDeadLetter": lose_a_letter(watched, person),
    }
    worker.kill()
    until(lambda: float(watched.scrape()["rondo_workers"]) == 0)
    loud |= {"RondoNoWorker": watched.scrape(), "RondoQueueFull": fill_a_queue(watched, person)}
    beat.kill()
    until(lambda: float(watched.scrape()["rondo_beats"]) == 0)
    loud["RondoBeatSilent"] = watched.scrape()
    assert fired_by(quiet, quiet, tmp_path) == set()
    for alert, scrape in loud.items():
        assert alert in fired_by(quiet, scrape, tmp_path), alert


def fired_by(before: Scrape, after: Scrape, folder: Path) -> set[str]:
    """The alerts that fire five minutes after the series went from one scrape to the other, and did not before.

    promtool evaluates the real rule file. It is asked for nothing, so it names what it found instead.
    """
    series = [
        {"series": _with_instance(name), "values": f"{_held(before.get(name))} {_held(after.get(name))}"}
        for name in sorted({*before, *after})
        if name.startswith("rondo_")
    ]
    series.append({"series": 'up{job="rondo",instance="web"}', "values": f"1x{2 * HALF}"})
    quiet = {"expr": FIRING, "eval_time": "9m", "exp_samples": []}
    loud = {
        "expr": FIRING,
        "eval_time": "15m",
        "exp_samples": [{"labels": '{alertname="asked"}', "value": 1}],
    }
    file = folder / "alerts.test.yml"
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [quiet, loud]}
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert "time: 9m" not in said, f"an alert fired before:\n{said}"
    assert "time: 15m" in said, said
    return set(re.findall(r'alertname="(Rondo\w+)"', said))


def _held(value: str | None) -> str:
    return f"_x{HALF}" if value is None else f"{float(value):.6f}+0x{HALF - 1}"


def _with_instance(series: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{job="rondo",instance="web"' + (f",{labels}" if labels else "}")


@needs_promtool
def test_promtool_accepts_the_rule_file() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_texts_and_its_part_of_the_page() -> None:
    found = rules()
    assert len(found) >= 8
    headings = set(re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE))
    for rule in found:
        about = rule["annotations"]
        assert set(about) == {"summary", "description", "runbook"}
        assert about["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in {"critical", "warning"}
    assert headings >= {rule["alert"] for rule in found}


def test_the_dashboard_and_the_rules_name_only_metrics_that_are_there(watched: Watched) -> None:
    watched.fleet.beat()
    shown = watched.until("rondo_beat_rounds_total", 1)
    names = {series.partition("{")[0] for series in shown} | {"rondo_delivery_attempts_failed_total"}
    names |= {"rondo_run_attempts_failed_total"}  # without a failure they have no labels yet
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    asked += " ".join(rule["expr"] for rule in rules())
    assert len(panels) > 15
    assert set(_NAME.findall(asked)) - names == set()


@pytest.mark.rule("10.1")
def test_requests_are_counted_by_route_and_clients_choose_no_label(watched: Watched) -> None:
    for path in ("/nothing/secret-1", "/api/sessions/secret-2/", "/healthz"):
        httpx2.request("PURGE" if path == "/healthz" else "GET", watched.url + path, timeout=20)
    shown = watched.scrape()
    assert shown['rondo_http_requests_total{method="GET",route="none",status="4xx"}'] == "2.0"
    assert shown['rondo_http_requests_total{method="other",route="/healthz",status="4xx"}'] == "1.0"
    assert shown['rondo_http_request_duration_seconds_count{method="GET",route="none"}'] == "2.0"
    assert not [series for series in shown if "secret" in series or "PURGE" in series]
