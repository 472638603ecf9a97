"""The alerts, judged by Prometheus's own promtool: which histories make them fire, and what they then say."""

import re
import subprocess

import pytest
import yaml

from devcluster import packages
from devcluster.progress import Progress
from generate import alert_rules
from generate.helm import ROOT
from tests.chart.rendering import WITH_PROMETHEUS, WITHOUT_CRDS, objects
from tests.generate.alert_cases import CASES

pytestmark = pytest.mark.programs

ALERTS = {alert["alert"].removeprefix("ElasticPyTorch"): alert for alert in alert_rules.alerts()}


def promtool(*arguments):
    program = packages.metrics_programs(Progress())["promtool"]
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


def without_annotations(rules):
    """promtool compares them too, as whole texts."""
    groups = [
        {**group, "rules": [{k: v for k, v in rule.items() if k != "annotations"} for rule in group["rules"]]}
        for group in rules["groups"]
    ]
    return {"groups": groups}


def as_promtool_has_it(case):
    expected = [{"exp_labels": {**labels, **ALERTS[case.alert]["labels"]}} for labels in case.fires]
    alert = {"eval_time": f"{case.minutes}m", "alertname": f"ElasticPyTorch{case.alert}", "exp_alerts": expected}
    return {
        "name": f"{case.alert}: {case.what}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [alert],
    }


def test_alerts_fire_when_they_should_and_only_then(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(without_annotations(yaml.safe_load(alert_rules.text()))))
    file = tmp_path / "test.yaml"
    tests = [as_promtool_has_it(case) for case in CASES]
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))

    result = promtool("test", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_alert_is_seen_to_fire_and_to_be_silent():
    assert {case.alert for case in CASES if case.fires} == set(ALERTS)
    assert {case.alert for case in CASES if not case.fires} == set(ALERTS)


def test_promtool_finds_nothing_wrong_with_the_rules_and_their_texts():
    result = promtool("check", "rules", ROOT / alert_rules.PATH)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_what_an_alert_says_uses_only_labels_that_it_has(name):
    alert = ALERTS[name]
    has = {label for case in CASES if case.alert == name for labels in case.fires for label in labels}
    assert set(re.findall(r"\$labels\.(\w+)", str(alert["annotations"]))) <= has


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_an_alert_has_a_severity_a_text_and_a_section_in_the_runbook(name):
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    file, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^## (.*)$", (ROOT / file).read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]


def test_the_runbook_has_a_section_for_each_alert_and_no_other():
    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert headings == [f"ElasticPyTorch{name}" for name in ALERTS]


def test_the_configuration_in_the_guide_is_one_that_prometheus_takes(tmp_path):
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE | re.DOTALL)
    # Debian's Prometheus is built without the discovery of pods.
    known = re.sub(r"kubernetes_sd_configs:\n.*\n", "static_configs: [{targets: [a-pod:8080]}]\n", block)
    (tmp_path / "prometheus.yml").write_text(known)
    (tmp_path / "alerts.yaml").write_text(alert_rules.text())
    result = promtool("check", "config", tmp_path / "prometheus.yml")
    assert result.returncode == 0, result.stdout + result.stderr
    (scraped,) = yaml.safe_load(block)["scrape_configs"]
    assert scraped["honor_labels"] is True


def test_the_prometheus_rule_holds_the_same_rules_as_the_plain_file():
    (rule,) = objects(*WITHOUT_CRDS, *WITH_PROMETHEUS, kind="PrometheusRule")
    assert rule["spec"] == yaml.safe_load((ROOT / alert_rules.PATH).read_text())


def test_an_alert_can_be_left_out_labelled_and_given_another_threshold():
    chosen = "metrics.prometheusRule"
    flags = (
        *("--set", f"{chosen}.disabled={{ElasticPyTorchApiErrors}}"),
        *("--set", f"{chosen}.alertLabels.team=platform"),
        *("--set", f"{chosen}.thresholds.stuckFormingFor=1h"),
    )
    (rule,) = objects(*WITHOUT_CRDS, *WITH_PROMETHEUS, *flags, kind="PrometheusRule")
    rules = {alert["alert"]: alert for group in rule["spec"]["groups"] for alert in group["rules"]}
    assert len(rules) == len(ALERTS) - 1
    assert "ElasticPyTorchApiErrors" not in rules
    assert all(alert["labels"]["team"] == "platform" and alert["labels"]["severity"] for alert in rules.values())
    assert rules["ElasticPyTorchJobStuckForming"]["for"] == "1h"
