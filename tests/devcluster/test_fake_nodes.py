"""Nodes that KWOK plays: the scheduler uses them, pods on them run and go at once, and they can be lost."""

import pytest

from devcluster import fakenodes, processes
from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from tests.devcluster.pods import apply, get, kubectl, make_pod, node_ready, wait_for
from tests.workers import control_plane

QUIET = Progress(quiet=True)

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cluster(pytestconfig):
    own = control_plane(pytestconfig)
    own.add_fake_nodes(2, gpus=3, labels={"pool": "small"}, progress=QUIET)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_for("the service account", lambda: own.api.get(account) is not None)
    yield own
    kubectl(own, "delete", "nodes", "k1", "k2", "big1", "--ignore-not-found", "--wait", "--timeout=60s")


def on_pool(pool, name, *, gpus):
    pod = make_pod(name, gpus=gpus)
    return {**pod, "spec": {**pod["spec"], "nodeSelector": {"pool": pool}}}


def running(cluster):
    """The nodes of the pods that run, by pod."""
    pods = cluster.api.get("/api/v1/namespaces/default/pods")["items"]
    return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if p["status"]["phase"] == "Running"}


def test_pods_run_up_to_their_gpus_and_those_deleted_make_room(cluster):
    apply(cluster, *(on_pool("small", name, gpus=3) for name in ("a", "b", "c")))
    wait_for("two pods to run", lambda: len(running(cluster)) == 2)
    before = running(cluster)
    assert set(before.values()) == {"k1", "k2"}
    gone, node = before.popitem()
    kubectl(cluster, "delete", "pod", gone, "--wait", "--timeout=60s")
    wait_for("the third pod to take its place", lambda: len(running(cluster)) == 2)
    assert node in (running(cluster)[name] for name in running(cluster).keys() - before.keys())
    kubectl(cluster, "delete", "pods", "--all", "--wait", "--timeout=60s")


def test_more_can_be_added_with_labels_of_their_own(cluster):
    assert cluster.add_fake_nodes(1, gpus=8, prefix="big", labels={"pool": "big"}, progress=QUIET) == ["big1"]
    apply(cluster, on_pool("big", "chosen", gpus=8))
    wait_for("it to run", lambda: running(cluster) == {"chosen": "big1"})
    kubectl(cluster, "delete", "pod", "chosen", "--wait", "--timeout=60s")


def test_adding_them_again_changes_nothing(cluster):
    before = get(cluster, "node", "k1")["metadata"]["uid"]
    assert cluster.add_fake_nodes(2, gpus=3, progress=QUIET) == ["k1", "k2"]
    assert get(cluster, "node", "k1")["metadata"]["uid"] == before
    assert len([process for process in processes.find(cluster.layout, fakenodes.PART) if process.leads]) == 1


@pytest.mark.extended
def test_they_are_lost_while_kwok_is_frozen_and_come_back(cluster):
    kwok = cluster.part("kwok")
    kwok.freeze()
    try:
        wait_for("a fake node to be missed", lambda: node_ready(cluster, "k1") == "Unknown", seconds=90)
    finally:
        kwok.thaw()
    wait_for("it to be back", lambda: node_ready(cluster, "k1") == "True", seconds=90)


def test_a_prefix_that_makes_names_of_real_nodes_is_refused(cluster):
    with pytest.raises(DevclusterError, match="prefix='n'"):
        cluster.add_fake_nodes(1, prefix="n", progress=QUIET)
