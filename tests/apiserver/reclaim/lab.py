"""Foreign pods and what becomes of them on a real API server with a real kube-scheduler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from elastic_operator.read.foreign.reservation import CONDITION
from tests.api.jobs import with_gpus
from tests.apiserver.faults.lab import MERGE, await_service_account, job_of, path_of
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually

Pod = dict[str, Any]
FINALIZER = "example.com/keep"


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
        await_service_account(self.api, self.namespace)
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
        """What its condition says."""
        conditions = self.get(name)["status"].get("conditions", [])
        text = next((one["message"] for one in conditions if one["type"] == CONDITION), "{}")
        said: Mapping[str, Any] = json.loads(text)
        return said

    def unschedulable(self, name: str = "notebook") -> str:
        """What kube-scheduler says while it finds no node."""
        conditions = self.get(name)["status"].get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")

    def wait_unschedulable(self, *names: str) -> None:
        """Until kube-scheduler has said of each that it finds no node."""
        for name in names or ("notebook",):
            eventually(f"the scheduler's word on {name}", lambda name=name: self.unschedulable(name))

    def wait_bound(self, name: str = "notebook") -> str:
        """Until it has a node, which is returned."""
        return eventually(f"a node for {name}", lambda: self.node(name), report=lambda: str(self.get(name)))

    def events(self, name: str) -> dict[str, str]:
        """Of a pod or a job: reason -> the last message."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        items = self.api.get(path).raise_for_status().json()["items"]
        return {event["reason"]: event["note"] for event in items if event["regarding"]["name"] == name}


def hold(api: httpx.Client, pod: Pod, *, held: bool = True) -> None:
    """Give the pod a finalizer, or take it away: whoever deletes it meanwhile has to wait."""
    change = {"metadata": {"finalizers": [FINALIZER] if held else None}}
    api.patch(path_of(pod), headers=MERGE, json=change).raise_for_status()


def release_all(api: httpx.Client) -> None:
    """Take away every finalizer of a pod."""
    for pod in api.get("/api/v1/pods").raise_for_status().json()["items"]:
        if pod["metadata"].get("finalizers"):
            hold(api, pod, held=False)


def cordon(api: httpx.Client, node: str, *, closed: bool = True) -> None:
    """As `kubectl cordon` does, and `uncordon`."""
    api.patch(f"/api/v1/nodes/{node}", headers=MERGE, json={"spec": {"unschedulable": closed}}).raise_for_status()


def happened(api: httpx.Client, path: str, since: str) -> list[tuple[str, Pod]]:
    """What became of the objects of a collection since that resourceVersion: (ADDED, MODIFIED or DELETED, object)."""
    options = {"watch": "true", "resourceVersion": since, "timeoutSeconds": "1"}
    with api.stream("GET", path, params=options) as answer:
        answer.raise_for_status()
        events = [json.loads(line) for line in answer.iter_lines() if line]
    assert all(event["type"] != "ERROR" for event in events), events
    return [(event["type"], event["object"]) for event in events]


class Losses:
    """Pods of jobs in one namespace that were told to go, or went, since it was made."""

    def __init__(self, api: httpx.Client, namespace: str) -> None:
        self._api, self._path = api, f"/api/v1/namespaces/{namespace}/pods"
        self._since = api.get(self._path).raise_for_status().json()["metadata"]["resourceVersion"]

    def pods(self) -> list[Pod]:
        """As they were when they were told, in that order; each once."""
        lost: dict[str, Pod] = {}
        for kind, pod in happened(self._api, self._path, self._since):
            if job_of(pod) and (kind == "DELETED" or "deletionTimestamp" in pod["metadata"]):
                lost.setdefault(pod["metadata"]["uid"], pod)
        return list(lost.values())

    def names(self) -> list[str]:
        """Their names, in that order."""
        return [pod["metadata"]["name"] for pod in self.pods()]


def preempted(pod: Pod) -> bool:
    """Whether kube-scheduler had it go."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "DisruptionTarget" and c["reason"] == "PreemptionByScheduler" for c in conditions)
