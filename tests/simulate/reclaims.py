"""The reclaims of one pass: the nominated pods, the pods that are evicted for them, and the rule that allows it."""

from __future__ import annotations

from fractions import Fraction

from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.decisions import Nomination
from tests.simulate import server as kinds
from tests.simulate.demand import Demand
from tests.simulate.facts import (
    Body,
    ended,
    flavor_of,
    gpus_of,
    is_master,
    is_open,
    lacks_gpus,
    name_of,
    node_of,
    nominated_for,
    owner_of,
    place_of,
    pod_priority,
    preempts,
    requests_of,
    room_for,
    staying,
    suits,
    terminating,
)
from tests.simulate.policies import read_policies
from tests.simulate.preemptors import promised
from tests.simulate.rights import ByFairShare
from tests.simulate.server import Server
from tests.simulate.violation import require
from tests.simulate.wire import Write


class Reclaims:
    """The nominations of a pass, and the pods that it deleted for them."""

    def __init__(self, server: Server, allocation: Allocation, writes: list[Write]) -> None:
        self.server, self.allocation, self.writes = server, allocation, writes
        self.policies = read_policies(server)
        self.nodes = {name_of(node): node for node in server.all(kinds.NODES)}
        self.deleted = {w.pod["metadata"]["uid"]: w for w in writes if w.verb == "DELETE"}

    def check(self) -> None:
        """Each pod fits where it is nominated for, and was nominated before anybody went for it, by right."""
        for write in self.writes:
            if write.verb == "NOMINATE" and nominated_for(write.pod):
                self._fits_there(write.pod)
        for reclaim in self.allocation.nominations:
            pod = next((p for p in self.server.all(kinds.PODS) if p["metadata"]["uid"] == reclaim.uid), None)
            gone = [self.deleted[uid] for uid in reclaim.victims if uid in self.deleted]
            if gone:
                assert pod is not None, "nobody but the operator did anything meanwhile"
                self._evicted_for(pod, reclaim, gone)

    def _fits_there(self, pod: Body) -> None:
        """It waits for GPUs, and has room once all that leaves has left, beside others that are nominated there."""
        name = nominated_for(pod)
        message = f"{name_of(pod)} is nominated for {name}"
        require(lacks_gpus(pod), f"{message}, though it does not wait for GPUs")
        node = self.nodes.get(name)
        require(node is not None and is_open(node) and suits(pod, node), f"{message}, which is not open to it")
        assert node is not None, "required just now"
        here = [p for p in self.server.all(kinds.PODS) if node_of(p) == name and not ended(p)]
        going = {uid for job in self.allocation for uid in self.allocation.assignment(job).release}
        held = [requests_of(p) for p in here if not terminating(p) and p["metadata"]["uid"] not in going]
        rest = [requests_of(p) for p, where in promised(self.server) if where == name and name_of(p) != name_of(pod)]
        require(room_for(requests_of(pod), node, [*held, *rest]), f"{message}, and has no room there")

    def _evicted_for(self, pod: Body, reclaim: Nomination, gone: list[Write]) -> None:
        names = [name_of(write.pod) for write in gone]
        for write in gone:
            early = write.promised.get(reclaim.uid) != reclaim.node
            require(not early, f"{name_of(write.pod)} is evicted for {name_of(pod)}, which is not nominated")
            higher = preempts(pod) and pod_priority(pod) > pod_priority(write.pod)
            require(not higher, f"{name_of(write.pod)} is evicted for {name_of(pod)}, for which the scheduler preempts")
        if requests_of(pod)["cpu"] == 1 and gpus_of(pod) == 1 and self._keep_their_jobs(gone):
            bound = sum(bool(node_of(write.pod)) for write in gone)
            others = sum(gpus_of(one) for one in self.server.all(kinds.PODS) if self._waits_on(one, reclaim.node))
            require(bound <= 1 + others, f"{names} are evicted for {name_of(pod)}, which asks for one GPU")
        self._is_entitled(pod, gone)

    def _waits_on(self, pod: Body, node: str) -> bool:
        """Whether it is a job's, and somebody was faster on the node that it is pinned to: room is made for it, too."""
        return bool(owner_of(pod)) and staying(pod) and not node_of(pod) and place_of(pod) == node

    def _keep_their_jobs(self, gone: list[Write]) -> bool:
        """Whether none of them belongs to a job that is stopped, or started over, as a whole."""
        if any(is_master(write.pod) for write in gone):
            return False
        owners = {write.pod["metadata"]["ownerReferences"][0]["uid"] for write in gone}
        return all(self.allocation.assignment(uid).replicas for uid in owners if uid in self.allocation)

    def _is_entitled(self, pod: Body, gone: list[Write]) -> None:
        """Within its guarantee or its fair share, where the two teams are apart; in doubt it is.

        What flooring leaves over may make each share on its path one more.
        """
        flavor, team = flavor_of(pod), self.policies.team(pod["metadata"]["namespace"])
        demand = Demand(self.server, self.policies, flavor)
        if self.policies.keeps_back(flavor) or demand.has_late:
            return
        right = ByFairShare(self.policies, flavor, demand.capacity, demand.requested)
        for write in gone:
            other = self.policies.team(write.pod["metadata"]["namespace"])
            ours, theirs = self.policies.apart(team, other), self.policies.apart(other, team)
            if not ours or not theirs:
                continue
            after = {one: demand.staying.get(one, 0) + gpus_of(pod) for one in ours}
            within = all(after[one] <= self.policies.rule(one, flavor).guaranteed for one in ours)
            message = f"{name_of(write.pod)} of {other} is evicted for {name_of(pod)} of {team}"
            for one in ours:
                most = max(right.shares[one] + 2, self.policies.rule(one, flavor).guaranteed)
                require(after[one] <= most, f"{message}, which would use {after[one]} GPUs of {most}")
            before, top = demand.held.get(theirs[-1], 0), theirs[-1]
            if not within and right.shares[top] >= before and right.shares[top]:
                low = Fraction(after[ours[-1]], right.shares[ours[-1]] + 2)
                require(Fraction(before, right.shares[top]) >= low, f"{message}, though its share value ends up lower")
