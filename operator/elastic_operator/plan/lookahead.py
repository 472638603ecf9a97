"""Examines a decision as if it were carried out, before any job loses a pod for it (143).

The allocator runs once more, on the same input with the decision carried out. The second result is the decision of the
next pass:

* The next pass would evict pods that this pass creates for a job: the job gets nothing in this pass.
* The next pass would give a job back the pods that this pass evicts: this pass does not evict them.
* The next pass would do so by evicting pods of a third job: this pass evicts nevertheless. An owner preempts the
  weakest job, and that job preempts an even weaker one.

A decision that the next pass would undo is an error or a limit of the planner, so no job loses a pod for it. A decision
by which no job loses a pod is not examined, because undoing it does no harm.

A job is withheld for ten seconds at most, so that an error of the look-ahead cannot starve it. If the job's size then
changes again and again, the job is held (`flapping.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

from elastic_operator.plan.allocation.allocate import Allocator
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.decisions import Assignment
from elastic_operator.plan.facts.demand import Bar, JobDemand, Member, PreemptionBar
from elastic_operator.plan.facts.gpus import gpus_by_resource
from elastic_operator.plan.facts.node import UNUSED, Node, NodeUse
from elastic_operator.plan.facts.text import pods
from elastic_operator.plan.job.demand import with_members
from elastic_operator.plan.job.remaining_pods import frozen_demand
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

PATIENCE_SECONDS = 10.0
"""A job is withheld for this long at most, unless it would have two masters."""
REMEMBERED_SECONDS = 60.0
"""The time when a job was first to be withheld is forgotten this long after the last such time."""
TWO_MASTERS = "The job would have two masters."
_MAX_DECISIONS = 3
"""A pass is decided at most this many times; the last decision stands."""


class _Withheld(NamedTuple):
    """When a job was to be withheld: for the first time, and for the last one (epoch seconds)."""

    since: float
    last: float


class LookaheadAllocator:
    """Allocates in each pass, like `Allocator`, and withholds jobs for which the decision would not last."""

    def __init__(self) -> None:
        self._now, self._next = Allocator(), Allocator()
        self._withheld: dict[str, _Withheld] = {}
        """The jobs (uids) for which a decision would not have lasted."""
        self.again_at_epoch = inf
        """When (epoch seconds) the first of the jobs that were withheld is served again, if nothing else changes."""

    def allocate_unchecked(self, inputs: AllocationInputs) -> Allocation:
        """The allocation without a look ahead."""
        return self._now.allocate(inputs)

    def allocate(self, inputs: AllocationInputs) -> Allocation:
        """The allocation: the grants of all jobs. The allocation returned before must not be read any more."""
        withheld: dict[str, str] = {}
        changed: set[Entry] = set()
        self._forget_old(inputs.now)
        for tries in range(_MAX_DECISIONS):
            allocation = self._now.allocate(_without(inputs, withheld))
            changed |= allocation.changed_entries
            if not allocation.has_shrinking_jobs or tries == _MAX_DECISIONS - 1:
                break
            after = _with_bars(carried_out(inputs, allocation), allocation.waiting_for_gangs)
            more = would_not_last(inputs, allocation, self._next.allocate(after))
            more = {uid: why for uid, why in more.items() if self._is_withheld(uid, why, inputs.now)}
            if more.keys() <= withheld.keys():
                break
            withheld |= more
        allocation.withheld, allocation.changed_entries = withheld, changed
        times = (self._withheld[uid].since + PATIENCE_SECONDS for uid in withheld)
        self.again_at_epoch = min((time for time in times if time > inputs.now), default=inf)
        return allocation

    def _is_withheld(self, uid: str, why: str, now: float) -> bool:
        """Whether the job is withheld: for ten seconds at most, or for as long as it would have two masters."""
        since = self._withheld[uid].since if uid in self._withheld else now
        self._withheld[uid] = _Withheld(since, now)
        return why == TWO_MASTERS or now < since + PATIENCE_SECONDS

    def _forget_old(self, now: float) -> None:
        known = self._withheld.items()
        self._withheld = {uid: one for uid, one in known if one.since <= now < one.last + REMEMBERED_SECONDS}


def would_not_last(inputs: AllocationInputs, first: Allocation, second: Allocation) -> dict[str, str]:
    """The jobs (uids) that must get nothing in the `first` allocation, each with the reason in words.

    The `second` allocation is made from the input with the `first` carried out.
    """
    found: dict[str, str] = {}
    for job in inputs.jobs:
        assignment = first.assignment(job.uid)
        if not (assignment.create or assignment.release):
            continue
        after = second.assignment(job.uid)
        if _masters(job, assignment) > 1:
            found[job.uid] = TWO_MASTERS
        elif assignment.create and after.release and all(slot.node for slot in assignment.create):
            got, lost = pods(assignment.replicas), len(after.release)
            found[job.uid] = f"The job would get {got}, and lose {lost} of them at once."
        elif assignment.release and not assignment.create and after.create and not second.has_victims(job.uid):
            name, given = f"{job.namespace}/{job.name}", pods(len(assignment.release))
            text = f"{name} would lose {given} for this job, and get {len(after.create)} back at once."
            found |= dict.fromkeys(first.job_preemptors(job.uid), text)
    return found


def _masters(job: JobDemand, assignment: Assignment) -> int:
    kept = [member.role for member in job.members if member.uid in assignment.keep]
    return [*kept, *(slot.role for slot in assignment.create)].count(ROLE_MASTER)


def _without(inputs: AllocationInputs, uids: Mapping[str, object]) -> AllocationInputs:
    """The input in which these jobs keep their pods and demand no more."""
    if not uids:
        return inputs
    return replace(inputs, jobs=tuple(_frozen(job) if job.uid in uids else job for job in inputs.jobs))


def _with_bars(inputs: AllocationInputs, uids: Collection[str]) -> AllocationInputs:
    """The input in which these jobs preempt no pods. They wait for gangs, which have their nodes only later (217)."""
    if not uids:
        return inputs
    bar = Bar(PreemptionBar.GANG_FIRST)
    return replace(inputs, jobs=tuple(replace(job, bar=bar) if job.uid in uids else job for job in inputs.jobs))


def _frozen(job: JobDemand) -> JobDemand:
    return frozen_demand(job) if job.members else replace(job, wants_pods=False)


# -- carried out -------------------------------------------------------------------------------------------------------


def carried_out(inputs: AllocationInputs, allocation: Allocation) -> AllocationInputs:
    """The input as it will be when all leaving pods have left and all planned pods exist."""
    jobs = tuple(_applied(job, allocation.assignment(job.uid), inputs.now) for job in inputs.jobs)
    places = {one.uid: one.node for one in allocation.nominations}
    came: dict[str, list[JobDemand]] = {}
    for foreign_pod in inputs.foreign_pods:
        node = places.get(foreign_pod.uid) or foreign_pod.nominated
        if node:
            came.setdefault(node, []).append(foreign_pod.demand)
    nodes = tuple(_node_after(node, came.get(node.name, []), inputs.settings.gpu_resources) for node in inputs.nodes)
    here = {node.name for node in inputs.nodes}
    waiting = (one for one in inputs.foreign_pods if (places.get(one.uid) or one.nominated) not in here)
    evicted = {**inputs.eviction_limits.evicted_last_minute, **allocation.evicted_for}
    limits = replace(inputs.eviction_limits, evicted_last_minute=evicted)
    return replace(inputs, jobs=jobs, nodes=nodes, foreign_pods=tuple(waiting), eviction_limits=limits)


def _applied(job: JobDemand, assignment: Assignment, now: float) -> JobDemand:
    """The job as it will be; the same object if nothing about it changes."""
    if not (assignment.create or assignment.release):
        return job
    keep = set(assignment.keep)
    members = tuple(member for member in job.members if member.uid in keep)
    before_creates = replace(
        job,
        members=members,
        provisioning_pods=tuple(pod for pod in job.provisioning_pods if pod.uid in keep),
        used_indices=frozenset(member.index for member in members if member.role == ROLE_WORKER),
        undelayed_size=assignment.replicas,
        is_admitted=assignment.replicas > 0,
    )
    made = [Member.at(slot.pod_name(job.uid), slot, job.shape.of(slot.role)) for slot in assignment.create]
    after = with_members(before_creates, made)
    running_since = (job.running_since if job.members else now) if after.members else None
    waiting_since = (job.waiting_since or now) if after.lacks_minimum else None
    return replace(after, running_since=running_since, waiting_since=waiting_since)


def _node_after(node: Node, came: list[JobDemand], gpu_resources: tuple[str, ...]) -> Node:
    """The node when these foreign pods are bound to it, and all leaving pods have left."""
    if not came and node.leaving == UNUSED:
        return node
    use = node.used
    requests, gpus = Counter(use.requests), {name: Counter(held) for name, held in use.gpus_by_namespace.items()}
    for pod in came:
        requests.update(asked := pod.shape.master.requests)
        gpus.setdefault(pod.namespace, Counter()).update(gpus_by_resource(asked, gpu_resources))
    ports = use.ports.union(*(pod.shape.master.host_ports for pod in came))
    return replace(node, used=NodeUse(requests, ports, gpus), leaving=UNUSED)
