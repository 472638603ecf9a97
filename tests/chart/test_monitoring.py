"""What the chart installs to be seen by, and what it lets through to itself."""

import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version

import pytest

from elastic_worker.contract import LABEL_JOB_UID, STATUS_PORT
from tests.chart.rendering import CHART, WITH_PROMETHEUS, WITHOUT_CRDS, helm, objects, render

pytestmark = pytest.mark.programs

VERSION = version("elastic-pytorch-operator")
KINDS = {"metrics.podMonitor": "PodMonitor", "metrics.prometheusRule": "PrometheusRule"}


@pytest.mark.parametrize(("value", "kind"), KINDS.items())
def test_what_is_automatic_is_there_where_the_cluster_serves_it(value, kind):
    assert objects(*WITHOUT_CRDS, *WITH_PROMETHEUS, kind=kind)
    assert not objects(*WITHOUT_CRDS, kind=kind)
    assert objects(*WITHOUT_CRDS, "--set", f"{value}.enabled=true", kind=kind)
    assert not objects(*WITHOUT_CRDS, *WITH_PROMETHEUS, "--set", f"{value}.enabled=false", kind=kind)


def test_the_dashboard_is_there_where_something_can_fill_it():
    def dashboards(*flags):
        return [
            o for o in objects(*WITHOUT_CRDS, *flags, kind="ConfigMap") if o["metadata"]["name"].endswith("dashboard")
        ]

    assert not dashboards()
    (config_map,) = dashboards(*WITH_PROMETHEUS)
    assert config_map["data"]["elastic-pytorch.json"].strip() == (CHART / "files/dashboard.json").read_text().strip()


def test_a_release_is_scraped_once():
    result = helm("template", CHART, *WITHOUT_CRDS, *WITH_PROMETHEUS, "--set", "metrics.serviceMonitor.enabled=true")
    assert result.returncode != 0
    assert "metrics.podMonitor and metrics.serviceMonitor would both scrape" in result.stderr


def test_a_service_monitor_needs_the_service():
    chosen = "metrics.podMonitor.enabled=false,metrics.serviceMonitor.enabled=true,metrics.service.enabled=false"
    result = helm("template", CHART, *WITHOUT_CRDS, "--set", chosen)
    assert "metrics.serviceMonitor needs the Service" in result.stderr


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_the_operators_own_labels_win_because_they_name_training_jobs(kind):
    chosen = "metrics.podMonitor.enabled=false,metrics.serviceMonitor.enabled=true" if kind == "ServiceMonitor" else ""
    (monitor,) = objects(*WITHOUT_CRDS, *WITH_PROMETHEUS, "--set", chosen, kind=kind)
    (endpoint,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True


def test_what_selects_the_operators_pods_selects_them_and_not_the_test():
    flags = (*WITHOUT_CRDS, *WITH_PROMETHEUS, "--set", "networkPolicy.enabled=true")
    (deployment,) = objects(*flags, kind="Deployment")
    (tester,) = objects(*flags, kind="Pod")
    (service,) = objects(*flags, kind="Service")
    (budget,) = objects(*flags, kind="PodDisruptionBudget")
    (policy,) = objects(*flags, kind="NetworkPolicy")
    (monitor,) = objects(*flags, kind="PodMonitor")
    selectors = [
        service["spec"]["selector"],
        deployment["spec"]["selector"]["matchLabels"],
        budget["spec"]["selector"]["matchLabels"],
        policy["spec"]["podSelector"]["matchLabels"],
        monitor["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
        assert not selector.items() <= tester["metadata"]["labels"].items()


def test_the_operator_may_connect_to_dns_the_api_server_and_the_state_of_jobs():
    (policy,) = objects(*WITHOUT_CRDS, "--set", "networkPolicy.enabled=true", kind="NetworkPolicy")
    dns, api, jobs = policy["spec"]["egress"]
    assert {(port["port"], port["protocol"]) for port in dns["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert [port["port"] for port in api["ports"]] == [443, 6443]
    assert jobs["ports"] == [{"port": STATUS_PORT}]
    assert jobs["to"] == [
        {
            "namespaceSelector": {},
            "podSelector": {"matchExpressions": [{"key": LABEL_JOB_UID, "operator": "Exists"}]},
        }
    ]


def test_whoever_is_named_and_the_test_may_read_metrics():
    def peers(*flags):
        (policy,) = objects(*WITHOUT_CRDS, "--set", "networkPolicy.enabled=true", *flags, kind="NetworkPolicy")
        (rule,) = policy["spec"]["ingress"]
        return rule.get("from")

    assert peers() is None
    named, tester = peers("--set", "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus")
    assert named == {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    (pod,) = objects(*WITHOUT_CRDS, kind="Pod")
    assert tester["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_the_tests_pod_meets_the_restricted_standard_and_has_no_rights():
    (pod,) = objects(*WITHOUT_CRDS, kind="Pod")
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "helm.sh/hook-delete-policy" in pod["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("body", "passes"), [('elastic_pytorch_build_info{version="1"} 1.0\n', True), ("other_build_info 1.0\n", False)]
)
def test_the_test_passes_where_an_operator_answers_and_nowhere_else(body, passes):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            """Nothing."""

    (pod,) = objects(*WITHOUT_CRDS, kind="Pod")
    (container,) = pod["spec"]["containers"]
    script, name = container["args"]
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = os.environ | {f"{name}_SERVICE_HOST": "127.0.0.1", f"{name}_SERVICE_PORT": str(server.server_port)}
        done = subprocess.run(
            [sys.executable, "-c", script, name], env=env, capture_output=True, text=True, check=False
        )
        server.shutdown()
    assert (done.returncode == 0) is passes, done.stderr


def test_every_object_says_its_version_and_has_the_sites_labels():
    chosen = ("--set", "commonLabels.cost-center=research,networkPolicy.enabled=true")
    for text in render(*chosen, *WITH_PROMETHEUS).split("\n---\n"):
        if "\nkind:" in text:
            assert re.search(rf'app.kubernetes.io/version: "?{re.escape(VERSION)}"?$', text, re.MULTILINE), text
            assert "cost-center:" in text


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("crds.enabled=false", "apply them before the first job"),
        ("replicaCount=1", "No replica is on standby"),
        ("settings.reclaim.mode=DryRun", "settings.reclaim.mode=DryRun"),
        ("settings.reclaim.paused=true", "settings.reclaim.paused"),
        ("rbac.reclaimForForeignPods=false", "for elastic jobs only"),
        ("rbac.create=false", "granted the operator no rights"),
        ("admission.enabled=false", "admission.enabled=false"),
        ("fullnameOverride=x", "No Prometheus operator was found"),
    ],
)
def test_the_notes_tell_what_is_off(chosen, told):
    result = helm("install", "any", CHART, "--dry-run=client", "--set", chosen)
    notes = result.stdout.partition("NOTES:")[2]
    assert told in notes, result.stderr
    assert (told in helm("install", "any", CHART, "--dry-run=client").stdout.partition("NOTES:")[2]) is (
        "Prometheus" in told
    )
