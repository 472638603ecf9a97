"""The simulator's users and machines on KWOK's nodes beside a real API server."""

from __future__ import annotations

from random import Random

from devcluster.fakenodes import ANNOTATION
from tests.apiserver.operators import eventually
from tests.simulate import server as kinds
from tests.simulate.base_world import BaseWorld
from tests.simulate.facts import GPU, POOL
from tests.simulate.policies import NAMESPACES
from tests.simulate.server import Body
from tests.soak.mirror import LiveServer


class Ends:
    """What kubelets say of pods that end."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server

    def end(self, pod: Body, exit_code: int) -> None:
        """All containers of the pod end with that code."""
        end = {"exitCode": exit_code, "startedAt": None, "finishedAt": self.server.clock.text(), "reason": "Test"}
        states = [
            {
                "name": container["name"],
                "image": "i",
                "imageID": "i",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": end},
            }
            for container in pod["spec"]["containers"]
        ]
        phase = "Failed" if exit_code else "Succeeded"
        self.server.update(kinds.PODS, pod, status={"phase": phase, "containerStatuses": states})


class FakeNodesWorld(BaseWorld):
    """What happens on KWOK's nodes."""

    longest_delay = 3

    def __init__(self, server: LiveServer, rng: Random) -> None:
        super().__init__(server, rng)
        self.clock, self.machines = server.clock, Ends(server)
        for namespace in NAMESPACES:
            self._make_namespace(namespace)

    def _make_namespace(self, name: str) -> None:
        self.server.create(kinds.NAMESPACES, {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually(f"the service account of {name}", lambda: self.server.api.get(account).is_success)

    # -- what can be in it -------------------------------------------------------------------------------------------

    def add_node(self, gpus: int, pool: str, *, cpu: int = 64) -> Body:
        """A node that KWOK plays."""
        room = {GPU: str(gpus), "cpu": str(cpu), "pods": "110"}
        name = self.new_name("n")
        labels = {POOL: pool, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        meta = {"name": name, "labels": labels, "annotations": {ANNOTATION: "fake"}}
        return self.server.create(kinds.NODES, {"metadata": meta, "status": {"allocatable": room, "capacity": room}})

    def add_foreign(self, namespace: str, *, gpus: int, pool: str, cpu: int = 1, of_class: str = "") -> Body:
        """Somebody else's pod, for kube-scheduler to place."""
        limits = {GPU: str(gpus)} if gpus else {}
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": str(cpu)}, "limits": limits}}
        spec = {"containers": [container], "nodeSelector": {POOL: pool}, "priorityClassName": of_class}
        meta = {"name": self.new_name("foreign-"), "namespace": namespace}
        return self.server.create(kinds.PODS, {"metadata": meta, "spec": spec})
