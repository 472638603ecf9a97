"""What an autoscaler sees and does, and what its users see of their jobs meanwhile."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.api.jobs import make_job, with_gpus
from tests.apiserver.faults.lab import await_service_account, job_of
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually

Object = dict[str, Any]
LABEL = "pool"
LONGEST_BACK_OFF_SECONDS = 90
"""Far more than the first one."""


@dataclass(slots=True)
class Pool:
    """Nodes of two GPUs with a label of their own, and the pods of one namespace that may go there."""

    cluster: Cluster
    api: httpx.Client
    jobs: Jobs
    name: str = field(default_factory=lambda: f"pool{uuid.uuid4().hex[:6]}x")
    nodes: list[str] = field(default_factory=list)

    def grow(self, nodes: int = 1) -> None:
        """An autoscaler has added so many nodes in all."""
        self.nodes = self.cluster.add_fake_nodes(
            nodes, gpus=2, prefix=self.name, labels={LABEL: self.name}, progress=Progress(quiet=True)
        )

    def clear(self) -> None:
        """No node of it is left."""
        for node in self.nodes:
            self.api.delete(f"/api/v1/nodes/{node}").raise_for_status()

    def submit(self, name: str = "toy", *, small: int = 2, big: int = 2, **spec: Any) -> None:
        """A job whose pods ask for one GPU each of this pool."""
        template = {"spec": {"containers": [with_gpus(1, image="local/none:1")], "nodeSelector": {LABEL: self.name}}}
        elasticity = {"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1}
        body = make_job(name, minReplicas=small, maxReplicas=big, elasticity=elasticity, template=template, **spec)
        accepted(self.jobs.create(body))

    def occupy(self, count: int) -> list[str]:
        """Pods of somebody else with one GPU each, on nodes of this pool; returns their paths."""
        path = f"/api/v1/namespaces/{self.jobs.namespace}"
        await_service_account(self.api, self.jobs.namespace)
        container = with_gpus(1, name="main", image="local/none:1")
        for number in range(count):
            spec = {"containers": [container], "nodeSelector": {LABEL: self.name}, "terminationGracePeriodSeconds": 0}
            accepted(self.api.post(f"{path}/pods", json={"metadata": {"name": f"other-{number}"}, "spec": spec}))
        eventually("them to run", lambda: sum(map(_runs, self.pods(""))) == count)
        return [f"{path}/pods/other-{number}" for number in range(count)]

    # -- what is seen --------------------------------------------------------------------------------------------------

    def pods(self, job: str = "toy") -> list[Object]:
        """A job's pods that are not on their way out, or those of no job."""
        items: list[Object] = self.api.get(f"/api/v1/namespaces/{self.jobs.namespace}/pods").json()["items"]
        return [pod for pod in items if job_of(pod) == job and "deletionTimestamp" not in pod["metadata"]]

    def unschedulable(self, job: str = "toy") -> list[Object]:
        """Those of them that make an autoscaler add nodes: kube-scheduler says of them that no node suits."""
        return [pod for pod in self.pods(job) if _reason(pod) == "Unschedulable"]

    def wait_asked(self, count: int = 2, job: str = "toy") -> dict[str, str]:
        """Until so many pods of the job ask for nodes; their uids by name."""
        pods = eventually(
            f"{count} pods of {job} to be unschedulable",
            lambda: len(found := self.unschedulable(job)) == count and found,
            seconds=LONGEST_BACK_OFF_SECONDS,
            report=lambda: self.status(job),
        )
        return uids(pods)

    def wait_running(self, count: int = 2, job: str = "toy") -> dict[str, str]:
        """Until so many pods of the job run and it says so; their uids by name."""

        def running() -> list[Object]:
            pods = self.pods(job)
            done = len(pods) == count and all(map(_runs, pods)) and self.reason("Ready", job) == "Running"
            return pods if done else []

        return uids(eventually(f"{count} pods of {job} to run", running, report=lambda: self.status(job)))

    def wait_limited(self, reason: str, job: str = "toy", *, saying: str = "") -> None:
        """Until LIMITED BY says so, in a sentence with these words."""

        def told() -> bool:
            return self.reason("FullSize", job) == reason and saying in self.condition("FullSize", job)["message"]

        eventually(f"{job} {reason} {saying}", told, report=lambda: self.status(job))

    def wait_taken_back(self, job: str = "toy") -> Object:
        """Until its pods are gone and it is to be tried again; what its status says of that."""

        def retry() -> Object:
            found: Object = self.status(job).get("retry", {})
            return found if not self.pods(job) else {}

        return eventually(f"the pods of {job} to be taken back", retry, report=lambda: self.status(job))

    def status(self, job: str = "toy") -> Object:
        """The job's status."""
        status: Object = self.jobs.get(job).get("status", {})
        return status

    def condition(self, kind: str, job: str = "toy") -> Object:
        """One of its conditions; {} for none."""
        return next((c for c in self.status(job).get("conditions", []) if c["type"] == kind), {})

    def reason(self, kind: str, job: str = "toy") -> str:
        """The reason of one of its conditions."""
        reason: str = self.condition(kind, job).get("reason", "")
        return reason

    def events(self, job: str = "toy") -> dict[str, str]:
        """Reason -> the last message."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.jobs.namespace}/events"
        items = self.api.get(path).raise_for_status().json()["items"]
        return {event["reason"]: event["note"] for event in items if event["regarding"]["name"] == job}


def uids(pods: list[Object]) -> dict[str, str]:
    """By name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def _reason(pod: Object) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((c.get("reason", "") for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


def _runs(pod: Object) -> bool:
    return bool(pod["status"]["phase"] == "Running")
