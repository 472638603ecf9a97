"""A cluster of fake nodes with real operators in which things happen at random, and what must hold when it rests."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

from devcluster.fakenodes import ANNOTATION
from tests.apiserver.operators import Operator, Operators, eventually
from tests.life.mirror import LiveServer, Photo
from tests.simulate import server as kinds
from tests.simulate.checker import Checker
from tests.simulate.entitled import check_entitlements
from tests.simulate.facts import (
    FLAVORS,
    GPU,
    POOL,
    ended,
    job_sizes,
    name_of,
    node_of,
    owner_of,
    place_of,
    staying,
    terminating,
)
from tests.simulate.players import Players
from tests.simulate.policies import NAMESPACES
from tests.simulate.server import Body
from tests.simulate.violation import require

FLAVOR_SETTINGS = [{"name": name, "resources": [GPU], "nodeSelector": {POOL: name}} for name in FLAVORS]
SETTINGS = {"ELASTIC_OPERATOR_FLAVORS": yaml.safe_dump(FLAVOR_SETTINGS, default_flow_style=True).strip()}
QUIET_SECONDS = 6.0
"""Without a change of any pod for so long, the cluster rests."""
REST_SECONDS = 180.0
"""It must come to rest in so long, if nothing more happens."""


class Ends:
    """What kubelets say of pods that end."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server

    def end(self, pod: Body, exit_code: int) -> None:
        """All containers of the pod end with that code."""
        end = {"exitCode": exit_code, "startedAt": None, "finishedAt": self.server.moments.text(), "reason": "Test"}
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


class FakeNodesWorld(Players):
    """What happens on KWOK's nodes; who plays the operator is told by who inherits."""

    longest_delay = 3

    def __init__(self, server: LiveServer, dice: Random) -> None:
        super().__init__(server, dice)
        self.moments, self.machines = server.moments, Ends(server)
        for namespace in NAMESPACES:
            self._make_namespace(namespace)

    def _make_namespace(self, name: str) -> None:
        self.server.create(kinds.NAMESPACES, {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        eventually(f"the service account of {name}", lambda: self.server.api.get(account).is_success)

    def leads(self) -> bool:
        """Whether an operator leads."""
        raise NotImplementedError

    def photo(self) -> Photo:
        """What is judged."""
        found: Photo = self.server.photo()
        return found

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

    # -- checks ------------------------------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Wait until no pod changes any more; then everybody has what is theirs."""
        photo = self.rest_within(REST_SECONDS)
        require(photo, f"pods come and go for {REST_SECONDS} s though nothing happens")
        assert photo is not None, "required just now"
        self.judge(photo)

    def judge(self, photo: Photo) -> None:
        """What must hold when nothing changes."""
        checker = Checker(photo, self.dice)  # type: ignore[arg-type]
        checker.at_pause()
        check_entitlements(photo)  # type: ignore[arg-type]
        self._limits_hold(photo)
        self._statuses_are_true(photo)

    def rest_within(self, seconds: float) -> Photo | None:
        """What there is once no pod changes any more; None if pods still do after so long."""
        deadline, seen, since = time.monotonic() + seconds, None, time.monotonic()
        while time.monotonic() < deadline:
            photo = self.photo()
            now = sorted(_state(pod) for pod in photo.all(kinds.PODS)), self.leads()
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since >= QUIET_SECONDS and self.leads() and not _on_no_node(photo):
                return photo
            time.sleep(0.5)
        return None

    def sizes_hold(self, photo: Photo) -> None:
        """At any moment no job has more pods than its largest size, if that was never another one."""
        for job in photo.all(kinds.JOBS):
            if job["metadata"]["generation"] > 1:
                continue  # of an edit the operator hears later, after a change of the leader much later
            pods = [p for p in photo.all(kinds.PODS) if owner_of(p) and owner_of(p)["uid"] == job["metadata"]["uid"]]
            most = job_sizes(job)[-1]
            require(len([p for p in pods if staying(p)]) <= most, f"{name_of(job)} > {most}")

    def _limits_hold(self, photo: Photo) -> None:
        """No job's pod is bound on a node beyond what the node has; kube-scheduler sees to it, and to nothing else."""
        for node in photo.all(kinds.NODES):
            here = [pod for pod in photo.all(kinds.PODS) if place_of(pod) == name_of(node) and staying(pod)]
            gpus = sum(int(c["resources"].get("limits", {}).get(GPU, 0)) for p in here for c in p["spec"]["containers"])
            has = int(node["status"]["allocatable"].get(GPU, 0))
            require(gpus <= has, f"{name_of(node)} has {has} GPUs, {gpus} are promised")

    def _statuses_are_true(self, photo: Photo) -> None:
        for job in photo.all(kinds.JOBS):
            status = job["status"]
            if "completionTime" in status or any(map(terminating, photo.all(kinds.PODS))):
                continue
            pods = [p for p in photo.all(kinds.PODS) if owner_of(p) and owner_of(p)["uid"] == job["metadata"]["uid"]]
            there = len([pod for pod in pods if staying(pod)])
            require(
                status.get("replicas", 0) == there, f"{name_of(job)} says {status.get('replicas')}, has {there} pods"
            )


class LiveWorld(FakeNodesWorld):
    """Operators are processes of this machine."""

    def __init__(self, server: LiveServer, operators: Operators, dice: Random) -> None:
        super().__init__(server, dice)
        self.operators = operators
        self.leaders: list[Operator] = [self._start(), self._start()]

    def _start(self) -> Operator:
        return self.operators.start(environ=SETTINGS)

    def leads(self) -> bool:
        """Whether one of them has led."""
        return any(operator.leads for operator in self.leaders)

    def change_leader(self) -> str:
        """An operator is killed, and another one comes."""
        gone = self.leaders.pop(self.dice.randrange(len(self.leaders)))
        led = gone.leads
        gone.kill()
        self.leaders.append(self._start())
        return f"an operator that {'led' if led else 'stood by'} is killed"

    def look(self) -> None:
        """What must hold at any moment."""
        for operator in self.leaders:
            require(operator.lives, f"an operator ended: {operator.text()[-2000:]}")
            require("Traceback" not in operator.text(), f"an operator failed: {operator.text()[-4000:]}")
        self.sizes_hold(self.photo())


Happening = Callable[[Any], str]


def _on_no_node(photo: Photo) -> list[str]:
    """Pods whose node was taken out of the cluster: the garbage collector deletes them within a minute."""
    nodes = set(map(name_of, photo.all(kinds.NODES)))
    bound = [pod for pod in photo.all(kinds.PODS) if node_of(pod) and not ended(pod)]
    return [name_of(pod) for pod in bound if node_of(pod) not in nodes]


def _state(pod: Body) -> tuple[str, ...]:
    status, meta = pod["status"], pod["metadata"]
    return (
        meta["uid"],
        status.get("phase", ""),
        place_of(pod),
        status.get("nominatedNodeName", ""),
        str(terminating(pod)),
    )
