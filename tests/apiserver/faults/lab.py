"""A small world on a real API server without kubelets: nodes, pods that run and end as told, jobs and their pods."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from tests.api.jobs import make_job, make_template, with_gpus
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import Operator, eventually

GPU = "nvidia.com/gpu"
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
HEARTBEAT_SECONDS = 2.0
TICK_SECONDS = 0.2
PASSES = "elastic_pytorch_pass_seconds_count"
ORPHANS = {"propagationPolicy": "Background"}


def now() -> str:
    """The present moment, as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class FakeKubelets:
    """Keeps nodes Ready, lets their pods run at once and go at once. What a test says of a pod's end stays.

    While `lets_go` is False, pods that are to go stay.
    """

    api: httpx.Client
    gpus: int
    nodes: list[str] = field(default_factory=lambda: [f"node-{uuid.uuid4().hex[:6]}" for _ in range(2)])
    lets_go: bool = True
    _end: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[FakeKubelets]:
        """The nodes exist and are kept Ready meanwhile."""
        for node in self.nodes:
            self.api.post("/api/v1/nodes", json={"metadata": {"name": node}}).raise_for_status()
        keeper = threading.Thread(target=self._keep)
        keeper.start()
        try:
            yield self
        finally:
            self._end.set()
            keeper.join()
            for node in self.nodes:
                self.api.delete(f"/api/v1/nodes/{node}")

    def _keep(self) -> None:
        heard = -math.inf
        while not self._end.wait(TICK_SECONDS):
            # The API server may be away: that is what these tests are about.
            with suppress(httpx.HTTPError):
                if (begun := time.monotonic()) - heard >= HEARTBEAT_SECONDS:
                    self._beat()
                    heard = begun
                self._keep_pods()

    def _beat(self) -> None:
        room = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: str(self.gpus)}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": now()}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        for node in self.nodes:
            path = f"/api/v1/nodes/{node}/status"
            self.api.patch(path, headers=MERGE, json={"status": status}).raise_for_status()

    def _keep_pods(self) -> None:
        for pod in self.api.get("/api/v1/pods", params={"resourceVersion": "0"}).raise_for_status().json()["items"]:
            if pod["spec"].get("nodeName") not in self.nodes:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                if self.lets_go:
                    remove(self.api, pod)
            elif pod["status"]["phase"] == "Pending":
                put_status(self.api, pod, running_status(pod))
            elif pod["status"]["phase"] == "Running" and not all(map(_holds, pod["status"].get("conditions", []))):
                self._say_ready_again(pod)

    def _say_ready_again(self, pod: dict[str, Any]) -> None:
        """The node controller says otherwise of a node that was silent. What is said of the pod meanwhile stays."""
        conditions = [c if _holds(c) else {**c, "status": "True"} for c in pod["status"]["conditions"]]
        body = {
            "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
            "status": {"conditions": conditions},
        }
        self.api.patch(f"{path_of(pod)}/status", headers=MERGE, json=body)


def _holds(condition: dict[str, Any]) -> bool:
    return condition["type"] != "Ready" or condition["status"] == "True"


def await_service_account(api: httpx.Client, namespace: str) -> None:
    """Without it no pod is taken; it comes some time after the namespace, from the controller manager."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually("the namespace's service account", lambda: api.get(path).is_success, seconds=60)


def job_of(pod: dict[str, Any]) -> str:
    """The name of the job that the pod belongs to, "" for none."""
    owners = pod["metadata"].get("ownerReferences", [])
    return next((owner["name"] for owner in owners), "")


def path_of(pod: dict[str, Any]) -> str:
    """The pod's path."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def remove(api: httpx.Client, pod: dict[str, Any]) -> None:
    """Delete the pod without waiting for anybody, as a kubelet does when the last container has ended."""
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
    api.request("DELETE", path_of(pod), json=options)


def put_status(api: httpx.Client, pod: dict[str, Any], status: dict[str, Any]) -> None:
    """What a kubelet says of the pod. Like a real one, it keeps the conditions of others."""
    if addresses := status.get("podIPs"):  # a strategic patch would add to them
        status = {**status, "podIPs": [{"$patch": "replace"}, *addresses]}
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
    api.patch(f"{path_of(pod)}/status", headers=STRATEGIC, json=body)


def running_status(pod: dict[str, Any]) -> dict[str, Any]:
    """All its containers run."""
    return {
        "phase": "Running",
        "podIP": "10.9.0.9",
        "podIPs": [{"ip": "10.9.0.9"}],
        "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready", "ContainersReady")],
        "containerStatuses": _containers(pod, {"running": {"startedAt": now()}}, ready=True),
    }


def ended_status(pod: dict[str, Any], exit_code: int) -> dict[str, Any]:
    """All its containers have ended with that code."""
    terminated = {"exitCode": exit_code, "startedAt": now(), "finishedAt": now(), "reason": "Test"}
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": _containers(pod, {"terminated": terminated}, ready=False),
    }


def _containers(pod: dict[str, Any], state: dict[str, Any], *, ready: bool) -> list[dict[str, Any]]:
    common = {"image": "i", "imageID": "i", "restartCount": 0, "ready": ready, "state": state}
    return [{"name": container["name"], **common} for container in pod["spec"]["containers"]]


def elastic_job(name: str = "toy", *, small: int = 1, big: int = 8, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """A job of pods with so many GPUs that grows without delay."""
    template = make_template(with_gpus(gpus, image="local/none:1"))
    fields = {"elasticity": {"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1}, "template": template, **spec}
    return make_job(name, minReplicas=small, maxReplicas=big, **fields)


@dataclass(frozen=True, slots=True)
class World:
    """The jobs of one namespace and the nodes that only they and the test use."""

    jobs: Jobs
    kubelets: FakeKubelets

    @property
    def api(self) -> httpx.Client:
        """With the administrator's rights, past every proxy."""
        return self.jobs.api

    @property
    def pods_path(self) -> str:
        """Of the collection."""
        return f"/api/v1/namespaces/{self.jobs.namespace}/pods"

    def start(self, job: dict[str, Any]) -> None:
        """Create a job."""
        accepted(self.jobs.create(job))

    def pods(self, job: str = "") -> list[dict[str, Any]]:
        """Pods that are not on their way out: a job's, or all."""
        items = self.api.get(self.pods_path).raise_for_status().json()["items"]
        own = [pod for pod in items if not job or job_of(pod) == job]
        return [pod for pod in own if "deletionTimestamp" not in pod["metadata"]]

    def occupy(self, count: int, *, prefix: str = "foreign") -> list[str]:
        """Pods of somebody else with one GPU each, in turns on the nodes; returns their names."""
        await_service_account(self.api, self.jobs.namespace)
        names = [f"{prefix}-{index}" for index in range(count)]
        for index, name in enumerate(names):
            node = self.kubelets.nodes[index % len(self.kubelets.nodes)]
            spec = {"nodeName": node, "containers": [with_gpus(1, name="main", image="local/none:1")]}
            body = {"metadata": {"name": name}, "spec": spec}
            self.api.post(self.pods_path, json=body).raise_for_status()
        return names

    def delete_pod(self, name: str) -> None:
        """At once, without grace."""
        options = {"gracePeriodSeconds": "0"}
        self.api.delete(f"{self.pods_path}/{name}", params=options).raise_for_status()

    def delete_job(self, name: str) -> None:
        """The garbage collector deletes its pods."""
        self.api.delete(f"{self.jobs.path}/{name}", params=ORPHANS).raise_for_status()

    def see_passes(self, operator: Operator, count: int = 5) -> None:
        """Change something of a node so many times; each time the operator looks at everything again."""
        for _ in range(count):
            before = operator.metric(PASSES)
            change = {"metadata": {"labels": {"tick": uuid.uuid4().hex[:8]}}}
            self.api.patch(f"/api/v1/nodes/{self.kubelets.nodes[0]}", headers=MERGE, json=change).raise_for_status()
            eventually("a pass", lambda before=before: operator.metric(PASSES) > before, report=operator.text)

    def end(self, pod_name: str, exit_code: int) -> None:
        """The containers of that pod end."""
        pod = self.api.get(f"{self.pods_path}/{pod_name}").raise_for_status().json()
        put_status(self.api, pod, ended_status(pod, exit_code))

    def status(self, job: str = "toy") -> dict[str, Any]:
        """The job's status."""
        status: dict[str, Any] = self.jobs.get(job).get("status", {})
        return status

    def settled(self, job: str, size: int) -> bool:
        """Whether so many pods of the job run, and its status says so."""
        status, pods = self.status(job), self.pods(job)
        counts = (status.get("replicas"), status.get("targetReplicas"), status.get("readyReplicas"), len(pods))
        return counts == (size,) * 4 and all(pod["status"]["phase"] == "Running" for pod in pods)

    def wait_settled(self, job: str, size: int, *, seconds: float = 40) -> None:
        """Until it is so; the report shows what is so instead."""
        eventually(f"{job} of {size} pods", lambda: self.settled(job, size), seconds=seconds, report=self.report)

    def report(self) -> str:
        """Pods and statuses, for failure messages."""
        phases = Counter((job_of(p) or "foreign", p["status"]["phase"]) for p in self.pods())
        jobs = self.api.get(self.jobs.path).json()["items"]
        return f"pods {dict(phases)}; statuses { {job['metadata']['name']: job.get('status') for job in jobs} }"
