"""A running server whose metrics are scraped, and the files of deploy/ that read them."""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.fleet import Fleet, until
from tests.sessions_app.deliveries.receivers import Receiver
from tests.up import ROOT, run

RULES = ROOT / "deploy" / "prometheus" / "rondo.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "rondo.json"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: the package prometheus)"
)
HALF = 40  # samples: ten minutes
STEP = 15  # seconds between two samples
FIRING = 'sort(count by (alertname) (ALERTS{alertstate="firing"}))'
OF_PROMETHEUS = {"instance", "job"}  # labels that it adds when it scrapes
_LINE = re.compile(r"(?P<series>\w+(?:\{.*\})?) (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)(?:=|=~|!=|!~)"((?:[^"\\]|\\.)*)"')
_SELECTED = re.compile(r"\b(rondo_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")

Scrape = Mapping[str, str]
Asked = set[tuple[str, str, str]]  # a metric, one of its labels or "", a value of it or ""


def rules() -> list[dict[str, Any]]:
    """The alerts of the file."""
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard."""
    return list(json.loads(DASHBOARD.read_text())["panels"])


def expressions() -> list[str]:
    """What the dashboard asks; Grafana sets the interval."""
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [each.replace("$__rate_interval", "5m") for each in asked]


def grouped_by(expression: str) -> set[str]:
    """The labels that its result may have."""
    return {name.strip() for names in _GROUPED.findall(expression) for name in names.split(",")}


def asked_by(expression: str) -> Asked:
    """The metrics that it names, with each label and value that it chooses or groups by."""
    asked: Asked = set()
    for metric, selector in _SELECTED.findall(expression):
        asked |= {(metric, label, "") for label in grouped_by(expression) | {""}}
        chosen = _LABEL.findall(selector)
        asked |= {(metric, label, value) for label, values in chosen for value in values.split("|")}
    return asked


def shown_in(scrapes: Iterable[Scrape]) -> Asked:
    """What can be asked of these scrapes."""
    shown: Asked = set()
    for series in {name for scrape in scrapes for name in scrape}:
        metric, _, labels = series.partition("{")
        shown.add((metric, "", ""))
        for label, value in _LABEL.findall(labels):
            shown |= {(metric, label, ""), (metric, label, value)}
    return shown


@dataclass(kw_only=True)
class Watched:
    """A running server, whose metrics are scraped over HTTP."""

    url: str
    fleet: Fleet
    receiver: Receiver

    def scrape(self) -> Scrape:
        answer = httpx2.get(f"{self.url}/metrics", timeout=20)
        assert answer.status_code == 200
        found = map(_LINE.fullmatch, answer.text.splitlines())
        return {each["series"]: each["value"] for each in found if each}

    def when(self, condition: Callable[[Scrape], bool], what: str, seconds: float = 30) -> Scrape:
        """The first scrape of which this is true."""
        found: list[Scrape] = []

        def look() -> bool:
            found[:] = [self.scrape()]
            return condition(found[0])

        until(look, seconds, what)
        return found[0]

    def until(self, series: str, least: float) -> Scrape:
        """The first scrape in which this series is so high."""
        return self.when(lambda scrape: float(scrape.get(series, "-1")) >= least, f"{series} is {least}")


@dataclass(frozen=True, kw_only=True)
class Story:
    """Ten minutes in which the series stay as in `before`, then ten as in `after`.

    `growth`: by series, what is added to it each second of the latter. `up`: whether the scrapes of the latter succeed.
    """

    before: Scrape
    after: Scrape
    growth: Mapping[str, float] = field(default_factory=dict)
    up: bool = True

    def series(self) -> list[dict[str, str]]:
        """As promtool reads them."""
        names = sorted(name for name in {*self.before, *self.after} if name.startswith("rondo_"))
        found = [{"series": _with_instance(name), "values": self._values(name)} for name in names]
        up = f"1x{HALF} {int(self.up)}x{HALF}"
        return [*found, {"series": 'up{job="rondo",instance="web"}', "values": up}]

    def _values(self, name: str) -> str:
        growth = self.growth.get(name, 0.0) * STEP
        return f"{_held(self.before.get(name), 0.0)} {_held(self.after.get(name), growth)}"

    def fires(self, folder: Path) -> set[str]:
        """The alerts that fire five minutes after the change. None may fire before it."""
        said = self.ask([(FIRING, "9m", []), (FIRING, "15m", [_ASKED])], folder)
        assert "time: 9m" not in said, f"an alert fired before:\n{said}"
        assert "time: 15m" in said, said
        return set(re.findall(r'alertname="(Rondo\w+)"', said))

    def unanswered(self, expressions: list[str], folder: Path) -> list[str]:
        """The expressions that have no result after the change."""
        said = self.ask([(each, "15m", [_ASKED]) for each in expressions], folder)
        parts = said.split('expr: "')[1:]
        assert len(parts) == len(expressions), said
        return [each for each, part in zip(expressions, parts, strict=True) if "got: nil" in part]

    def ask(self, questions: list[tuple[str, str, list[Any]]], folder: Path) -> str:
        """What promtool says, with the real rule file. It is asked for nothing, so it names what it found instead."""
        names = ("expr", "eval_time", "exp_samples")
        tests = [dict(zip(names, question, strict=True)) for question in questions]
        test = {"interval": f"{STEP}s", "input_series": self.series(), "promql_expr_test": tests}
        content = {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP}s", "tests": [test]}
        file = folder / "alerts.test.yml"
        file.write_text(yaml.safe_dump(content))
        return promtool("test", "rules", str(file))[1]


_ASKED = {"labels": '{alertname="asked"}', "value": 1}


def promtool(*arguments: str) -> tuple[int, str]:
    """Its exit code, and what it says."""
    done = run("promtool", *arguments)
    return done.returncode, done.stdout + done.stderr


def _held(value: str | None, growth: float) -> str:
    return f"_x{HALF}" if value is None else f"{float(value):.6f}+{growth:.6f}x{HALF - 1}"


def _with_instance(series: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{job="rondo",instance="web"' + (f",{labels}" if labels else "}")
