"""Fake nodes for one test, and a job on them that must be served whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from devcluster.cluster import Cluster
from tests.apiserver.faults.lab import elastic_job
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually

NODES = 2
GPUS = 8
LABELS = {"a": "b"}
"""What `tests.api.anything.FULL` asks of a node."""
SERVED_SECONDS = 60.0
"""Wide: machines are shared, and the API server is given a lot to do meanwhile."""


@contextmanager
def fake_nodes(cluster: Cluster, api: httpx.Client, *, prefix: str) -> Iterator[list[str]]:
    """Nodes on which pods run at once and go at once; they, and whatever is left on them, are gone afterwards."""
    nodes = cluster.add_fake_nodes(NODES, gpus=GPUS, prefix=prefix, labels=LABELS)
    yield nodes
    for node in nodes:
        for pod in api.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={node}"}).json()["items"]:
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
            api.delete(path, params={"gracePeriodSeconds": "0"})
        api.delete(f"/api/v1/nodes/{node}")


def pods_of(jobs: Jobs, name: str) -> list[dict[str, Any]]:
    """The pods of one job that are not on their way out."""
    selector = {"labelSelector": f"elastic-pytorch.dev/job-name={name}"}
    items: list[dict[str, Any]] = jobs.api.get(f"/api/v1/namespaces/{jobs.namespace}/pods", params=selector).json()[
        "items"
    ]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def conditions_of(jobs: Jobs, type_: str) -> dict[str, dict[str, Any]]:
    """That condition of every job by its name, if it speaks of the job's present generation, else {}."""
    found = {}
    for job in jobs.api.get(jobs.path).json()["items"]:
        generation, conditions = job["metadata"]["generation"], job.get("status", {}).get("conditions", [])
        current = (c for c in conditions if c["type"] == type_ and c["observedGeneration"] == generation)
        found[job["metadata"]["name"]] = next(current, {})
    return found


@dataclass(slots=True)
class Canary:
    """A job whose size is changed now and then; the operator must follow."""

    jobs: Jobs
    name: str = "canary"
    size: int = 1

    def start(self) -> None:
        """Create it, without GPUs since the others may have them all, and wait for its pod."""
        accepted(self.jobs.create(elastic_job(self.name, big=self.size, gpus=0)))
        self._eventually_runs()

    def check(self) -> None:
        """Grow by one pod, or from four back to one, as `kubectl scale` does."""
        self.size = self.size + 1 if self.size < 4 else 1
        accepted(self.jobs.patch(self.name, {"spec": {"replicas": self.size}}, subresource="/scale"))
        self._eventually_runs()

    def _eventually_runs(self) -> None:
        eventually(
            f"the canary's {self.size} pods",
            lambda: len(pods_of(self.jobs, self.name)) == self.size,
            seconds=SERVED_SECONDS,
            report=lambda: [conditions_of(self.jobs, type_)[self.name] for type_ in ("Ready", "FullSize")],
        )
