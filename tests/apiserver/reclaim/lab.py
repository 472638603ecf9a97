"""Foreign pods and what becomes of them on a real API server with a real kube-scheduler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from elastic_worker import contract
from tests.api.jobs import with_gpus
from tests.apiserver.faults.lab import job_of
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually

Pod = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notebooks:
    """Plain pods of one namespace."""

    api: httpx.Client
    namespace: str

    @property
    def path(self) -> str:
        """Of the collection."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, name: str = "notebook", *, gpus: int = 1, **spec: Any) -> None:
        """A pod that asks for GPUs, for kube-scheduler to place."""
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        eventually("the namespace's service account", lambda: self.api.get(account).is_success)
        container = with_gpus(gpus, name="main", image="local/none:1")
        body = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        accepted(self.api.post(self.path, json=body))

    def get(self, name: str = "notebook") -> Pod:
        """The pod."""
        found: Pod = self.api.get(f"{self.path}/{name}").raise_for_status().json()
        return found

    def delete(self, name: str = "notebook") -> None:
        """At once."""
        self.api.delete(f"{self.path}/{name}", params={"gracePeriodSeconds": "0"}).raise_for_status()

    def node(self, name: str = "notebook") -> str:
        """Where it is bound, "" if nowhere."""
        bound: str = self.get(name)["spec"].get("nodeName", "")
        return bound

    def nominated(self, name: str = "notebook") -> str:
        """The node that it is nominated for."""
        node: str = self.get(name)["status"].get("nominatedNodeName", "")
        return node

    def reservation(self, name: str = "notebook") -> Mapping[str, Any]:
        """What its annotation says."""
        text = self.get(name)["metadata"].get("annotations", {}).get(contract.ANNOTATION_RESERVED, "{}")
        said: Mapping[str, Any] = json.loads(text)
        return said

    def unschedulable(self, name: str = "notebook") -> str:
        """What kube-scheduler says while it finds no node."""
        conditions = self.get(name)["status"].get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")

    def wait_bound(self, name: str = "notebook") -> str:
        """Until it has a node, which is returned."""
        return eventually(f"a node for {name}", lambda: self.node(name), report=lambda: str(self.get(name)))

    def events(self, name: str) -> dict[str, str]:
        """Of a pod or a job: reason -> the last message."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        items = self.api.get(path).raise_for_status().json()["items"]
        return {event["reason"]: event["note"] for event in items if event["regarding"]["name"] == name}


class Losses:
    """Which pods of jobs were deleted since it was made, by name: pods of a job that were there and are not now."""

    def __init__(self, api: httpx.Client, namespace: str) -> None:
        self._api, self._path = api, f"/api/v1/namespaces/{namespace}/pods"
        self._before = self._there()

    def _there(self) -> dict[str, str]:
        items = self._api.get(self._path).raise_for_status().json()["items"]
        staying = [pod for pod in items if job_of(pod) and "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in staying}

    def names(self) -> list[str]:
        """Names of those that are gone."""
        now = self._there()
        return sorted(name for uid, name in self._before.items() if uid not in now)
