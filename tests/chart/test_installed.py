"""What the chart does on a real API server: what it grants, what its namespace accepts, and what outlives it."""

import json

import pytest
import yaml

from tests.chart.rendering import CASES, CHART, ROOT, WITHOUT_CRDS, case_file, helm, render
from tests.kit.wait import until

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

JOBS = sorted((ROOT / "examples").glob("*/job.yaml"))
RELEASED = sorted((ROOT / "tests" / "chart" / "released").glob("*.tgz"))[-1]
EXAMPLE = ROOT / "examples" / "fixed-size" / "job.yaml"
OURS = "elasticpytorchjobs.elastic-pytorch.dev"
WAIT_SECONDS = 30


@pytest.mark.parametrize(
    ("verb", "resource", "subresource"),
    [
        ("watch", OURS, ""),
        ("delete", OURS, ""),
        ("patch", OURS, "status"),
        ("create", "pods", ""),
        ("delete", "pods", ""),
        ("patch", "pods", ""),
        ("create", "secrets", ""),
        ("get", "pods", "log"),
        ("create", "services", ""),
        ("create", "endpointslices.discovery.k8s.io", ""),
        ("patch", "events.events.k8s.io", ""),
        ("list", "persistentvolumeclaims", ""),
    ],
)
def test_the_operator_may_serve_jobs_in_any_namespace(release, verb, resource, subresource):
    assert release.operator_may(verb, resource, subresource=subresource, namespace="default")


@pytest.mark.parametrize("resource", ["nodes", "namespaces", "persistentvolumes", "priorityclasses.scheduling.k8s.io"])
def test_the_operator_may_watch_the_cluster(release, resource):
    assert release.operator_may("watch", resource, namespace="")


@pytest.mark.parametrize(
    ("verb", "resource", "namespace"),
    [
        ("patch", OURS, "default"),
        ("create", OURS, "default"),
        ("get", "secrets", "default"),
        ("list", "secrets", "default"),
        ("delete", "secrets", "default"),
        ("get", "configmaps", "elastic-system"),
        ("create", "leases.coordination.k8s.io", "default"),
        ("delete", "services", "default"),
        ("patch", "nodes", ""),
        ("list", "customresourcedefinitions.apiextensions.k8s.io", ""),
        ("delete", "namespaces", ""),
    ],
)
def test_the_operator_may_do_no_more(release, verb, resource, namespace):
    assert not release.operator_may(verb, resource, namespace=namespace)


def test_the_operator_may_write_no_other_lease_and_only_patch_a_status(release):
    lease = "leases.coordination.k8s.io"
    assert not release.operator_may("update", lease, name="another", namespace="elastic-system")
    assert not release.operator_may("update", OURS, subresource="status", namespace="default")


@pytest.mark.parametrize("verb", ["get", "create", "update"])
def test_the_operator_may_elect_a_leader_beside_itself(release, verb):
    name = "" if verb == "create" else "elastic-operator"
    assert release.operator_may(verb, "leases.coordination.k8s.io", name=name, namespace="elastic-system")


@pytest.mark.parametrize(
    ("role", "may_write"),
    [("view", False), ("edit", True), ("admin", True)],
)
def test_users_of_a_namespace_get_jobs_with_the_clusters_own_roles(release, role, may_write):
    user = f"a-{role}"
    release.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}", "--namespace=default")
    # Aggregation is the work of a controller.
    for verb, may in (("watch", True), ("create", may_write)):
        until(
            f"{may} for {verb}",
            lambda verb=verb, may=may: release.may(user, verb, OURS, namespace="default") is may,
            seconds=WAIT_SECONDS,
        )
    assert release.may(user, "patch", OURS, subresource="scale", namespace="default") is may_write
    assert not release.may(user, "patch", OURS, subresource="status", namespace="default")


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
    assert not release.operator_may("create", "pods", namespace="kube-public")
    release.rollback()
    assert release.operator_may("create", "pods", namespace="kube-public")
    release.uninstall()
    assert uid() == before
    release.install()
    assert uid() == before
