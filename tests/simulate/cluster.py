"""A cluster in memory: the API server, the kubelets, the scheduler and the garbage collector."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.simulate import server as kinds
from tests.simulate.api import Api
from tests.simulate.base_world import BaseWorld
from tests.simulate.facts import GPU, POOL
from tests.simulate.machines import Machines
from tests.simulate.policies import NAMESPACES
from tests.simulate.server import Body, Server
from tests.simulate.virtual_clock import VirtualClock


class Cluster(BaseWorld):
    """The objects on a server, with PriorityClasses and namespaces, and the machines that act on them."""

    def __init__(self, clock: VirtualClock, rng: Random) -> None:
        super().__init__(Server(clock), rng)
        self.clock = clock
        of_pods = {name: one for name, one in kinds.PRIORITIES.items() if name}
        for name, one in ({"low": {"priority": 0}, "high": {"priority": 10}} | of_pods).items():
            policy = one.get("preemptionPolicy", "PreemptLowerPriority")
            body = {"metadata": {"name": name}, "value": one["priority"], "preemptionPolicy": policy}
            self.server.create(kinds.PRIORITY_CLASSES, body)
        for namespace in NAMESPACES:
            self.server.create(kinds.NAMESPACES, {"metadata": {"name": namespace, "labels": {}}})
        self.machines = Machines(self.server)
        self.api = Api(self.server)

    def add_node(self, gpus: int, pool: str, *, cpu: int = 64) -> Body:
        """A node, Ready."""
        room = {GPU: str(gpus), "cpu": str(cpu), "memory": str(64 << 30), "pods": "110"}
        name = self.new_name("n")
        meta = {"name": name, "labels": {POOL: pool, "kubernetes.io/hostname": name}}
        status = {"allocatable": room, "conditions": [self.readiness(True)]}
        return self.server.create(kinds.NODES, {"metadata": meta, "spec": {}, "status": status})

    def readiness(self, ready: bool) -> dict[str, Any]:
        """The condition Ready of a node."""
        return {"type": "Ready", "status": str(ready), "lastTransitionTime": self.clock.text()}

    def add_foreign(
        self,
        namespace: str,
        *,
        gpus: int,
        pool: str,
        cpu: int = 1,
        of_class: str = "",
        job: str = "",
        indexed: bool = True,
    ) -> Body:
        """Somebody else's pod, of a batch/v1 Job if one is named, for the scheduler to place, with its defaults."""
        requests = {"cpu": str(cpu)} | ({GPU: str(gpus)} if gpus else {})
        spec = {
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            "nodeSelector": {POOL: pool},
            "schedulerName": "default-scheduler",
            "priorityClassName": of_class,
            **kinds.PRIORITIES[of_class],
        }
        meta: dict[str, Any] = {"name": self.new_name("foreign-"), "namespace": namespace}
        if job:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-of-{job}", "controller": True}
            meta["ownerReferences"] = [owner]
            meta["labels"] = {"batch.kubernetes.io/job-completion-index": meta["name"]} if indexed else {}
        return self.server.create(kinds.PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
