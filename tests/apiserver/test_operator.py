"""Operator processes against a real API server, with nodes that are objects only: what they write, and who leads.

What else may become of two replicas is told in `tests/virtual/test_replicas.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import LEASE, Operators, eventually

pytestmark = pytest.mark.apiserver

TAKE_OVER_SECONDS = 30.0


def pinned_to(pod: dict[str, Any]) -> str:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: str = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    return found


def test_beside_an_unreadable_job_a_job_gets_a_pinned_pod_for_every_free_gpu(
    operators: Operators, world: World
) -> None:
    broken = elastic_job("broken")
    broken["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    world.start(broken)
    world.start(elastic_job())
    operators.start()
    pods = eventually("8 pods", lambda: len(found := world.pods("toy")) == 8 and found)
    assert sorted(map(pinned_to, pods)) == sorted(world.kubelets.nodes * 4)
    assert {pod["metadata"]["name"].removeprefix("toy-") for pod in pods} == {
        "master-0",
        *(f"worker-{i}" for i in range(7)),
    }
    service = world.api.get(f"/api/v1/namespaces/{world.jobs.namespace}/services/toy-master").json()
    main = pods[0]["spec"]["containers"][0]
    assert {"name": "MASTER_ADDR", "value": service["spec"]["clusterIP"]} in main["env"]
    assert "selector" not in service["spec"]

    def reason() -> dict[str, str]:
        conditions = world.status("broken").get("conditions", [])
        return next((c for c in conditions if c["type"] == "Ready" and c["reason"] == "InvalidSpec"), {})

    message = eventually("InvalidSpec", reason)["message"]
    assert "restartPolicy" in message
    assert "Always" in message


def test_standby_takes_over_from_a_stopped_or_killed_leader(operators: Operators, world: World) -> None:
    first = operators.start_cold(environ={"POD_UID": "first"})
    eventually("a leader", lambda: first.leads)
    second = operators.start(environ={"POD_UID": "second"})
    eventually("a candidate", lambda: second.is_candidate)
    assert not second.leads
    first.stop()
    holder: str = world.api.get(LEASE).raise_for_status().json()["spec"]["holderIdentity"]
    assert not holder.endswith("_first"), "it is free, or has been taken already"
    assert "lease released" in first.text()
    eventually("the second to lead", lambda: second.leads)
    third = operators.start(environ={"POD_UID": "third"})
    eventually("a candidate", lambda: third.is_candidate)
    world.start(elastic_job(big=2))
    world.wait_settled("toy", 2)
    assert not third.leads
    second.kill()
    world.jobs.patch("toy", {"spec": {"maxReplicas": 4}})
    eventually("the third to lead", lambda: third.leads, seconds=TAKE_OVER_SECONDS)
    world.wait_settled("toy", 4)
    assert world.status()["resizes"] == 1


@pytest.fixture
def scarce(api: httpx.Client) -> Iterator[str]:
    """An extended resource that a DeviceClass serves, and no node has."""
    resource, path = "example.com/scarce", "/apis/resource.k8s.io/v1/deviceclasses"
    body = {"metadata": {"name": "scarce"}, "spec": {"extendedResourceName": resource}}
    api.post(path, json=body).raise_for_status()
    yield resource
    api.delete(f"{path}/scarce").raise_for_status()


def test_a_job_that_asks_for_what_dra_hands_out_is_told_that_it_is_not_counted(
    operators: Operators, world: World, scarce: str
) -> None:
    job = elastic_job()
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][scarce] = "1"
    world.start(job)
    operators.start()

    def told() -> dict[str, str]:
        conditions = world.status().get("conditions", [])
        return next((c for c in conditions if c["type"] == "DevicesNotCounted" and c["status"] == "True"), {})

    assert "DeviceClass scarce" in eventually("DevicesNotCounted", told)["message"]
    assert world.pods("toy") == []
