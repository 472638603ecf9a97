"""The rules that hold at any time. The checker reads only the cluster's objects and the policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random

from elastic_operator.plan.facts.decisions import Grant
from tests.simulate import server as kinds
from tests.simulate.decisions import comes_out_again, order_says_nothing
from tests.simulate.entitled import check_entitlements, check_quarantined
from tests.simulate.evictions import Evictions
from tests.simulate.facts import (
    Body,
    ended,
    flavor_of,
    gpus_of,
    holds,
    is_master,
    is_open,
    is_over,
    job_sizes,
    name_of,
    owner_of,
    place_of,
    requests_of,
    reservation_in,
    room_for,
    staying,
    suits,
    terminating,
)
from tests.simulate.operators import Operator
from tests.simulate.policies import read_policies
from tests.simulate.preemptors import promised
from tests.simulate.reclaims import Reclaims
from tests.simulate.server import Server
from tests.simulate.violation import require
from tests.simulate.wire import Write


class Checker:
    """Checks the rules after each pass. `changes` counts the pods that the operator made and deleted."""

    def __init__(self, server: Server, rng: Random) -> None:
        self.server, self.rng = server, rng
        self.changes = 0
        self._made: set[str] = set()
        """Uids of the jobs that got pods since the last pause."""
        self._looked_at_by: dict[str, Operator] = {}
        """By their uids the jobs that were not quarantined in a pass, and the operator that made the last such pass."""

    # -- after each pass ---------------------------------------------------------------------------------------------

    def after_pass(self, operator: Operator) -> None:
        """The pass and its writes are over, and nobody else has done anything yet."""
        writes = operator.wire.pod_writes
        jobs = self.server.all(kinds.JOBS)
        self._looked_at_by |= {j["metadata"]["uid"]: operator for j in jobs if name_of(j) not in self.server.aside}
        self.changes += len(writes)
        created = [write.pod for write in writes if write.verb == "POST"]
        self._made |= {owner_of(pod)["uid"] for pod in created}
        if created:
            self._no_gpu_twice(created)
            self._no_limit_passed(created)
            self._no_job_too_large(created, operator)
            self._nothing_kept_beyond_the_guarantee(created)
        if operator.faults.failed_at < self.server.clock.monotonic() and not operator.faults.cut_off:
            self._no_master_first(writes, operator.allocation or {})
        if writes:
            self._is_sound(operator, writes)

    def _no_gpu_twice(self, created: list[Body]) -> None:
        nodes = {name_of(node): node for node in self.server.all(kinds.NODES)}
        for pod in created:
            place = place_of(pod)
            require(place in nodes, f"{name_of(pod)} is pinned to {place or 'no node'}, which is none")
            node = nodes[place]
            require(is_open(node) and suits(pod, node), f"{name_of(pod)} is pinned to {place}, which is not open to it")
            held = self.held_on(place)
            taken = [requests_of(p) for p in held if p["metadata"]["uid"] != pod["metadata"]["uid"]]
            require(
                room_for(requests_of(pod), node, taken),
                f"{name_of(pod)} is made on {place}, which is full: {sorted(map(name_of, held))}",
            )
            others = [requests_of(p) for p in held if p["metadata"]["uid"] != pod["metadata"]["uid"] and staying(p)]
            kept = [other for other, where in self._kept() if where == place and gpus_of(other)]
            # Whoever has higher priority may have been faster: then nothing is left to be kept.
            kept = [other for other in kept if room_for(requests_of(other), node, others)]
            others += map(requests_of, kept)
            message = f"{name_of(pod)} is made on {place}, where its room is kept for {sorted(map(name_of, kept))}"
            require(room_for(requests_of(pod), node, others) or not kept, message)

    def _kept(self) -> Iterator[tuple[Body, str]]:
        """Foreign pods that are nominated for a node, with that node; but for those that are quarantined."""
        return ((pod, node) for pod, node in promised(self.server) if name_of(pod) not in self.server.aside)

    def held_on(self, place: str) -> list[Body]:
        """Pods that hold room on the node: bound or pinned to it, and not ended; terminating ones hold theirs."""
        return [pod for pod in self.server.all(kinds.PODS) if place_of(pod) == place and holds(pod)]

    def _no_limit_passed(self, created: list[Body]) -> None:
        policies = read_policies(self.server)
        for namespace, flavor in sorted({(pod["metadata"]["namespace"], flavor_of(pod)) for pod in created}):
            for team in policies.path(policies.team(namespace)):
                limit, used = policies.rule(team, flavor).limit, self.used(policies.members(team), flavor)
                made = [name_of(pod) for pod in created if pod["metadata"]["namespace"] == namespace]
                require(
                    limit is None or used <= limit or namespace not in policies.members(team),
                    f"{team} uses {used} GPUs of {flavor}, its limit is {limit}, and {made} were made",
                )

    def _no_job_too_large(self, created: list[Body], operator: Operator) -> None:
        """Unless it had as many pods before."""
        policies, inputs = read_policies(self.server), operator.inputs
        had = {job.uid: len(job.members) for job in inputs.jobs} if inputs else {}
        for pod in created:
            most, uid = policies.per_job.get(policies.team(pod["metadata"]["namespace"])), owner_of(pod)["uid"]
            pods = [one for one in self.pods_of(uid) if staying(one)]
            gpus = sum(map(gpus_of, pods))
            message = f"{name_of(pod)} is made: {gpus} GPUs of {most} that a job may have"
            require(most is None or gpus <= most or len(pods) <= had[uid], message)

    def _nothing_kept_beyond_the_guarantee(self, created: list[Body]) -> None:
        """What cannot be taken back is within the guarantee, at every level."""
        policies = read_policies(self.server)
        kept = {j["metadata"]["uid"] for j in self.server.all(kinds.JOBS) if not j["spec"].get("preemptible", True)}
        nodes = {name_of(node) for node in self.server.all(kinds.NODES)}
        pods = [p for p in self.server.all(kinds.PODS) if owner_of(p) and owner_of(p)["uid"] in kept and staying(p)]
        pods = [pod for pod in pods if place_of(pod) in nodes]
        for made in created:
            flavor, namespace = flavor_of(made), made["metadata"]["namespace"]
            for team in policies.path(policies.team(namespace)) if owner_of(made)["uid"] in kept else ():
                guaranteed, members = policies.rule(team, flavor).guaranteed, policies.members(team)
                held = [p for p in pods if p["metadata"]["namespace"] in members and flavor_of(p) == flavor]
                used = sum(map(gpus_of, held))
                message = f"jobs that are not preemptible hold {used} GPUs of {team}, {guaranteed} are guaranteed"
                require(used <= guaranteed, f"{message}, and {name_of(made)} was made")

    def used(self, namespaces: set[str], flavor: str) -> int:
        """GPUs of the flavor that pods of these namespaces hold."""
        nodes = {name_of(node) for node in self.server.all(kinds.NODES)}
        pods = [p for p in self.server.all(kinds.PODS) if p["metadata"]["namespace"] in namespaces]
        held = [pod for pod in pods if place_of(pod) in nodes and holds(pod) and flavor_of(pod) == flavor]
        return sum(map(gpus_of, held))

    def _is_sound(self, operator: Operator, writes: list[Write]) -> None:
        """The decision behind the writes does not depend on chance, and takes from nobody without need."""
        inputs, allocation = operator.inputs, operator.allocation
        assert inputs is not None
        assert allocation is not None
        order_says_nothing(replace(inputs, now=self.server.clock.time()), self.rng)
        Reclaims(self.server, allocation, writes).check()
        deleted = [write.pod for write in writes if write.verb == "DELETE"]
        if deleted:
            Evictions(self.server, inputs, allocation, deleted).check()
            self._nothing_taken_from_who_may_keep(operator, deleted)

    def _nothing_taken_from_who_may_keep(self, operator: Operator, deleted: list[Body]) -> None:
        """A job that is not preemptible, and has its minimum, gives nothing but what is beyond its own largest size.

        Of one that was quarantined before this operator looked at it, nobody knows that it is not.
        """
        allocation = operator.allocation
        assert allocation is not None
        jobs = {job["metadata"]["uid"]: job for job in self.server.all(kinds.JOBS)}
        for pod in deleted:
            uid = owner_of(pod)["uid"]
            job = jobs.get(uid)
            if job is None or is_over(job) or job["spec"].get("preemptible", True) or uid not in allocation:
                continue
            if name_of(job) in self.server.aside and self._looked_at_by.get(uid) is not operator:
                continue
            share, sizes = allocation.assignment(uid), job_sizes(job)
            before = len(share.keep) + len(share.release)
            taken = pod["metadata"]["uid"] in share.release and before in sizes and not job["spec"].get("suspend")
            require(not taken, f"{name_of(pod)} is taken from a job that is not preemptible")

    def _no_master_first(self, writes: list[Write], allocation: Mapping[str, Grant]) -> None:
        """A master goes with all its workers, unless another one is to come at once."""
        for write in writes:
            if write.verb == "DELETE" and is_master(write.pod) and not ended(write.pod):
                uid = owner_of(write.pod)["uid"]
                left = [name_of(p) for p in self.pods_of(uid) if staying(p)]
                moves = uid in allocation and any(slot.role == "master" for slot in allocation[uid].assignment.create)
                require(not left or moves, f"the master {name_of(write.pod)} is deleted, and {left} stay")

    def pods_of(self, job: str) -> list[Body]:
        """The pods of the job with that uid."""
        pods = [pod for pod in self.server.all(kinds.PODS) if owner_of(pod)]
        return [pod for pod in pods if owner_of(pod)["uid"] == job]

    # -- when nobody has anything to do ------------------------------------------------------------------------------

    def at_pause(self) -> None:
        """Nothing more changes until time passes or something happens."""
        for job in self.server.all(kinds.JOBS):
            self._min_or_nothing(job)
        self.look_away()

    def look_away(self) -> None:
        """What was made so far may be undone by others before the next pause."""
        self._made.clear()

    def _min_or_nothing(self, job: Body) -> None:
        uid = job["metadata"]["uid"]
        if is_over(job) or name_of(job) in self.server.aside:
            return
        pods = [pod for pod in self.pods_of(uid) if staying(pod)]
        allowed = (0,) if job["spec"].get("suspend") else (0, *job_sizes(job))
        if len(pods) in allowed or any(map(terminating, self.server.all(kinds.PODS))):
            return  # while a pod does not end terminating, some of those that wait for its room may be there already
        message = f"{name_of(job)} has {len(pods)} pods, of sizes {allowed}"
        require(len(pods) < max(allowed), message)
        require(uid not in self._made, f"{message}, and some were made just now")
        require(len(pods) < allowed[1], message)

    def _kept_by_who_cannot_act(self, operator: Operator) -> set[str]:
        """The flavors in which somebody may wait for pods of a job at which the operator raises when it lets them go.

        Who waits for them holds places elsewhere as well, so it may be anybody of that flavor.
        """
        allocation, jobs = operator.allocation, self.server.all(kinds.JOBS)
        assert allocation is not None
        silent = {j["metadata"]["uid"]: j for j in jobs if self.server.aside.get(name_of(j)) == "act"}
        letting = [job for uid, job in silent.items() if uid in allocation and allocation.assignment(uid).release]
        pods = [pod for job in letting for pod in self.pods_of(job["metadata"]["uid"])]
        return {flavor_of(thing) for thing in (*pods, *(job["spec"]["template"] for job in letting))}

    def at_rest(self, operator: Operator) -> None:
        """Nothing more changes, however long one waits."""
        inputs = operator.inputs
        assert inputs is not None
        unclear = self._kept_by_who_cannot_act(operator)
        comes_out_again(replace(inputs, now=self.server.clock.time()), unclear)
        check_entitlements(self.server, unclear)
        check_quarantined(self.server)
        for pod, node in self._kept():
            require(not reservation_in(pod), f"{node} is kept for {name_of(pod)}, which does not get there")
