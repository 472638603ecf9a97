"""A small world for Elastic jobs, and what the operator did for one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from elastic_worker import contract
from tests.apiserver.faults.lab import FakeKubelets, World, elastic_job
from tests.apiserver.jobs_api import Jobs

GPUS_PER_NODE = 4


@dataclass(frozen=True, slots=True)
class ElasticWorld(World):
    """Whose jobs are called toy and run in Elastic mode."""

    def begin(self, **fields: Any) -> None:
        """A job in Elastic mode that grows as it can."""
        job = elastic_job(**{"small": 2, "big": 4, **fields})
        job["spec"]["runtime"] = {"mode": "Elastic"}
        job["spec"]["elasticity"]["checkpointPath"] = "/checkpoints"
        self.start(job)

    def pod(self, name: str) -> dict[str, Any]:
        """The pod toy-NAME; empty if there is none that stays."""
        return next((pod for pod in self.pods("toy") if pod["metadata"]["name"] == f"toy-{name}"), {})

    def annotation(self, key: str) -> str:
        """Of the master pod."""
        notes: dict[str, str] = self.pod("master-0").get("metadata", {}).get("annotations", {})
        return notes.get(key, "")

    def wish(self) -> dict[str, Any]:
        """What the master is told."""
        told: dict[str, Any] = json.loads(self.annotation(contract.ANNOTATION_MEMBERSHIP) or "{}")
        return told

    def is_told_of_all(self) -> bool:
        """Whether the master is told of exactly the pods that stay."""
        told = {(member["name"], member["uid"]) for member in self.wish().get("members", [])}
        return told == {(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in self.pods("toy")} != set()

    def secret(self) -> dict[str, Any]:
        """The job's, with an administrator's rights."""
        answer = self.api.get(f"/api/v1/namespaces/{self.jobs.namespace}/secrets/toy-elastic")
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


@pytest.fixture
def world(api: httpx.Client, jobs: Jobs) -> Iterator[ElasticWorld]:
    """Two nodes with four GPUs each, and a namespace."""
    with FakeKubelets(api, GPUS_PER_NODE).running() as kubelets:
        yield ElasticWorld(jobs, kubelets)
