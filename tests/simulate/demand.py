"""The GPUs that teams use and request of one flavor, read from the cluster's objects."""

from __future__ import annotations

from datetime import datetime

from tests.simulate import server as kinds
from tests.simulate.facts import (
    GPU,
    Body,
    allocatable,
    ended,
    flavor_of,
    gpus_of,
    is_open,
    job_sizes,
    lacks_gpus,
    name_of,
    owner_of,
    place_of,
    requests_of,
    terminating,
)
from tests.simulate.policies import Policies
from tests.simulate.server import Server


class Demand:
    """GPUs per team, in all: those that stay, those in use at all, and what each team without others under it wants."""

    def __init__(self, server: Server, policies: Policies, flavor: str) -> None:
        self.policies, self.now = policies, server.clock.time()
        self.staying: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.requested: dict[str, int] = {}
        nodes = {name_of(node): node for node in server.all(kinds.NODES)}
        jobs = [job for job in server.all(kinds.JOBS) if _wants(job) and flavor_of(job["spec"]["template"]) == flavor]
        pods = [pod for pod in server.all(kinds.PODS) if flavor_of(pod) == flavor]
        bound = [pod for pod in pods if place_of(pod) in nodes and not ended(pod)]
        for pod in bound:
            self._add(self.held, pod, gpus_of(pod))
            if not terminating(pod) or owner_of(pod) is None:
                self._add(self.staying, pod, gpus_of(pod))
        self.has_late = any(terminating(pod) and self._is_late(pod) for pod in bound)
        for thing, gpus in (
            *((pod, gpus_of(pod)) for pod in bound if owner_of(pod) is None),
            *((pod, gpus_of(pod)) for pod in pods if lacks_gpus(pod)),
            *((job, self._largest(job)) for job in jobs),
        ):
            team = policies.team(thing["metadata"]["namespace"])
            self.requested[team] = self.requested.get(team, 0) + gpus
        for team in [*self.held, *policies.rules]:
            if team not in policies.parents.values():
                self.requested.setdefault(team, 0)
        ours = [node for node in nodes.values() if is_open(node) and node["metadata"]["labels"]["pool"] == flavor]
        closed = [gpus_of(pod) for pod in bound if not is_open(nodes[place_of(pod)])]
        self.capacity = sum(allocatable(node)[GPU] for node in ours) + sum(closed)

    def _add(self, book: dict[str, int], pod: Body, gpus: int) -> None:
        for team in self.policies.path(self.policies.team(pod["metadata"]["namespace"])):
            book[team] = book.get(team, 0) + gpus

    def _largest(self, job: Body) -> int:
        """GPUs of its largest size."""
        gpus, team = requests_of(job["spec"]["template"])[GPU], self.policies.team(job["metadata"]["namespace"])
        return gpus * max(self.policies.largest(team, job_sizes(job), gpus, 0), default=0)

    def _is_late(self, pod: Body) -> bool:
        """Whether it should have ended, so that what it holds counts as if it stayed."""
        return self.now > datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()


def _wants(job: Body) -> bool:
    return not job["spec"].get("suspend") and "completionTime" not in job.get("status", {})
