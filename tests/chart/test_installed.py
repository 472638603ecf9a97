"""What the chart does on a real API server: what its namespace accepts, and what outlives it."""

import json

import pytest
import yaml

from tests.chart.rendering import CASES, CHART, ROOT, WITHOUT_CRDS, case_file, helm, render
from tests.kit.wait import until

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

JOBS = sorted((ROOT / "examples").glob("*/job.yaml"))
RELEASED = sorted((ROOT / "tests" / "chart" / "released").glob("*.tgz"))[-1]
EXAMPLE = ROOT / "examples" / "fixed-size" / "job.yaml"
WAIT_SECONDS = 30


def test_the_operators_pods_are_accepted_under_the_restricted_standard(release):
    def pods():
        return json.loads(release.kubectl("get", "pods", "--namespace=elastic-system", "--output=json"))["items"]

    until("both pods", lambda: len(pods()) == 2, seconds=WAIT_SECONDS, report=pods)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.parent.name)
def test_the_examples_are_accepted(release, path):
    release.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", path)


def test_the_toy_is_one_command(release):
    made = release.kubectl("apply", "--dry-run=server", "--kustomize", ROOT / "examples" / "toy")
    assert [line.split("/")[0] for line in made.splitlines()] == [
        "configmap",
        "persistentvolumeclaim",
        "elasticpytorchjob.elastic-pytorch.dev",
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_api_server_accepts_what_each_case_renders(release, case, tmp_path):
    for namespace in ("team-a", "team-b"):
        release.try_kubectl("create", "namespace", namespace)
    rendered = yaml.safe_load_all(render("--values", case_file(case), *WITHOUT_CRDS))
    # The Prometheus operator is not there.
    served = [o for o in rendered if o and not o["apiVersion"].startswith("monitoring.coreos.com/")]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(served))
    release.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", file)


def test_the_plain_manifests_are_accepted(release):
    flags = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    release.kubectl("apply", *flags, "--filename", ROOT / "manifests" / "install.yaml")


@pytest.mark.parametrize(("name", "namespace"), [("another", "elastic-system"), ("elastic-pytorch", "default")])
def test_a_second_release_is_refused_and_told_where_the_first_one_is(release, name, namespace):
    place = ("--namespace", namespace, "--kubeconfig", release.kubeconfig)
    result = helm("install", name, CHART, *place, *WITHOUT_CRDS)
    assert result.returncode != 0
    assert 'has the release "elastic-pytorch" in the namespace "elastic-system" already' in result.stderr
    assert "helm uninstall elastic-pytorch --namespace elastic-system" in result.stderr


def test_the_chart_that_was_published_last_is_upgraded_and_keeps_what_was_set(release):
    release.uninstall()
    place = ("--namespace", release.namespace, "--kubeconfig", release.kubeconfig)
    installed = helm("install", release.name, RELEASED, *place, "--set", "replicaCount=3")
    assert installed.returncode == 0, installed.stderr
    release.upgrade("--reset-then-reuse-values")
    replicas = "--output=jsonpath={.spec.replicas}"
    assert release.kubectl("get", "deployment", "elastic-pytorch-operator", "-n", release.namespace, replicas) == "3"
    release.uninstall()
    release.install()


def test_jobs_live_through_upgrade_rollback_uninstall_and_a_new_installation(release):
    def uid():
        return release.kubectl("get", "elasticpytorchjob", "fixed-size", "--output=jsonpath={.metadata.uid}")

    release.kubectl("apply", "--filename", EXAMPLE)
    before = uid()
    release.upgrade("--set", "settings.logging.level=debug,settings.watchNamespaces={default}")
    assert not release.operator_serves("kube-public")
    release.rollback()
    assert release.operator_serves("kube-public")
    release.uninstall()
    assert uid() == before
    release.install()
    assert uid() == before
