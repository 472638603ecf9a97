"""What happens to a training when something happens to one of its nodes, or to what its pods need of it.

One job goes through all of it: a test begins with a training on both nodes, and leaves it so.
"""

from datetime import datetime

import pytest

from devcluster import images
from devcluster.progress import Progress
from elastic_api.job import PLURAL
from tests.cluster.harm import IMAGE, Shared
from tests.cluster.lab import wait
from tests.cluster.templates import command, job

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400)]
WHOLE_NODE = 4
"""GPUs of a pod."""
HALF_AN_HOUR = 1800
UNTIL_TOLD_TO_GO = "trap 'exit 0' TERM; while true; do sleep 0.2; done"


@pytest.fixture(scope="module")
def shared(lab):
    with Shared(lab, pods=2, gpus=WHOLE_NODE) as found:
        yield found


@pytest.fixture
def training(shared, has_failed):
    """Two pods train, one on each node, and do so again in the end, with the same master."""
    with shared.lent(has_failed) as spread:
        yield spread
        assert has_failed() or spread.team.uids()["toy-master-0"] == spread.pods["toy-master-0"]


def test_kubelet_restart_does_not_disturb_the_training(training):
    training.part("kubelet").kill()
    training.node_says("Ready", "Unknown")
    assert training.is_untouched()
    assert training.team.column("STATUS") == "Running"
    training.part("kubelet").restart()
    training.node_says("Ready", "True")
    training.takes_pods("after-kubelet")
    assert training.is_untouched()


def test_containerd_restart_does_not_disturb_the_training(training):
    training.part("containerd").kill()
    assert training.is_untouched()
    training.part("containerd").restart()
    training.takes_pods("after-containerd")
    assert training.is_untouched()


def test_unhealthy_gpus_end_no_pod_and_get_no_new_ones(training):
    training.node().set_sick(range(WHOLE_NODE))
    training.team.wait("no GPU of the node to be had", lambda: gpus(training) == "0")
    assert training.is_untouched()
    training.worker_told_to_go()
    training.trains(1)
    training.team.wait_for("toy", "Running", pods=1, limited_by="InsufficientNodes")
    training.says("FullSize", "have 0 of 4 GPUs free")
    training.node().set_sick([])
    training.trains(2)
    assert training.epochs_repeated() == 0


def gpus(training):
    node = training.lab.get(f"/api/v1/nodes/{training.away}")
    return node["status"]["allocatable"]["nvidia.com/gpu"]


def test_missing_image_is_reported_and_other_pods_continue(training):
    training.node().take_image(IMAGE)
    assert training.is_untouched()
    training.worker_told_to_go()
    training.trains(1)
    told = training.says("Ready", "1 of 2 pods runs. toy-worker-", "ImagePull", IMAGE)
    assert told["reason"] == "Degraded"
    training.node().give_image(images.base(Progress(quiet=True)).archive)
    training.trains(2)
    assert training.epochs_repeated() == 0


def test_disk_pressure_moves_pods_until_the_disk_has_room(training):
    training.lab.move_operator_off(training.away)
    training.node().fill_disk()
    training.trains(1)
    training.node_says("DiskPressure", "True")
    # The others train on as soon as the kubelet tells the pod to end; the job says why once it has ended.
    why = "The node was low on resource: ephemeral-storage"
    wait("the loss in the job's history", lambda: why in lost(training))
    training.team.scale("toy", 1)  # a pod made before the node was known to be closed would wait for the scheduler
    training.team.wait_for("toy", "Running", pods=1)
    training.team.scale("toy", 2)
    told = training.says("FullSize", f"{training.away} is under DiskPressure")
    assert told["reason"] == "InsufficientNodes"
    training.node().free_disk()
    training.trains(2)
    assert training.epochs_repeated() <= 1


def lost(training):
    """What the job says of the pods that it lost."""
    return " ".join(change["message"] for change in training.team.status()["history"] if change["reason"] == "PodLost")


def test_node_that_flaps_three_times_costs_at_most_one_epoch(training):
    for _ in range(3):
        training.node().kill()
        training.node().restart()
    training.lab.wait_ready()
    training.trains(2)
    assert training.epochs_repeated() <= 1


def test_job_grows_without_dns(training):
    training.team.scale("toy", 1)
    training.trains(1)
    nodes = [training.lab.cluster.node(node) for node in (training.home, training.away)]
    for node in nodes:
        node.silence_dns()
    training.team.scale("toy", 2)
    training.trains(2)
    for node in nodes:
        node.refuse_dns()
    assert training.epochs_repeated() == 0


def test_training_pauses_during_a_partition_of_two_nodes(training):
    training.lab.move_operator_off(training.away)  # the one that leads still reaches the master
    training.node().part_from(training.home)
    told = training.says("Ready", "only 1 of the 2 pods", "the others may be training; it goes on when they return")
    assert told["reason"] == "Rendezvousing"
    training.node().join(training.home)
    training.trains(2)
    assert training.team.uids() == training.pods
    assert training.epochs_repeated() <= 1


@pytest.mark.parametrize("seconds", [-HALF_AN_HOUR, HALF_AN_HOUR], ids=["behind", "ahead"])
def test_wrong_clock_of_a_node_ends_and_fails_no_job(training, seconds):
    team = training.team
    training.node().set_clock(seconds)
    team.scale("toy", 1)
    training.trains(1)
    team.scale("toy", 2)
    training.trains(2)
    stays = {"nodeSelector": {"kubernetes.io/hostname": training.away}}
    team.apply(job("other", min=2, max=2, template=command(UNTIL_TOLD_TO_GO, gpus=0, pod=stays)))
    team.wait_for("other", "Running", pods=2)
    training.node().set_clock(seconds)  # of what was started since, too
    assert abs(seconds_until_seen(team.all_pods("other")[0]) - seconds) < HALF_AN_HOUR / 2
    team.delete_pod("other-master-0")
    team.wait("another master", lambda: team.status("other")["incarnation"] == 2)
    status = team.wait_for("other", "Running", pods=2)
    assert (status["restarts"], status.get("failures", 0)) == (1, 0)
    team.kubectl("delete", PLURAL, "other")
    assert training.epochs_repeated() == 0
    training.node().set_clock(0)


def seconds_until_seen(pod):
    """From its creation, as the API server wrote it, until its kubelet saw it, as that wrote it."""
    made, seen = pod["metadata"]["creationTimestamp"], pod["status"]["startTime"]
    return (datetime.fromisoformat(seen) - datetime.fromisoformat(made)).total_seconds()
