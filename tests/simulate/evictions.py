"""The evictions of one pass, and whether the rules allow them, by the pods and the plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import JobDemand
from tests.simulate import server as kinds
from tests.simulate.facts import (
    GPU,
    Body,
    allocatable,
    ended,
    flavor_of,
    gpus_of,
    holds,
    is_open,
    is_over,
    job_sizes,
    name_of,
    node_of,
    owner_of,
    place_of,
    priority_of,
    requests_of,
    room_for,
    staying,
    terminating,
)
from tests.simulate.policies import read_policies
from tests.simulate.preemptors import Preemptor, preemptors, promised
from tests.simulate.server import Server
from tests.simulate.violation import require


class Evictions:
    """The workers above their job's minimum, and the whole jobs, that a pass took for somebody else.

    `deleted` are the pods that it deleted. Where a pod may have gone for a reason of its job's own, it is not counted.
    """

    def __init__(self, server: Server, inputs: AllocationInputs, allocation: Allocation, deleted: list[Body]) -> None:
        self.server, self.allocation, self.policies = server, allocation, read_policies(server)
        self.jobs = {job["metadata"]["uid"]: job for job in server.all(kinds.JOBS)}
        self.members = {job.uid: job.members for job in inputs.jobs}
        self.deleted = {pod["metadata"]["uid"] for pod in deleted}
        self.taken = [pod for pod in deleted if self._is_taken(pod)]
        self.room_is_held = any(job.uid in self.jobs and self._starves(inputs, job) for job in inputs.jobs)
        self.preemptors = preemptors(server, self.policies, self.jobs, allocation)
        self.stopped = [uid for uid in self.members if self._is_stopped(uid)]

    def _starves(self, inputs: AllocationInputs, job: JobDemand) -> bool:
        since = job.waiting_since
        has_waited = since is not None and inputs.now >= since + inputs.settings.starvation_seconds
        return has_waited and not self.allocation[job.uid].assignment.replicas

    def _is_stopped(self, uid: str) -> bool:
        """Whether the job had at least its minimum, and has nothing from now on."""
        grant, job, members = self.allocation.get(uid), self.jobs.get(uid), self.members[uid]
        if grant is None or job is None or is_over(job) or job["spec"].get("suspend") or grant.assignment.replicas:
            return False
        whole = any(m.role == "master" for m in members) and len(members) in job_sizes(job)
        return whole and any(m.uid in self.deleted for m in members)

    def _is_taken(self, pod: Body) -> bool:
        """Whether its job had more than its minimum, keeps it, and might have kept this pod for all we know."""
        uid = owner_of(pod)["uid"]
        grant, job = self.allocation.get(uid), self.jobs.get(uid)
        if grant is None or job is None or is_over(job) or pod["metadata"]["uid"] not in grant.assignment.release:
            return False
        sizes, before = job_sizes(job), len(self.members[uid])
        plain = job["spec"].get("replicaStep", 1) == 1 and not grant.assignment.create
        return plain and sizes[0] <= grant.assignment.replicas < before <= sizes[-1] and not self._over_limit(pod)

    def _over_limit(self, pod: Body) -> bool:
        namespace, flavor = pod["metadata"]["namespace"], flavor_of(pod)
        path = self.policies.path(self.policies.team(namespace))
        return any(self._is_full(team, flavor) for team in path)

    def _is_full(self, team: str, flavor: str) -> bool:
        """Whether one more GPU would pass the team's limit."""
        limit = self.policies.rule(team, flavor).limit
        return limit is not None and self._use(team, flavor) >= limit

    def _use(self, team: str, flavor: str, *, leaving: bool = True) -> int:
        """GPUs that the team's pods hold, or that are planned for it; with or without what this pass took."""
        members, nodes = self.policies.members(team), {name_of(node) for node in self.server.all(kinds.NODES)}
        pods = [
            p for p in self.server.all(kinds.PODS) if p["metadata"]["namespace"] in members and place_of(p) in nodes
        ]
        pods = [p for p in pods if not ended(p) and flavor_of(p) == flavor]
        held = sum(gpus_of(p) for p in pods if leaving or p["metadata"]["uid"] not in self.deleted)
        coming = [(self.jobs[uid], gpus) for uid, _, gpus in self._coming()]
        ours = [(job, r) for job, r in coming if job["metadata"]["namespace"] in members and flavor == _flavor(job)]
        return held + sum(requests[GPU] for _, requests in ours)

    def _coming(self) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        """Job, node and requests of the pods that are planned and not made yet.

        A pod that is to go and come again elsewhere counts as not made, though its deletion may have failed so far.
        """
        going = {uid for grant in self.allocation.values() for uid in grant.assignment.release}
        pods = [pod for pod in self.server.all(kinds.PODS) if owner_of(pod) and staying(pod)]
        made = {(owner_of(pod)["uid"], name_of(pod)) for pod in pods if pod["metadata"]["uid"] not in going}
        for uid, grant in self.allocation.items():
            if uid in self.jobs:
                for slot in grant.assignment.create:
                    name = f"{name_of(self.jobs[uid])}-{slot.role}-{slot.index}"
                    if (uid, name) not in made:
                        yield uid, slot.node, requests_of(self.jobs[uid]["spec"]["template"]) | {"pods": 1}

    def check(self) -> None:
        """None of them could be given back, they are no more than what came, and none was on a closed node."""
        nodes = {name_of(node): node for node in self.server.all(kinds.NODES)}
        for pod in self.taken:
            node = nodes.get(place_of(pod))
            if node is None:
                continue
            require(is_open(node), f"{name_of(pod)} is taken, and nobody can use its node {name_of(node)}")
            held = [*self._staying_on(name_of(node)), *(r for _, where, r in self._coming() if where == name_of(node))]
            held += self._planned_for_foreign_pods(name_of(node))
            if self.room_is_held:
                continue  # the room may be held for a job that has waited too long
            require(not room_for(requests_of(pod), node, held), f"{name_of(pod)} is taken needlessly")
        self._not_more_than_came()
        self._only_from_who_must_give()

    def _planned_for_foreign_pods(self, node: str) -> list[Mapping[str, int]]:
        """What those ask for that are nominated for the node, or are to be."""
        places = {name_of(pod): (pod, where) for pod, where in promised(self.server)}
        pods = {pod["metadata"]["uid"]: pod for pod in self.server.all(kinds.PODS)}
        for one in self.allocation.nominations:
            if one.uid in pods:
                places[one.name] = pods[one.uid], one.node
        return [requests_of(pod) for pod, where in places.values() if where == node]

    def _not_more_than_came(self) -> None:
        bound = [pod for pod in self.taken if node_of(pod)]  # any other one waits for room that was taken before it
        taken = [pod for pod in bound if requests_of(pod)[GPU] == 1]
        shapes = {uid: requests_of(job["spec"]["template"]) for uid, job in self.jobs.items()}
        if any(preemptor.requests["cpu"] > 1 for preemptor in self.preemptors):
            return  # it may take several pods to make room for one
        coming = sum(
            len(grant.assignment.create) * shapes[uid][GPU] for uid, grant in self.allocation.items() if uid in shapes
        )
        coming += sum(gpus_of(pod) for pod, _ in promised(self.server)) + self._lost_to_who_was_faster()
        if len(taken) == len(bound):
            require(len(taken) <= coming, f"{list(map(name_of, taken))} are taken for {coming} GPUs")

    def _lost_to_who_was_faster(self) -> int:
        """GPUs that jobs' pods are pinned to and somebody else has got, so that room is made for them once more."""
        lost = 0
        for node in self.server.all(kinds.NODES):
            here = [pod for pod in self.server.all(kinds.PODS) if place_of(pod) == name_of(node)]
            there = [pod for pod in here if staying(pod) or pod["metadata"]["uid"] in self.deleted]
            lost += max(0, sum(map(gpus_of, there)) - allocatable(node)[GPU])
        return lost

    def _staying_on(self, node: str) -> list[Mapping[str, int]]:
        """What is held on the node once all that leaves in good order has left.

        Nobody counts on what others let go, or jobs that are gone: how long that takes is not ours to say.
        """
        pods = [pod for pod in self.server.all(kinds.PODS) if place_of(pod) == node and holds(pod)]
        return [requests_of(pod) for pod in pods if not terminating(pod) or self._is_late(pod) or self._is_others(pod)]

    def _is_others(self, pod: Body) -> bool:
        return not owner_of(pod) or owner_of(pod)["uid"] not in self.jobs

    def _is_late(self, pod: Body) -> bool:
        until = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp()
        return pod["metadata"]["uid"] not in self.deleted and self.server.clock.time() > until

    # -- who must give -----------------------------------------------------------------------------------------------

    def _only_from_who_must_give(self) -> None:
        """Another team gives what it has beyond its guarantee; jobs of one team give way whole to a higher priority."""
        for uid in self.stopped:
            self._gives_way(self.jobs[uid])
        lost: dict[tuple[str, str], int] = {}
        for pod in self.taken:
            key = (self._team(self.jobs[owner_of(pod)["uid"]]), flavor_of(pod))
            lost[key] = max(lost.get(key, 0), gpus_of(pod))
        for uid in self.stopped:
            job = self.jobs[uid]
            key, gpus = (self._team(job), _flavor(job)), requests_of(job["spec"]["template"])[GPU]
            lost[key] = max(lost.get(key, 0), gpus * len(self.members[uid]))
        for (team, flavor), largest in lost.items():
            self._was_beyond_its_guarantee(team, flavor, largest)

    def _gives_way(self, job: Body) -> None:
        gaining = self._preemptors(_flavor(job))
        require(gaining, f"{name_of(job)} is stopped, and nobody gets anything")
        if all(preemptor.team == self._team(job) for preemptor in gaining):
            turns = self._team(job) in self.policies.in_turns
            higher = any(preemptor.priority >= priority_of(job) + (not turns) for preemptor in gaining)
            require(
                higher,
                f"{name_of(job)} is stopped for {[preemptor.name for preemptor in gaining]}, of no higher priority",
            )

    def _was_beyond_its_guarantee(self, team: str, flavor: str, largest: int) -> None:
        """Unless somebody of the team itself may have taken it; `largest` is what went together at most."""
        if any(team in self.policies.path(preemptor.team) for preemptor in self._preemptors(flavor)):
            return
        guaranteed = self.policies.rule(team, flavor).guaranteed
        used = self._use(team, flavor, leaving=False) + self._to_be_nominated(team, flavor)
        message = f"{team} is left {used} GPUs of {flavor}, of {guaranteed} that are guaranteed"
        require(used + largest > guaranteed, f"{message}: {sorted(map(name_of, self.taken))}, {self.stopped}")

    def _to_be_nominated(self, team: str, flavor: str) -> int:
        """GPUs of the team's foreign pods that have a place in what is planned, and are not nominated for it yet."""
        pods = {pod["metadata"]["uid"]: pod for pod in self.server.all(kinds.PODS)}
        nominated = {name_of(pod) for pod, _ in promised(self.server)}
        planned = [pods[one.uid] for one in self.allocation.nominations if one.uid in pods]
        members = self.policies.members(team)
        ours = [pod for pod in planned if pod["metadata"]["namespace"] in members and flavor_of(pod) == flavor]
        return sum(gpus_of(pod) for pod in ours if name_of(pod) not in nominated)

    def _preemptors(self, flavor: str) -> list[Preemptor]:
        """Those who get something of that flavor."""
        return [preemptor for preemptor in self.preemptors if preemptor.flavor == flavor]

    def _team(self, job: Body) -> str:
        return self.policies.team(job["metadata"]["namespace"])


def _flavor(job: Body) -> str:
    return flavor_of(job["spec"]["template"])
