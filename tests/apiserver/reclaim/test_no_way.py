"""A pod that could not run even with the GPU costs nobody one, whatever kube-scheduler complains of first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.jobs import with_gpus
from tests.apiserver.faults.lab import World
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Observed

pytestmark = pytest.mark.apiserver


GREEDY = {"name": "greedy", "image": "local/none:1", "resources": {"requests": {"cpu": "60"}}}
APART = {"labelSelector": {"matchExpressions": [{"key": "elastic-pytorch.dev/job-name", "operator": "Exists"}]}}


def wait_in_vain(observed: Observed, world: World, pods: Notebooks, **spec: Any) -> None:
    """The pod lacks a GPU, by the scheduler's word, and something else. One that lacks nothing else gets its GPU."""
    losses = Losses(world.api, world.jobs.namespace)
    pods.create(**spec)
    # Its first word may be of what the scheduler has not heard of yet, such as the claim.
    lacks = "Insufficient nvidia.com/gpu"
    eventually(lacks, lambda: lacks in pods.unschedulable(), report=pods.unschedulable)
    observed.see_passes(world, 10)
    assert losses.names() == []
    assert observed.steps() == []
    pods.create("plain")
    node = pods.wait_bound("plain")
    world.wait_settled("toy", 7)
    assert len(losses.pods()) == 1
    observed.see_passes(world)
    assert [step for step in observed.steps() if step[0] != "delete"] == [("reserve", "plain", node)]
    assert not pods.node()


def test_a_pod_that_lacks_cpu_costs_nobody_a_gpu(observed: Observed, world: World, owner: Notebooks) -> None:
    for node in world.kubelets.nodes:
        owner.create(f"greedy-{node}", nodeName=node, containers=[GREEDY])
    needs = with_gpus(1, name="main", image="local/none:1")
    needs["resources"]["requests"] = {"cpu": "8"}
    wait_in_vain(observed, world, owner, containers=[needs])
    assert "Insufficient cpu" in owner.unschedulable()


@pytest.mark.extended
def test_a_pod_whose_volume_is_not_there_costs_nobody_a_gpu(observed: Observed, world: World, owner: Notebooks) -> None:
    klass = {
        "metadata": {"name": owner.namespace},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    accepted(world.api.post("/apis/storage.k8s.io/v1/storageclasses", json=klass))
    claim = {
        "storageClassName": owner.namespace,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claims = f"/api/v1/namespaces/{owner.namespace}/persistentvolumeclaims"
    accepted(world.api.post(claims, json={"metadata": {"name": "data"}, "spec": claim}))
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    wait_in_vain(observed, world, owner, volumes=[volume])


@pytest.mark.extended
def test_a_pod_that_must_be_apart_from_pods_on_each_node_costs_nobody_a_gpu(
    observed: Observed, world: World, owner: Notebooks
) -> None:
    term = {**APART, "topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wait_in_vain(observed, world, owner, affinity=anti)
