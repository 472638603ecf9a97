"""Small builders of nodes, jobs and the allocation's inputs, and a one-line notation for grants."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs, AllocationSettings
from elastic_operator.plan.facts.decisions import Grant, Slot
from elastic_operator.plan.facts.demand import JobDemand, Member
from elastic_operator.plan.facts.node import Node, NodeUse
from elastic_operator.plan.facts.requirements import JobShape, PodShape
from elastic_operator.plan.facts.team import DEFAULT_FLAVOR, NO_POLICY, Flavor, Quota, Team, Teams

GPU = "nvidia.com/gpu"
NOW = 1000.0
FLAVORS = (Flavor(),)


def make_node(
    name="n1",
    gpus=4,
    *,
    cpu=64,
    pods=110,
    used=0,
    leaving=0,
    cordoned=False,
    used_cpu=0,
    used_ports=frozenset(),
    leaving_ports=frozenset(),
    by="other",
    **more,
):
    """A node; `used` and `leaving` are GPUs of the namespace `by`, `cpu` and `used_cpu` cores."""
    return Node(
        name=name,
        allocatable={GPU: gpus, "cpu": cpu * 1000, "pods": pods},
        used=make_use({GPU: used, "cpu": used_cpu * 1000}, by, used_ports),
        leaving=make_use({GPU: leaving}, by, leaving_ports),
        unschedulable=cordoned,
        **more,
    )


def make_use(requests, by="other", ports=frozenset()):
    """The use of a node by pods of the namespace `by`."""
    gpus = requests.get(GPU, 0)
    return NodeUse(requests, ports, {by: {GPU: gpus}} if gpus else {})


def make_shape(gpus=1, *, cpu=1, **more):
    """A pod shape; `cpu` in cores."""
    return PodShape(requests={GPU: gpus, "cpu": cpu * 1000, "pods": 1}, gpus=gpus, **more)


def make_members(job, on, master, worker):
    """Members from a text such as "n1 n2 w3@n1": the master, then workers 0, 1 ...; `?` is no node, `-` is a gap."""
    members = []
    for i, word in enumerate(on.split()):
        index, _, node = word.rpartition("@")
        role = "worker" if i or index else "master"
        number = int(index[1:]) if index else max(0, i - 1)
        shape = worker if role == "worker" else master
        if node != "-":
            where = None if node == "?" else node
            members.append(Member.at(f"{job}-{role[0]}{number}", Slot(role, number, where, True), shape))
    return tuple(members)


def make_job(name, low=1, high=None, *, on="", sizes=None, shape=None, master=None, age=0, holds=None, free=99, **more):
    """A job; `age` makes it older, `on` says where its members are, `free` is `undelayed_size`."""
    worker = shape or make_shape()
    master = master or worker
    job_shape = JobShape(
        master,
        worker,
        more.pop("flavor", DEFAULT_FLAVOR),
        more.pop("flavor_problem", ""),
        more.pop("lowest_priority", 0),
    )
    return JobDemand(
        uid=name,
        namespace=more.pop("team", "team-a"),
        name=name,
        priority=more.pop("priority", 0),
        created=NOW - age,
        sizes=tuple(range(low, (high or low) + 1)) if sizes is None else sizes,
        shape=job_shape,
        members=make_members(name, on, master, worker),
        is_admitted=bool(on) if holds is None else holds,
        undelayed_size=free,
        **more,
    )


def make_team(name="team-a", guaranteed=0, *, borrow=None, weight=1, lend=None, flavor="default", quotas=None, **more):
    """A team and its quota of one flavor (`borrow` and `lend` are limits), or of those in `quotas`."""
    quota = Quota(guaranteed=guaranteed, borrow_limit=borrow, weight=weight, lend_limit=lend)
    return Team(name, quotas={flavor: quota} if quotas is None else quotas, **more)


def make_inputs(nodes, jobs, now=NOW, *, teams=(), flavors=FLAVORS, default_team=NO_POLICY, **more):
    """The inputs of an allocation; each team without children owns the namespace of its name."""
    parents = {team.parent for team in teams}
    owners = {team.name: team.name for team in teams if team.name not in parents}
    return AllocationInputs(
        now=now,
        nodes=tuple(nodes),
        jobs=tuple(jobs),
        settings=AllocationSettings((GPU,), flavors),
        teams=Teams(tuple(teams), more.pop("covered", owners), default_team),
        **more,
    )


def grants(nodes, jobs, now=NOW, **more):
    """What each job is granted."""
    return allocate(make_inputs(nodes, jobs, now, **more))


def notation(grant: Grant) -> str:
    """`m0 w0 +w1@n2 ~w2@n1 -w3`: kept, to create now, to create soon, released."""
    kept = [uid.rpartition("-")[2] for uid in grant.assignment.keep]
    new = [f"{'+' if s.ready else '~'}{s.role[0]}{s.index}@{s.node or '?'}" for s in grant.assignment.create]
    gone = [f"-{uid.rpartition('-')[2]}" for uid in grant.assignment.release]
    return " ".join(kept + new + gone)


def outcome(nodes, jobs, now=NOW, **more):
    """The grants of all jobs in the one-line notation."""
    return {uid: notation(grant) for uid, grant in grants(nodes, jobs, now, **more).items()}


def carried_out(
    inputs: AllocationInputs, granted: dict[str, Grant], *, gone=True, only_ready=False
) -> AllocationInputs:
    """The input after the grants were carried out.

    gone: released and leaving pods have left; else released ones are leaving now.
    only_ready: pods were only created where room was free, and the first ones of a job only with its whole minimum.
    """
    jobs = tuple(_applied(job, granted[job.uid], only_ready) for job in inputs.jobs)
    released = {uid for grant in granted.values() for uid in grant.assignment.release}
    nodes = []
    for node in inputs.nodes:
        going = Counter(node.leaving.requests)
        whose = {ns: Counter(held) for ns, held in node.leaving.gpus_by_namespace.items()}
        for job in inputs.jobs:
            for member in job.members:
                if member.uid in released and member.node == node.name:
                    going.update(member.requests)
                    whose.setdefault(job.namespace, Counter())[GPU] += member.requests.get(GPU, 0)
        nodes.append(replace(node, leaving=NodeUse() if gone else NodeUse(going, node.leaving.ports, whose)))
    return replace(inputs, jobs=jobs, nodes=tuple(nodes))


def _applied(job: JobDemand, grant: Grant, only_ready: bool) -> JobDemand:
    members = [m for m in job.members if m.uid in grant.assignment.keep]
    ready = [slot for slot in grant.assignment.create if slot.ready]
    waits = only_ready and not members and (len(ready) < job.sizes[0] or all(s.role == "worker" for s in ready))
    slots = [slot for slot in grant.assignment.create if slot.ready or not only_ready]
    reached = [size for size in job.sizes if len(members) <= size <= len(members) + len(slots)]
    for slot in () if waits else slots[: reached[-1] - len(members)] if reached else slots:
        shape = job.shape.of(slot.role)
        uid = f"{job.uid}-{slot.role[0]}{slot.index}"
        members.append(Member.at(uid, slot, shape))
    return replace(
        job, members=tuple(members), undelayed_size=grant.assignment.replicas, is_admitted=grant.assignment.replicas > 0
    )
