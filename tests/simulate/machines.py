"""Kubelets, the garbage collector and the scheduler. Each call of `step` lets each of them act once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.simulate.api import SECRETS
from tests.simulate.facts import is_ready, owner_of, terminating
from tests.simulate.scheduler import Scheduler
from tests.simulate.server import JOBS, NODES, PODS, SERVICES, SLICES, Body, Server


class Machines:
    """All programs beside the operator that act on the cluster's objects.

    Attributes:
        stuck: UIDs of pods that stay terminating forever.
        stubborn: Namespaces whose pods ignore SIGTERM and end after their grace period.
        late: Kinds for which the garbage collector has not seen the deletion of jobs yet.
        let_go: Whether kubelets remove terminating pods.
        schedules: Whether the scheduler runs.
        never: UIDs of pods that the scheduler places nowhere.
        unseen: UIDs of pods that the scheduler has not got to yet.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stuck: set[str] = set()
        self.stubborn: set[str] = set()
        self.late: set[str] = set()
        self.let_go = self.schedules = True
        self.waits: dict[str, dict[str, str]] = {}
        """The waiting state of containers that the kubelet cannot start, by the name of their job."""
        self.pulls: Callable[[Body], bool] = lambda _: False
        """Whether the kubelet still pulls the image of a pod."""
        self.refusing: set[str] = set()
        """Nodes whose kubelet refuses each pod, for example while the device plugin restarts."""
        self._scheduler = Scheduler(server)
        self.never, self.unseen = self._scheduler.never, self._scheduler.unseen

    @property
    def overtook(self) -> bool:
        """Whether in the last step a pod was bound in the room of one that is pinned there and waits."""
        return self.schedules and self._scheduler.overtook

    def step(self) -> None:
        """Let each program act once. A pass runs between the end of a pod and the next pod in its room."""
        self._collect_garbage()
        if self.schedules:
            self._scheduler.step()
        self._run_pods()

    # -- the garbage collector ---------------------------------------------------------------------------------------

    def _collect_garbage(self) -> None:
        """Delete the objects of deleted jobs, and the pods of deleted nodes."""
        jobs = {job["metadata"]["uid"] for job in self.server.all(JOBS)}
        nodes = {node["metadata"]["name"] for node in self.server.all(NODES)}
        for pod in self.server.all(PODS):
            owner = owner_of(pod)
            if pod["spec"].get("nodeName", "") not in {"", *nodes}:
                self.server.delete_pod(pod, grace=0)
            elif owner is not None and owner["uid"] not in jobs and not terminating(pod):
                self.server.delete_pod(pod)
        for plural in (SERVICES, SLICES, SECRETS):
            for thing in self.server.all(plural) if plural not in self.late else ():
                if owner_of(thing)["uid"] not in jobs:
                    self.server.remove(plural, thing)

    # -- kubelets ----------------------------------------------------------------------------------------------------

    def _run_pods(self) -> None:
        ready = {node["metadata"]["name"] for node in self.server.all(NODES) if is_ready(node)}
        for pod in self.server.all(PODS):
            if pod["spec"].get("nodeName") not in ready:
                continue
            if terminating(pod):
                if self.let_go and pod["metadata"]["uid"] not in self.stuck and not self._ignores(pod):
                    self.server.delete_pod(pod, grace=0)
            elif pod["status"]["phase"] == "Pending" and not self._lacks_a_secret(pod) and not self.pulls(pod):
                if pod["spec"]["nodeName"] in self.refusing:
                    refused = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no devices"}
                    self.server.update(PODS, pod, status={**pod["status"], **refused})
                    continue
                owner = owner_of(pod)
                waits = self.waits.get(owner["name"]) if owner else None
                status = self._waiting(pod, waits) if waits else self._running(pod)
                if status != pod["status"]:
                    self.server.update(PODS, pod, status=status)

    def _ignores(self, pod: Body) -> bool:
        """Whether the pod runs until its grace period ends."""
        meta = pod["metadata"]
        until = datetime.fromisoformat(meta["deletionTimestamp"]).timestamp()
        return meta["namespace"] in self.stubborn and self.server.clock.time() < until

    def _lacks_a_secret(self, pod: Body) -> bool:
        """Whether the pod would wait in CreateContainerConfigError."""
        sources = [v["valueFrom"] for c in pod["spec"]["containers"] for v in c.get("env") or () if "valueFrom" in v]
        names = {source["secretKeyRef"]["name"] for source in sources if "secretKeyRef" in source}
        return any(self.server.find(SECRETS, pod["metadata"]["namespace"], name) is None for name in names)

    def _waiting(self, pod: Body, why: dict[str, str]) -> dict[str, Any]:
        states = [{"name": container["name"], "state": {"waiting": why}} for container in pod["spec"]["containers"]]
        works = {"name": "copy", "state": {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}}
        init = {"initContainerStatuses": [works]} if why["reason"] == "PodInitializing" else {}
        return {**pod["status"], "containerStatuses": states, **init}

    def _running(self, pod: Body) -> dict[str, Any]:
        now = self.server.clock.text()
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("PodScheduled", "Ready")]
        states = [{"name": c["name"], "state": {"running": {"startedAt": now}}} for c in pod["spec"]["containers"]]
        return {"phase": "Running", "podIP": "10.0.0.9", "conditions": conditions, "containerStatuses": states}

    def end(self, pod: Body, exit_code: int) -> None:
        """All containers of the pod end with that code."""
        end = {"terminated": {"exitCode": exit_code, "finishedAt": self.server.clock.text(), "reason": "Test"}}
        states = [{"name": container["name"], "state": end} for container in pod["spec"]["containers"]]
        phase = "Failed" if exit_code else "Succeeded"
        self.server.update(PODS, pod, status={**pod["status"], "phase": phase, "containerStatuses": states})
