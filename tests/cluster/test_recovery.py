"""What a running job survives: lost pods and nodes, a new operator; and what of others changes nothing."""

import copy

import pytest

from tests.cluster.lab import OPERATOR_NAMESPACE
from tests.cluster.templates import command, foreign_pod, job, script

FORCE = ("--force", "--grace-period=0")
SERVICE_SLICE = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/toy-master"


def address_of(team, pod="toy-master-0"):
    return team.lab.get(f"/api/v1/namespaces/{team.name}/pods/{pod}")["status"]["podIP"]


def routed_to(team):
    """The addresses that the Service in front of the master leads to."""
    found = team.lab.get(SERVICE_SLICE.format(team.name)) or {}
    return [address for endpoint in found.get("endpoints") or [] for address in endpoint["addresses"]]


@pytest.mark.extended
def test_lost_workers_are_replaced_and_a_lost_master_increments_incarnation(team):
    team.apply(job(min=2, max=3, template=script()))
    team.wait_for("toy", "Running", pods=3)
    before = team.uids()
    losses = [("worker-0", (), "worker-1"), ("worker-1", FORCE, "master-0"), ("master-0", FORCE, "")]
    for restarts, (pod, options, stays) in enumerate(losses, start=1):
        team.delete_pod(f"toy-{pod}", *options)
        team.wait("the loss", lambda restarts=restarts: team.status()["restarts"] == restarts)
        status = team.wait_for("toy", "Running", pods=3)
        assert not stays or team.uids()[f"toy-{stays}"] == before[f"toy-{stays}"]
        incarnation = 1 if stays else 2
        assert (status["restarts"], status["incarnation"], status.get("failures", 0)) == (restarts, incarnation, 0)
    assert not set(before.values()) & set(team.uids().values())
    assert {"PodLost", "MasterReplaced"} <= set(team.events())
    team.wait("the Service to lead to the new master", lambda: routed_to(team) == [address_of(team)])


@pytest.mark.extended
def test_job_leaves_a_drained_node_without_a_failure_and_returns(team):
    team.apply(job(min=1, max=6))
    team.wait_for("toy", "Running", pods=6)
    home, away = team.nodes_of()[0], team.nodes_of()[-1]
    assert home != away
    with team.lab.cordoned(away):
        selector = "--pod-selector=elastic-pytorch.dev/job-name=toy"
        team.lab.kubectl("drain", away, selector, "--force", "--delete-emptydir-data", "--timeout=60s")
        team.wait_for("toy", "Running", pods=4, limited_by="InsufficientNodes")
        assert f"{away} is cordoned" in team.condition("FullSize")["message"]
    status = team.wait_for("toy", "Running", pods=6)
    assert status.get("failures", 0) == 0


@pytest.mark.extended
def test_foreign_pods_with_the_jobs_labels_change_nothing(team):
    team.apply(job(min=2, max=3, template=command(gpus=0)))
    status = team.wait_for("toy", "Running", pods=3)
    before, uid = team.uids(), team.job()["metadata"]["uid"]
    master = next(pod for pod in team.all_pods() if pod["metadata"]["name"] == "toy-master-0")
    twin = foreign_pod("twin", gpus=0)
    twin["metadata"]["labels"] = copy.deepcopy(master["metadata"]["labels"])
    forged = foreign_pod("toy-master-1", gpus=0)
    forged["metadata"]["labels"] = copy.deepcopy(master["metadata"]["labels"])
    owner = {"apiVersion": "elastic-pytorch.dev/v1beta1", "kind": "ElasticPyTorchJob", "name": "toy", "uid": uid}
    forged["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    team.apply(twin)
    refused = team.lab.try_kubectl("-n", team.name, "create", "-f", "-", objects=[forged])
    assert "only the operator says which ElasticPyTorchJob controls a pod" in refused.stderr
    team.kubectl("wait", "pod/twin", "--for=condition=Ready", "--timeout=60s")
    team.edit("toy", maxReplicas=2)
    team.wait_for("toy", "Running", pods=2)
    assert team.uids().items() <= before.items()
    now = team.status()
    assert (now["replicas"], now["worldSize"], now["restarts"], now["incarnation"]) == (2, 2, 0, status["incarnation"])
    assert routed_to(team) == [address_of(team)]
    assert team.kubectl("get", "pod", "twin", "-o", "jsonpath={.status.phase}") == "Running"


def test_job_continues_without_a_killed_node_and_uses_it_again(team):
    team.apply(job(min=1, max=6, recovery={"nodeLossSeconds": 5}))
    team.wait_for("toy", "Running", pods=6)
    victim = next(node for node in ("n2", "n1") if node != team.nodes_of()[0])
    there = team.nodes_of().count(victim)
    assert there
    with team.lab.killed(victim):
        team.wait("the loss of the node", lambda: "NodeLost" in team.events() and team.status()["restarts"] >= there)
        status = team.wait_for("toy", "Running", limited_by="InsufficientNodes")
        assert set(team.nodes_of()) == {"n1", "n2"} - {victim}
        assert (status["restarts"], status.get("failures", 0), status["incarnation"]) == (there, 0, 2)
    team.wait_for("toy", "Running", pods=6)


def test_new_operator_takes_over_without_touching_running_pods(team):
    team.apply(job(min=2, max=4), job("waits", min=8, max=8))
    team.wait_for("toy", "Running", pods=4)
    team.wait_for("waits", "Queued")
    before = team.uids()
    team.lab.kubectl("delete", "pods", "--all", "-n", OPERATOR_NAMESPACE, "--wait=false")
    team.kubectl("delete", "eptj", "waits")
    team.scale("toy", 3)
    status = team.wait_for("toy", "Running", pods=3)
    assert team.uids().items() <= before.items()
    assert (status["restarts"], status["incarnation"]) == (0, 1)
    team.lab.kubectl("rollout", "status", "deployments", "-n", OPERATOR_NAMESPACE, "--timeout=90s")
