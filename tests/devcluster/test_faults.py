"""What the harness breaks is broken, and mended again it works, on a cluster of its own.

That a node is off, GPUs are sick, a disk is full, an image is gone and two nodes are parted, a training feels in
`tests/cluster/test_faults_nodes.py` and `test_recovery.py`.
"""

import contextlib
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from devcluster import names, network
from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from tests.devcluster.pods import (
    allocatable_gpus,
    apply,
    container_processes,
    get,
    heartbeat,
    kubectl,
    make_pod,
    node_ready,
    wait_for,
    wait_running,
)

NODE, OTHER = "n1", "n2"
GPUS = 3
HOUR = 3600
ASK_FOR_A_NAME = """
import socket, sys
asked = socket.socket(type=socket.SOCK_DGRAM)
asked.settimeout(0.5)
asked.connect((sys.argv[1], 53))
asked.send(b"?")
asked.recv(1)
"""

pytestmark = [pytest.mark.extended, pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def own_cluster():
    with Cluster.up("faults", nodes=2, gpus=GPUS, torch_tree="", progress=Progress(quiet=True)) as cluster:
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
    """None of a process that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return []


def told_gpus(cluster):
    """What the programs in the node's containers are told of GPUs."""
    return {line for pid in container_processes(cluster, NODE) for line in environment_of(pid) if "NVIDIA" in line}


def registrations(cluster):
    return (cluster.layout.logs / "n1-device-plugin.log").read_text().count("registered")


def test_a_container_is_told_its_gpus(cluster):
    apply(cluster, make_pod(node=NODE, gpus=2))
    wait_running(cluster, "pod")
    wait_for("the program to be executed", lambda: told_gpus(cluster))  # running it is a moment earlier
    told = told_gpus(cluster)
    assert len(told) == 1
    gpus = told.pop().removeprefix("NVIDIA_VISIBLE_DEVICES=").split(",")
    assert len(gpus) == 2
    assert set(gpus) <= {f"n1-gpu-{index}" for index in range(GPUS)}


def has_all_gpus(cluster):
    return allocatable_gpus(cluster, NODE) == str(GPUS)


def test_a_gpu_that_the_node_does_not_have_cannot_be_sick(cluster):
    with pytest.raises(DevclusterError, match=r"gpu=3: node n1 has GPUs 0 to 2"):
        cluster.node(NODE).set_sick([3])


def test_pods_outlive_their_kubelet_which_comes_back_with_all_gpus(cluster):
    apply(cluster, make_pod(node=NODE))
    wait_running(cluster, "pod")
    before = container_processes(cluster, NODE)
    assert before
    registered = registrations(cluster)
    cluster.part("n1/kubelet").kill()
    cluster.part("n1/kubelet").restart()
    # Until then kubelet refuses pods that ask for GPUs (UnexpectedAdmissionError), here as everywhere.
    wait_for("the device plugin to register again", lambda: registrations(cluster) > registered)
    since = datetime.now(UTC)
    wait_for("a node that says so", lambda: heartbeat(cluster, NODE) > since and has_all_gpus(cluster))
    apply(cluster, make_pod("later", node=NODE, gpus=GPUS - 1))
    wait_running(cluster, "later")
    assert set(before) <= set(container_processes(cluster, NODE))


@pytest.mark.parametrize(("fault", "remedy"), [("freeze", "thaw"), ("cut_off", "heal")])
def test_a_node_that_does_not_answer_is_noticed_and_its_pods_live_on(cluster, fault, remedy):
    apply(cluster, make_pod(node=NODE, tolerates_lost_nodes=True))
    wait_running(cluster, "pod")
    before = container_processes(cluster, NODE)
    assert before
    getattr(cluster.node(NODE), fault)()
    wait_for("the node to be missed", lambda: node_ready(cluster, NODE) == "Unknown")
    getattr(cluster.node(NODE), remedy)()
    wait_for("the node to be back", lambda: node_ready(cluster, NODE) == "True")
    assert container_processes(cluster, NODE) == before


@pytest.mark.parametrize("part", ["etcd", "apiserver"])
def test_what_was_stored_is_there_after_the_control_plane_was_killed(cluster, part):
    apply(cluster, make_pod(node=NODE))
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


def test_an_image_that_a_node_does_not_have_cannot_be_taken(cluster):
    with pytest.raises(DevclusterError, match=r"docker.io/local/none:1.*no such image; it has: .*local/pause:1"):
        cluster.node(NODE).take_image("docker.io/local/none:1")


def test_a_node_is_not_parted_from_itself(cluster):
    with pytest.raises(DevclusterError, match="another node than n1"):
        cluster.node(NODE).part_from(NODE)


def test_look_ups_are_refused_at_once_or_not_answered_at_all(cluster):
    assert "ConnectionRefusedError" in look_up(cluster)
    cluster.node(NODE).silence_dns()
    assert "TimeoutError" in look_up(cluster)
    cluster.node(NODE).refuse_dns()
    assert "ConnectionRefusedError" in look_up(cluster)


def look_up(cluster):
    enter = ("nsenter", "--target", str(network.anchor(cluster.layout, NODE)), "--net")
    command = [*enter, "python3", "-c", ASK_FOR_A_NAME, names.BRIDGE_ADDRESS]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_the_clock_of_a_node_is_set_and_no_other_is(cluster):
    cluster.node(NODE).set_clock(HOUR)
    wait_for("a lease that is renewed in an hour", lambda: clock_of(cluster, NODE) > HOUR / 2)
    assert clock_of(cluster, OTHER) < HOUR / 2
    cluster.node(NODE).set_clock(0)
    wait_for("a lease that is renewed now", lambda: clock_of(cluster, NODE) < HOUR / 2)


def clock_of(cluster, node):
    """Seconds by which it was ahead when its kubelet last renewed the node's lease."""
    lease = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}")
    return datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp() - time.time()
