"""The dashboard: what it asks is asked of metrics that exist, and Prometheus understands it."""

import json
import re
import subprocess

import pytest
import yaml

from devcluster import packages
from devcluster.progress import Progress
from generate import alert_rules, dashboard, metrics_reference
from generate.grafana import COLUMNS

MODEL = json.loads(dashboard.text())
PANELS = [panel for panel in MODEL["panels"] if panel["type"] != "row"]
METRIC = re.compile(r"\belastic_pytorch_\w+")
OF_A_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


def asked():
    """Every query of the dashboard, as Grafana would send it, and of the alerts."""
    for title, query in dashboard.queries().items():
        yield title, dashboard.filled_in(query, namespace="team-a", job="toy")
    yield from ((variable.name, variable.query) for variable in dashboard.VARIABLES)
    yield from ((alert["alert"], alert["expr"]) for alert in alert_rules.alerts())


def test_every_metric_that_is_asked_for_is_in_the_reference():
    known = set(METRIC.findall(metrics_reference.text()))
    unknown = {
        (title, name)
        for title, query in asked()
        for name in METRIC.findall(query)
        if name not in known and OF_A_HISTOGRAM.sub("", name) not in known
    }
    assert unknown == set()


def test_nothing_is_left_to_fill_in():
    assert not [query for _, query in asked() if "$" in query and "label_values" not in query]


@pytest.mark.programs
def test_prometheus_understands_every_query(tmp_path):
    queries = (query for title, query in asked() if "label_values" not in query)
    rules = [{"record": "asked", "expr": query} for query in queries]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": f"{n}", "rules": [rule]} for n, rule in enumerate(rules)]}))
    program = packages.metrics_programs(Progress())["promtool"]
    done = subprocess.run([program, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_answers_a_question_and_has_a_query(panel):
    assert panel["description"].endswith(("?", ")?"))
    assert all(target["expr"] for target in panel["targets"])


def test_panels_lie_side_by_side_and_do_not_overlap():
    taken = set()
    for panel in MODEL["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_every_query_has_a_name_of_its_own():
    assert len(dashboard.queries()) == sum(len(panel["targets"]) for panel in PANELS)


def test_panels_are_told_apart_by_number_and_title():
    assert len({panel["id"] for panel in MODEL["panels"]}) == len(MODEL["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
