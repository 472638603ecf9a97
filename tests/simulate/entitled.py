"""Checks, on a cluster at rest, that each job and pod has the GPUs to which its team is entitled.

The check tries the next size of each job, pod by pod. A job may have its next size if its team is entitled to it, and
its pods fit into the free resources. Workers of other teams' jobs above their minimum count as free if these teams must
give them back. In cases where the rules leave doubt, the check claims nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from elastic_api.status import MAX_HISTORY
from tests.simulate import server as kinds
from tests.simulate.facts import (
    GPU,
    Amounts,
    Body,
    allocatable,
    avoids,
    flavor_of,
    gpus_of,
    holds,
    is_master,
    is_open,
    is_over,
    job_sizes,
    lacks_gpus,
    name_of,
    nominated_for,
    owner_of,
    place_of,
    pod_priority,
    preempts,
    requests_of,
    staying,
    suits,
    terminating,
)
from tests.simulate.policies import read_policies
from tests.simulate.rights import ByFairShare, ByGuarantee, Right
from tests.simulate.server import Server
from tests.simulate.violation import require

GIVE_NOTHING = ("allocate", "act")
"""Stations of which a job that is quarantined takes no part in allocations, or gets none of them carried out."""
ALWAYS = ("facts", "observe", "reconcile")
"""Stations by which each job comes every two minutes."""
STARVATION_SECONDS = 600
"""A job that has waited for so long holds what becomes free."""


@dataclass(slots=True)
class Trial:
    """A try of one job's next size: the GPUs that each team uses then, the room left on each node, and the victims."""

    used: dict[str, int]
    free: dict[str, dict[str, int]]
    taken: list[str] = field(default_factory=list)


def check_entitlements(server: Server, unclear: Collection[str] = ()) -> None:
    """Nobody is kept from what it is entitled to by what others have beyond theirs, but in flavors that are unclear.

    A pod that does not end terminating keeps its job's places reserved; then nothing is claimed.
    """
    state = State(server)
    if any(map(terminating, state.pods)):
        return
    for job in (*state.jobs.values(), *state.foreign()):
        if _flavor(job) in unclear:
            continue
        for right in state.rights(job):
            state.has_its_next_size(job, right)


def check_quarantined(server: Server) -> None:
    """Who is quarantined says so, and nobody else does."""
    for job in server.all(kinds.JOBS):
        conditions = {one["type"]: one["reason"] for one in _status(job).get("conditions", ())}
        says, station = conditions.get("Ready") == "InternalError", server.aside.get(name_of(job), "")
        require(station or not says, f"{name_of(job)} says InternalError, and nothing raises for it")
        silent = station in ALWAYS and not says and "completionTime" not in _status(job)
        require(not silent, f"{station!r} raises for {name_of(job)}, which does not say so")


class State:
    """A cluster at rest."""

    def __init__(self, server: Server) -> None:
        self.policies, self.now = read_policies(server), server.clock.time()
        self.nodes = {name_of(n): n for n in server.all(kinds.NODES)}
        self.aside = server.aside
        self.jobs = {j["metadata"]["uid"]: j for j in server.all(kinds.JOBS) if not is_over(j)}
        self.pods = [pod for pod in server.all(kinds.PODS) if place_of(pod) in self.nodes and holds(pod)]
        self.waiting = [pod for pod in server.all(kinds.PODS) if lacks_gpus(pod) and name_of(pod) not in self.aside]
        self.of_job: dict[str, list[Body]] = {uid: [] for uid in self.jobs}
        for pod in self.pods:
            if owner_of(pod) and owner_of(pod)["uid"] in self.of_job and staying(pod):
                self.of_job[owner_of(pod)["uid"]].append(pod)

    def of_jobs_that_are_over(self) -> Iterator[Body]:
        """Pods that nobody makes go, but whoever is entitled to their GPUs."""
        return (pod for pod in self.pods if owner_of(pod) and owner_of(pod)["uid"] not in self.jobs and staying(pod))

    def foreign(self) -> Iterator[Body]:
        """Foreign pods for which pods must be evicted if they are entitled to it, as jobs of one pod."""
        for pod in self.waiting:
            by_itself = preempts(pod) and pod_priority(pod) > 0
            if not by_itself and not avoids(pod, self.now) and not nominated_for(pod):
                yield {**pod, "spec": {"template": pod, "minReplicas": 1, "maxReplicas": 1}}

    def rights(self, job: Body) -> Iterator[Right]:
        """By what the job may take from others."""
        flavor = _flavor(job)
        yield ByGuarantee(self.policies, flavor)
        if not self.policies.keeps_back(flavor) and job["spec"].get("preemptible", True):
            yield ByFairShare(self.policies, flavor, self._capacity(flavor), self._requested(flavor))

    def has_its_next_size(self, job: Body, right: Right) -> None:
        """Unless its team may not have it, or it cannot be placed."""
        count, requests, team = self._missing(job), requests_of(job["spec"]["template"]), self._team(job)
        used, need = self._use(_flavor(job)), count * requests[GPU]
        if not count or not right.covers(team, need, used):
            return
        starving = [other for other in self._starving() if other is not job]
        if any(set(self.policies.path(self._team(other))) & set(self.policies.path(team)) for other in starving):
            return
        trial = Trial(used, {name: self._free(node) for name, node in self.nodes.items()})
        if starving:
            for free in trial.free.values():
                free[GPU] = min(0, free[GPU])
        placed = all(self._place(job, requests, (count - i) * requests[GPU], trial, right) for i in range(count))
        message = f"{name_of(job)} of {team} lacks {count} pods within {right.name}"
        require(not placed, f"{message}; {trial.taken or 'nothing'} need go")

    # -- what there is -----------------------------------------------------------------------------------------------

    def _starving(self) -> Iterator[Body]:
        """Jobs that may hold what becomes free, since they have waited for so long."""
        for uid, job in self.jobs.items():
            age = self.now - datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp()
            waits = not self.of_job[uid] and not job["spec"].get("suspend") and name_of(job) not in self.aside
            if waits and age >= STARVATION_SECONDS:
                yield job

    def _missing(self, job: Body) -> int:
        """How many pods the next size takes; 0 if there is none, or it has a reason of its own to wait."""
        pods, spec = self.of_job.get(job["metadata"]["uid"], []), job["spec"]
        if spec.get("suspend") or "retry" in _status(job) or (pods and not any(map(is_master, pods))):
            return 0
        if name_of(job) in self.aside or not all(self._is_open(self.nodes[place_of(pod)]) for pod in pods):
            return 0
        size = next((n for n in self._sizes(job) if n > len(pods)), 0)
        return 0 if self._saves_its_work(job, size) else max(0, size - len(pods))

    def _saves_its_work(self, job: Body, size: int) -> bool:
        """Whether growth to that size would cost a Torchrun job more work than it brings, as far as is known (148)."""
        status, delay = _status(job), job["spec"].get("elasticity", {}).get("scaleUpDelaySeconds", 30)
        history, target = status.get("history", []), status.get("targetReplicas", 0)
        is_full = len(history) >= MAX_HISTORY and status.get("resizes", 0) > 0  # it may lack the growth
        grown = is_full or any(0 < change["from"] < change["to"] for change in history)
        if not grown or not delay or not 0 < target < size:
            return False
        waited = self.now - datetime.fromisoformat(history[0]["time"]).timestamp()
        return waited < min(7200, 1800 * target / (size - target))

    def _sizes(self, job: Body) -> tuple[int, ...]:
        """The sizes that its team allows it."""
        has = len(self.of_job.get(job["metadata"]["uid"], ()))
        return self.policies.largest(self._team(job), job_sizes(job), requests_of(job["spec"]["template"])[GPU], has)

    def _use(self, flavor: str) -> dict[str, int]:
        """GPUs per team, in all."""
        asking = (*self.jobs.values(), *self.waiting)
        used = dict.fromkeys((team for one in asking for team in self.policies.path(self._team(one))), 0)
        for pod in self.pods:
            if flavor_of(pod) == flavor:
                for team in self.policies.path(self.policies.team(pod["metadata"]["namespace"])):
                    used[team] = used.get(team, 0) + gpus_of(pod)
        return used

    def _requested(self, flavor: str) -> dict[str, int]:
        """GPUs per team without others under it, if every job had its largest size, and foreign pods their places."""
        used = self._use(flavor)
        requested = {team: gpus for team, gpus in used.items() if team not in self.policies.parents.values()}
        for uid, job in self.jobs.items():
            if _flavor(job) == flavor and not job["spec"].get("suspend") and name_of(job) not in self.aside:
                more = max(0, max(self._sizes(job), default=0) - len(self.of_job[uid]))
                requested[self._team(job)] += more * requests_of(job["spec"]["template"])[GPU]
        for pod in self.waiting:
            requested[self._team(pod)] += gpus_of(pod) if flavor_of(pod) == flavor else 0
        return requested

    def _is_open(self, node: Body) -> bool:
        return is_open(node) and name_of(node) not in self.aside

    def _capacity(self, flavor: str) -> int:
        """GPUs of open nodes, and those in use on the others."""
        opened = [
            node for node in self.nodes.values() if self._is_open(node) and node["metadata"]["labels"]["pool"] == flavor
        ]
        closed = [p for p in self.pods if flavor_of(p) == flavor and not self._is_open(self.nodes[place_of(p)])]
        return sum(allocatable(node)[GPU] for node in opened) + sum(map(gpus_of, closed))

    def _free(self, node: Body) -> dict[str, int]:
        free = allocatable(node)
        for pod in self.pods:
            if place_of(pod) == name_of(node):
                _give(free, requests_of(pod), -1)
        return free

    def _team(self, job: Body) -> str:
        return self.policies.team(job["metadata"]["namespace"])

    # -- trying it out -----------------------------------------------------------------------------------------------

    def _place(self, job: Body, requests: Amounts, need: int, trial: Trial, right: Right) -> bool:
        """Put one pod on the node with the fewest victims; False if it fits nowhere.

        `need`: the GPUs that the job still lacks in all.
        """
        ways = []
        for name, node in self.nodes.items():
            fits = self._is_open(node) and suits(job["spec"]["template"], node)
            victims = self._way(job, requests, need, name, trial, right) if fits else None
            if victims is not None:
                ways.append((len(victims), name, victims))
        if not ways:
            return False
        _, name, victims = min(ways, key=lambda way: way[:2])
        for victim in victims:
            self._take(victim, trial)
        _give(trial.free[name], requests, -1)
        for team in self.policies.path(self._team(job)):
            trial.used[team] += requests[GPU]
        return True

    def _way(self, job: Body, requests: Amounts, need: int, node: str, trial: Trial, right: Right) -> list[Body] | None:
        """The workers that must be evicted for the pod to fit on the node; None if it cannot.

        Nor where CPUs are short, too: which of several workers goes then decides how many others still can.
        """
        if trial.free[node].get("cpu", 0) < requests["cpu"]:
            return None
        trial = Trial(dict(trial.used), {node: dict(trial.free[node])}, [*trial.taken])
        victims: list[Body] = []
        while any(trial.free[node].get(name, 0) < amount for name, amount in requests.items()):
            able = (pod for pod in self._surplus(job, node, trial) if self._must_give(job, pod, need, trial, right))
            victim = next(able, None)
            if victim is None:
                return None
            victims.append(victim)
            self._take(victim, trial)
        return victims

    def _must_give(self, job: Body, victim: Body, need: int, trial: Trial, right: Right) -> bool:
        theirs = self.policies.team(victim["metadata"]["namespace"])
        return right.takes(self._team(job), need, theirs, gpus_of(victim), trial.used)

    def _surplus(self, job: Body, node: str, trial: Trial) -> Iterator[Body]:
        """Workers on the node that other teams' jobs have above their minimum; pods of jobs that are over."""
        for pod in self.of_jobs_that_are_over():
            if place_of(pod) == node and name_of(pod) not in trial.taken and self._team(pod) != self._team(job):
                yield pod
        for other in self.jobs.values():
            yield from (pod for pod in self._above_minimum(other, job, trial) if place_of(pod) == node)

    def _above_minimum(self, other: Body, job: Body, trial: Trial) -> list[Body]:
        """The highest indices go first; anything else is not tried."""
        spec, pods = other["spec"], self.of_job[other["metadata"]["uid"]]
        plain = (
            spec.get("preemptible", True)
            and self.aside.get(name_of(other)) not in GIVE_NOTHING
            and spec.get("replicaStep", 1) == 1
            and any(map(is_master, pods))
        )
        if not plain or spec.get("suspend") or self._team(other) == self._team(job):
            return []
        left = [pod for pod in pods if name_of(pod) not in trial.taken]
        workers = sorted((p for p in left if not is_master(p)), key=lambda p: -int(name_of(p).rpartition("-")[2]))
        return workers[: max(0, len(left) - spec["minReplicas"])]

    def _take(self, victim: Body, trial: Trial) -> None:
        trial.taken.append(name_of(victim))
        _give(trial.free[place_of(victim)], requests_of(victim), +1)
        for team in self.policies.path(self.policies.team(victim["metadata"]["namespace"])):
            trial.used[team] -= gpus_of(victim)


def _status(job: Body) -> Body:
    status: Body = job.get("status", {})
    return status


def _flavor(job: Body) -> str:
    return flavor_of(job["spec"]["template"])


def _give(free: dict[str, int], requests: Mapping[str, int], sign: int) -> None:
    for name, amount in requests.items():
        free[name] = free.get(name, 0) + sign * amount
