"""The operator process against a real API server, with nodes that are objects only: what it writes, and who leads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.jobs import make_job
from tests.apiserver.jobs_api import Jobs, accepted

pytestmark = pytest.mark.apiserver

MERGE = {"Content-Type": "application/merge-patch+json"}
CAPACITY = {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"}
HEARTBEAT_SECONDS = 2.0


def eventually(what: str, look: Callable[[], Any], *, seconds: float = 40.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.05)
    return found


@dataclass
class Operator:
    """A running operator process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def leads(self) -> bool:
        return "leading as" in self.log.read_text()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(20) == 0, self.log.read_text()[-2000:]


@pytest.fixture
def start(
    kubeconfig: Path,
    api: httpx.Client,
    job_crd: None,  # noqa: ARG001 - it only has to be there
    tmp_path: Path,
) -> Iterator[Callable[[], Operator]]:
    """Starts operators; they are stopped after the test."""
    api.post("/api/v1/namespaces", json={"metadata": {"name": "elastic-system"}})
    for role, value in (("worker", 0), ("master", 1)):
        body = {"metadata": {"name": f"elastic-pytorch-{role}"}, "value": value, "preemptionPolicy": "Never"}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", json=body)
    running: list[Operator] = []

    def run() -> Operator:
        log = tmp_path / f"operator-{len(running)}.log"
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "ELASTIC_OPERATOR_PORT": "0"}
        command = [sys.executable, "-m", "elastic_operator", "run"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        running.append(Operator(process, log))
        return running[-1]

    yield run
    for operator in running:
        if operator.process.poll() is None:
            operator.stop()  # gives the lease back: the next test need not wait for its end


@pytest.fixture
def nodes(api: httpx.Client) -> Iterator[list[str]]:
    """Two nodes of four GPUs that somebody keeps Ready."""
    names = [f"node-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    for name in names:
        api.post("/api/v1/nodes", json={"metadata": {"name": name}}).raise_for_status()
    done = threading.Event()

    def keep_ready() -> None:
        while not done.is_set():
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": now}
            status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
            for name in names:
                api.patch(f"/api/v1/nodes/{name}/status", headers=MERGE, json={"status": status})
            done.wait(HEARTBEAT_SECONDS)

    keeper = threading.Thread(target=keep_ready)
    keeper.start()
    yield names
    done.set()
    keeper.join()
    for name in names:
        api.delete(f"/api/v1/nodes/{name}")


def elastic_job(*, small: int = 1, big: int = 8, gpus: int = 1) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": gpus}}
    container = {"name": "pytorch", "image": "local/none:1", "args": ["t.py"], "resources": limits}
    return make_job(
        minReplicas=small,
        maxReplicas=big,
        elasticity={"scaleUpDelaySeconds": 0},
        template={"spec": {"containers": [container]}},
    )


def pods_of(jobs: Jobs) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = jobs.api.get(f"/api/v1/namespaces/{jobs.namespace}/pods").json()["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def pinned_to(pod: dict[str, Any]) -> str:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: str = affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    return found


def test_a_job_gets_a_pod_for_every_free_gpu_each_pinned_to_its_node(
    start: Callable[[], Operator], nodes: list[str], jobs: Jobs
) -> None:
    start()
    accepted(jobs.create(elastic_job()))
    pods = eventually("8 pods", lambda: len(found := pods_of(jobs)) == 8 and found)
    assert sorted(map(pinned_to, pods)) == sorted(nodes * 4)
    assert {pod["metadata"]["name"].removeprefix("toy-") for pod in pods} == {
        "master-0",
        *(f"worker-{i}" for i in range(7)),
    }
    service = jobs.api.get(f"/api/v1/namespaces/{jobs.namespace}/services/toy-master").json()
    main = pods[0]["spec"]["containers"][0]
    assert {"name": "MASTER_ADDR", "value": service["spec"]["clusterIP"]} in main["env"]
    assert "selector" not in service["spec"]


def test_gpus_of_foreign_pods_are_left_alone_and_taken_when_they_are_gone(
    start: Callable[[], Operator], nodes: list[str], jobs: Jobs
) -> None:
    limits = {"limits": {"nvidia.com/gpu": 3}}
    other = {
        "metadata": {"name": "notebook"},
        "spec": {
            "nodeName": nodes[0],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "local/none:1", "resources": limits}],
        },
    }
    path = f"/api/v1/namespaces/{jobs.namespace}/pods"
    eventually("the namespace's service account", lambda: jobs.api.post(path, json=other).is_success)
    start()
    accepted(jobs.create(elastic_job()))
    eventually("5 pods beside the notebook", lambda: len(pods_of(jobs)) == 6)
    jobs.api.delete(f"{path}/notebook", params={"gracePeriodSeconds": "0"}).raise_for_status()
    eventually("8 pods", lambda: len(pods_of(jobs)) == 8)


def test_a_stopped_leader_hands_over_at_once(start: Callable[[], Operator]) -> None:
    first = start()
    eventually("a leader", lambda: first.leads)
    second = start()
    first.stop()
    eventually("the second to lead", lambda: second.leads, seconds=14)


def test_two_operators_make_each_pod_once(start: Callable[[], Operator], nodes: list[str], jobs: Jobs) -> None:
    first, second = start(), start()
    accepted(jobs.create(elastic_job(big=4)))
    eventually("4 pods", lambda: len(pods_of(jobs)) == 4)
    assert first.leads != second.leads
    log = (first if first.leads else second).log
    eventually("4 creations in the log", lambda: log.read_text().count(" created node=") >= 4)
    assert log.read_text().count(" created node=") == 4
    assert nodes


def test_a_job_that_cannot_be_read_does_not_stop_the_others(
    start: Callable[[], Operator], nodes: list[str], jobs: Jobs
) -> None:
    broken = elastic_job()
    broken["metadata"]["name"] = "broken"
    broken["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    accepted(jobs.create(broken))
    accepted(jobs.create(elastic_job(big=2)))
    start()
    eventually("the good job's pods", lambda: len(pods_of(jobs)) == 2)

    def reason() -> dict[str, str]:
        conditions = jobs.get("broken").get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "Ready" and c["reason"] == "InvalidSpec"), {})

    message = eventually("InvalidSpec", reason)["message"]
    assert "restartPolicy" in message
    assert "Always" in message
    assert nodes
