"""The operator process against a real API server, with nodes that are objects only: what it writes, and who leads."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.apiserver.faults.lab import FakeKubelets, elastic_job
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import LEASE, Operators, eventually

pytestmark = pytest.mark.apiserver


def pods_of(jobs: Jobs) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = jobs.api.get(f"/api/v1/namespaces/{jobs.namespace}/pods").json()["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def pinned_to(pod: dict[str, Any]) -> str:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: str = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    return found


def test_a_job_gets_a_pod_for_every_free_gpu_each_pinned_to_its_node(
    operators: Operators, nodes: FakeKubelets, jobs: Jobs
) -> None:
    operators.start()
    accepted(jobs.create(elastic_job()))
    pods = eventually("8 pods", lambda: len(found := pods_of(jobs)) == 8 and found)
    assert sorted(map(pinned_to, pods)) == sorted(nodes.nodes * 4)
    assert {pod["metadata"]["name"].removeprefix("toy-") for pod in pods} == {
        "master-0",
        *(f"worker-{i}" for i in range(7)),
    }
    service = jobs.api.get(f"/api/v1/namespaces/{jobs.namespace}/services/toy-master").json()
    main = pods[0]["spec"]["containers"][0]
    assert {"name": "MASTER_ADDR", "value": service["spec"]["clusterIP"]} in main["env"]
    assert "selector" not in service["spec"]


def test_a_stopped_leader_hands_over_at_once(operators: Operators, api: httpx.Client) -> None:
    first = operators.start_cold(environ={"POD_UID": "first"})
    eventually("a leader", lambda: first.leads)
    second = operators.start(environ={"POD_UID": "second"})
    eventually("a candidate", lambda: second.is_candidate)
    first.stop()
    holder: str = api.get(LEASE).raise_for_status().json()["spec"]["holderIdentity"]
    assert not holder.endswith("_first"), "it is free, or has been taken already"
    assert "lease released" in first.text()
    eventually("the second to lead", lambda: second.leads)


def test_a_job_that_cannot_be_read_does_not_stop_the_others(
    operators: Operators, nodes: FakeKubelets, jobs: Jobs
) -> None:
    broken = elastic_job()
    broken["metadata"]["name"] = "broken"
    broken["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    accepted(jobs.create(broken))
    accepted(jobs.create(elastic_job(big=2)))
    operators.start()
    eventually("the good job's pods", lambda: len(pods_of(jobs)) == 2)

    def reason() -> dict[str, str]:
        conditions = jobs.get("broken").get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "Ready" and c["reason"] == "InvalidSpec"), {})

    message = eventually("InvalidSpec", reason)["message"]
    assert "restartPolicy" in message
    assert "Always" in message
    assert nodes.nodes
