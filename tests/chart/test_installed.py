"""What the chart does on a real API server: what it grants, what its namespace accepts, and what outlives it."""

import json
import time

import pytest

from tests.chart.rendering import ROOT

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

JOBS = sorted((ROOT / "examples").glob("*/job.yaml"))
EXAMPLE = ROOT / "examples" / "fixed-size" / "job.yaml"
WAIT_SECONDS = 30


def wait_until(condition) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    return False


@pytest.mark.parametrize(
    ("verb", "resource", "subresource"),
    [
        ("watch", "elasticpytorchjobs", ""),
        ("delete", "elasticpytorchjobs", ""),
        ("patch", "elasticpytorchjobs", "status"),
        ("update", "elasticpytorchjobs", "finalizers"),
        ("create", "pods", ""),
        ("delete", "pods", ""),
        ("patch", "pods", ""),
        ("create", "secrets", ""),
        ("get", "pods", "log"),
        ("patch", "services", ""),
        ("create", "endpointslices.discovery.k8s.io", ""),
        ("patch", "events.events.k8s.io", ""),
        ("list", "persistentvolumeclaims", ""),
    ],
)
def test_the_operator_may_serve_jobs_in_any_namespace(release, verb, resource, subresource):
    assert release.operator_may(verb, resource, subresource=subresource, namespace="default")


@pytest.mark.parametrize("resource", ["nodes", "namespaces", "persistentvolumes", "priorityclasses"])
def test_the_operator_may_watch_the_cluster(release, resource):
    assert release.operator_may("watch", resource, namespace="")


@pytest.mark.parametrize(
    ("verb", "resource", "namespace"),
    [
        ("patch", "elasticpytorchjobs", "default"),
        ("create", "elasticpytorchjobs", "default"),
        ("get", "secrets", "default"),
        ("list", "secrets", "default"),
        ("delete", "secrets", "default"),
        ("get", "configmaps", "elastic-system"),
        ("create", "leases.coordination.k8s.io", "default"),
        ("patch", "nodes", ""),
        ("list", "customresourcedefinitions", ""),
        ("delete", "namespaces", ""),
    ],
)
def test_the_operator_may_do_no_more(release, verb, resource, namespace):
    assert not release.operator_may(verb, resource, namespace=namespace)


@pytest.mark.parametrize("verb", ["get", "create", "update"])
def test_the_operator_may_elect_a_leader_beside_itself(release, verb):
    assert release.operator_may(verb, "leases.coordination.k8s.io", namespace="elastic-system")


@pytest.mark.parametrize(
    ("role", "may_write"),
    [("view", False), ("edit", True), ("admin", True)],
)
def test_users_of_a_namespace_get_jobs_with_the_clusters_own_roles(release, role, may_write):
    user = f"a-{role}"
    release.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}", "--namespace=default")
    # Aggregation is the work of a controller.
    assert wait_until(lambda: release.may(user, "watch", "elasticpytorchjobs", namespace="default"))
    assert wait_until(lambda: release.may(user, "create", "elasticpytorchjobs", namespace="default") is may_write)
    assert release.may(user, "patch", "elasticpytorchjobs", subresource="scale", namespace="default") is may_write
    assert not release.may(user, "patch", "elasticpytorchjobs", subresource="status", namespace="default")


def test_the_operators_pods_are_accepted_under_the_restricted_standard(release):
    def pods():
        return json.loads(release.kubectl("get", "pods", "--namespace=elastic-system", "--output=json"))["items"]

    assert wait_until(lambda: len(pods()) == 2)


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
