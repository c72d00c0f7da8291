"""The files of deploy/ for Prometheus and Grafana, as far as they can be read without either."""

import json
import re

import yaml

from tests.config.operations.watching import (
    DASHBOARD,
    OF_PROMETHEUS,
    RULES,
    grouped_by,
    needs_promtool,
    panels,
    promtool,
    rules,
)
from tests.up import ROOT

RUNBOOK = ROOT / "docs" / "operations.md"
PROMETHEUS = ROOT / "deploy" / "prometheus" / "prometheus.yml"
_SHOWN_LABEL = re.compile(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}")


@needs_promtool
def test_promtool_accepts_the_files() -> None:
    for given in (("check", "rules", str(RULES)), ("check", "config", str(PROMETHEUS))):
        code, said = promtool(*given)
        assert code == 0, said


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


def test_texts_name_only_labels_that_the_result_has() -> None:
    for rule in rules():
        named = set(_SHOWN_LABEL.findall(" ".join(rule["annotations"].values())))
        has = grouped_by(rule["expr"]) | (OF_PROMETHEUS if rule["expr"].startswith("up{") else set())
        assert named <= has, rule["alert"]
    for panel in panels():
        for target in panel["targets"]:
            named = set(_SHOWN_LABEL.findall(target["legendFormat"]))
            assert named == grouped_by(target["expr"]) - {"le"}, panel["title"]


def test_the_example_configuration_reads_the_rule_file_and_names_the_job_of_the_rules() -> None:
    configuration = yaml.safe_load(PROMETHEUS.read_text())
    assert configuration["rule_files"] == [RULES.name]
    jobs = {job["job_name"] for job in configuration["scrape_configs"]}
    asked = {job for rule in rules() for job in re.findall(r'job="(\w+)"', rule["expr"])}
    assert asked == jobs


def test_the_dashboard_has_the_shape_that_grafana_reads() -> None:
    """Grafana shows a dashboard with a doubled id, or with panels over each other, without an error."""
    dashboard = json.loads(DASHBOARD.read_text())
    [variable] = dashboard["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    found = panels()
    assert len(found) > 15
    assert len({panel["id"] for panel in found}) == len({panel["title"] for panel in found}) == len(found)
    for panel in found:
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["datasource"] == source
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters))
