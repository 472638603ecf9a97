"""One training in Elastic mode and what most often befalls one: a drain, a lost master, an owner, prying neighbours.

One job goes through all of it: a test begins with a training on both nodes, and leaves it so.
"""

import pytest

from tests.cluster.harm import Shared
from tests.cluster.policies import guaranteed
from tests.cluster.templates import foreign_pod
from tests.network.scene import Scene

pytestmark = pytest.mark.timeout(400)
FORCE = ("--force", "--grace-period=0")
GPUS_OF_A_POD = 2
"""A node with four GPUs takes two pods; of three there are two on one node, and one on the other."""


@pytest.fixture(scope="module")
def shared(lab):
    with Shared(lab, pods=3, gpus=GPUS_OF_A_POD) as found:
        yield found


@pytest.fixture
def training(shared, has_failed):
    with shared.lent(has_failed) as spread:
        yield spread


def test_drain_costs_no_epoch_and_a_short_partition_no_pod(training):
    with training.cut_off():
        training.trains(2)
    training.trains(3)
    assert training.team.uids() == training.pods
    repeated = training.epochs_repeated()
    with training.lab.cordoned(training.away):
        training.lab.kubectl("drain", training.away, *ITS_PODS, "--force", "--delete-emptydir-data", "--timeout=60s")
        training.trains(2)
        assert training.epochs_repeated() == repeated
    training.trains(3)
    assert training.epochs_repeated() == repeated
    assert training.team.uids()["toy-master-0"] == training.pods["toy-master-0"]
    assert training.team.status()["masterEpoch"] == training.before["masterEpoch"]


ITS_PODS = ("--pod-selector", "elastic-pytorch.dev/job-name=toy")


def test_deleted_master_is_replaced_and_workers_stay(training):
    first = training.before["masterEpoch"]
    for epoch, options in ((first + 1, ()), (first + 2, FORCE)):
        training.team.delete_pod("toy-master-0", *options)
        training.trains(3)
        assert training.group[0] == epoch
        assert workers(training.team.uids()) == workers(training.pods)
    status = training.team.wait_for("toy", "Running", pods=3)
    assert (status["incarnation"], status["masterEpoch"], status.get("failures", 0)) == (1, first + 2, 0)
    assert "MasterReplaced" in training.team.events()


def workers(uids):
    return {name: uid for name, uid in uids.items() if "worker" in name}


def test_reclaim_takes_one_borrowing_worker_and_loses_no_step(training, team):
    borrower, owner = training.team, team
    with guaranteed({borrower: GPUS_OF_A_POD, owner: 8 - GPUS_OF_A_POD}):
        training.training.goes_on()
        assert borrower.uids() == training.pods, "a right that nobody uses costs nobody a GPU"
        owner.apply(foreign_pod("notebook", gpus=GPUS_OF_A_POD))
        training.trains(2)
        owner.kubectl("wait", "pod/notebook", "--for=condition=Ready", "--timeout=60s")
        borrower.wait_for("toy", "Running", pods=2)
        assert borrower.uids().items() <= training.pods.items()
        (taken,) = borrower.wait("what it cost", lambda: reclaims(borrower))
        assert (taken["from"], taken["to"], taken["lostSteps"]) == (3, 2, 0)
        assert f"{owner.name}/notebook" in taken["message"]
        assert "QuotaReclaimed" in borrower.events()
        owner.kubectl("delete", "pod", "notebook")
        training.trains(3)
        assert training.epochs_repeated() == 0
        assert training.team.uids()["toy-master-0"] == training.pods["toy-master-0"]


def reclaims(team):
    """What was taken from the training, once the operator has heard from it what each time cost."""
    found = [change for change in team.status()["history"] if change["reason"] == "QuotaReclaimed"]
    return found if all("pauseSeconds" in change for change in found) else []


def test_a_job_trains_behind_its_policy_and_is_reached_by_nobody_but_itself_and_the_operator(training, team):
    scene = Scene(training.training, team)
    try:
        scene.come_to_be_behind(["Ingress"])
        team.wait("the operator to see steps", scene.step)
        scene.is_reached_by_nobody_else()
    finally:
        scene.is_removed()
