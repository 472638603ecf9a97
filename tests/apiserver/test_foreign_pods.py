"""Pods that a real kube-scheduler finds no node for are what an autoscaler adds nodes for; then they run there.

What else becomes of them is told in `tests/virtual/test_turns_and_nodes.py` and `tests/plan/provision`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import Operators, eventually

pytestmark = pytest.mark.apiserver

POOL = {"pool": "autoscaled"}
SETTINGS = {"ELASTIC_OPERATOR_PROVISIONING": "PendingPods", "ELASTIC_OPERATOR_PROVISIONING_DELAY_SECONDS": "1"}


@pytest.fixture
def grow(cluster: Cluster, api: httpx.Client) -> Iterator[Callable[[int], None]]:
    """Has the pool of KWOK's nodes have so many nodes of two GPUs; they go with the test."""
    nodes: list[str] = []

    def to(count: int) -> None:
        nodes[:] = cluster.add_fake_nodes(
            count, gpus=2, prefix="autoscaled", labels=POOL, progress=Progress(quiet=True)
        )

    yield to
    for node in nodes:
        api.delete(f"/api/v1/nodes/{node}").raise_for_status()


def asks(pod: dict[str, Any]) -> bool:
    """Whether it makes an autoscaler add nodes: pinned to none, and kube-scheduler says of it that no node suits."""
    reasons = [c.get("reason") for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled"]
    return reasons == ["Unschedulable"] and "affinity" not in pod["spec"]


def test_a_job_runs_on_the_node_that_an_autoscaler_adds_for_its_pods(
    operators: Operators, world: World, grow: Callable[[int], None]
) -> None:
    operators.start(environ=SETTINGS)
    job = elastic_job(small=2, big=4)
    job["spec"]["template"]["spec"]["nodeSelector"] = POOL
    world.start(job)

    def uids(*, asking: bool = False) -> dict[str, str]:
        pods = [pod for pod in world.pods("toy") if asks(pod) or not asking]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}

    def told(type_: str) -> dict[str, str]:
        return next((c for c in world.status().get("conditions", []) if c["type"] == type_), {})

    def events() -> set[str]:
        path = f"/apis/events.k8s.io/v1/namespaces/{world.jobs.namespace}/events"
        return {event["reason"] for event in world.api.get(path).raise_for_status().json()["items"]}

    waiting = eventually("2 that ask", lambda: len(found := uids(asking=True)) == 2 and found, report=world.report)
    assert sorted(waiting) == ["toy-master-0", "toy-worker-0"]
    until_when = "autoscaler to add nodes until 20"
    eventually(until_when, lambda: until_when in told("FullSize").get("message", ""), report=world.report)
    assert told("FullSize")["reason"] == "WaitingForNodes"
    assert told("Ready")["reason"] == "Queued"
    eventually("the event", lambda: "WaitingForNodes" in events())
    for nodes, size in ((1, 2), (2, 4)):
        grow(nodes)
        world.wait_settled("toy", size)
        assert waiting.items() <= uids().items()
    assert told("Ready")["reason"] == "Running"
