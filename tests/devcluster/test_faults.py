"""What the harness breaks is broken, and mended again it works, on a cluster of its own."""

from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from tests.devcluster.pods import (
    allocatable_gpus,
    apply,
    container_processes,
    get,
    kubectl,
    make_pod,
    node_ready,
    wait_for,
    wait_running,
)

NODE = "n1"
GPUS = 3

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def own_cluster():
    with Cluster.up("faults", nodes=1, gpus=GPUS, torch_tree="", progress=Progress(quiet=True)) as cluster:
        yield cluster


@pytest.fixture
def cluster(own_cluster):
    """The cluster without pods and with all its GPUs, whatever the former test did."""
    kubectl(own_cluster, "delete", "pods", "--all", "--namespace", "default", "--force", "--grace-period=0")
    # A pod that is deleted by force is gone from the API before its processes are.
    wait_for("former pods to end", lambda: container_processes(own_cluster, NODE) == [])
    own_cluster.node(NODE).set_sick([])
    own_cluster.wait_ready()
    return own_cluster


def environment_of(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")


def registrations(cluster):
    return (cluster.layout.logs / "n1-device-plugin.log").read_text().count("registered")


def test_a_container_is_told_its_gpus(cluster):
    apply(cluster, make_pod(gpus=2))
    wait_running(cluster, "pod")
    told = {line for pid in container_processes(cluster, NODE) for line in environment_of(pid) if "NVIDIA" in line}
    assert len(told) == 1
    gpus = told.pop().removeprefix("NVIDIA_VISIBLE_DEVICES=").split(",")
    assert len(gpus) == 2
    assert set(gpus) <= {f"n1-gpu-{index}" for index in range(GPUS)}


def test_sick_gpus_are_not_allocatable_until_they_are_healthy(cluster):
    cluster.node(NODE).set_sick([0, 2])
    wait_for("two GPUs to be gone", lambda: allocatable_gpus(cluster, NODE) == "1")
    cluster.node(NODE).set_sick([])
    wait_for("all GPUs to be back", lambda: allocatable_gpus(cluster, NODE) == str(GPUS))


def test_a_gpu_that_the_node_does_not_have_cannot_be_sick(cluster):
    with pytest.raises(DevclusterError, match=r"gpu=3: node n1 has GPUs 0 to 2"):
        cluster.node(NODE).set_sick([3])


def test_pods_outlive_their_kubelet_which_comes_back_with_all_gpus(cluster):
    apply(cluster, make_pod())
    wait_running(cluster, "pod")
    before = container_processes(cluster, NODE)
    registered = registrations(cluster)
    cluster.part("n1/kubelet").kill()
    cluster.part("n1/kubelet").restart()
    # Until then kubelet refuses pods that ask for GPUs (UnexpectedAdmissionError), here as everywhere.
    wait_for("the device plugin to register again", lambda: registrations(cluster) > registered)
    apply(cluster, make_pod("later", gpus=GPUS - 1))
    wait_running(cluster, "later")
    assert set(before) <= set(container_processes(cluster, NODE))


def test_a_killed_node_takes_its_pods_along_is_noticed_and_comes_back(cluster):
    apply(cluster, make_pod(tolerates_lost_nodes=True))
    wait_running(cluster, "pod")
    cluster.node(NODE).kill()
    assert container_processes(cluster, NODE) == []
    wait_for("the node to be missed", lambda: node_ready(cluster, NODE) == "Unknown")
    cluster.node(NODE).restart()
    cluster.wait_ready()
    apply(cluster, make_pod("later", gpus=1))
    wait_running(cluster, "later")


@pytest.mark.parametrize(("fault", "remedy"), [("freeze", "thaw"), ("cut_off", "heal")])
def test_a_node_that_does_not_answer_is_noticed_and_its_pods_live_on(cluster, fault, remedy):
    apply(cluster, make_pod(tolerates_lost_nodes=True))
    wait_running(cluster, "pod")
    before = container_processes(cluster, NODE)
    getattr(cluster.node(NODE), fault)()
    wait_for("the node to be missed", lambda: node_ready(cluster, NODE) == "Unknown")
    getattr(cluster.node(NODE), remedy)()
    wait_for("the node to be back", lambda: node_ready(cluster, NODE) == "True")
    assert container_processes(cluster, NODE) == before


@pytest.mark.parametrize("part", ["etcd", "apiserver"])
def test_what_was_stored_is_there_after_the_control_plane_was_killed(cluster, part):
    apply(cluster, make_pod())
    wait_running(cluster, "pod")
    cluster.part(part).kill()
    wait_for("the API server to be lost", lambda: not cluster.api.is_ready())
    cluster.part(part).restart()
    wait_for("the API server to be ready", cluster.api.is_ready)
    assert get(cluster, "pod", "pod")["status"]["phase"] == "Running"


def test_a_frozen_api_server_does_not_answer_until_it_is_thawed(cluster):
    apiserver = cluster.part("apiserver")
    apiserver.freeze()
    try:
        assert not cluster.api.is_ready(seconds=1.0)
    finally:
        apiserver.thaw()
    wait_for("the API server to be ready", cluster.api.is_ready)
