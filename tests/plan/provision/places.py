"""Builders for jobs that may ask for nodes, and what becomes of the inputs when grants are carried out."""

from dataclasses import replace

from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.demand import Member, NodeRequest
from elastic_operator.plan.job.demand import with_members
from tests.plan.allocate.world import NOW, make_job, make_members


def asking(name="j", low=2, high=None, *, waits="", since=0, **more):
    """A job that may ask for nodes since so many seconds; `waits` are its waiting pods, such as "m0 w0"."""
    job = make_job(
        name, low, high, node_request=NodeRequest(NOW - since, NOW + 900 if waits else None), holds=bool(waits), **more
    )
    return replace(job, provisioning_pods=waiting_pods(job, waits))


def waiting_pods(job, text):
    """Pods without a node, by role and index."""
    every = [*make_members(job.uid, "?", job.shape.master, job.shape.worker)]
    every += [Member.at(f"{job.uid}-w{i}", Slot("worker", i, None, True), job.shape.worker) for i in range(9)]
    by_name = {member.uid.removeprefix(f"{job.uid}-"): member for member in every}
    return tuple(by_name[word] for word in text.split())


def with_pods_made(inputs, granted):
    """The input once the grants' pods are made and their releases are gone; what has no node waits."""
    return replace(inputs, jobs=tuple(_with_pods(job, granted[job.uid]) for job in inputs.jobs))


def _with_pods(job, grant):
    kept = [pod for pod in (*job.members, *job.provisioning_pods) if pod.uid in grant.assignment.keep]
    for slot in grant.assignment.create:
        uid = f"{job.uid}-{slot.role[0]}{slot.index}"
        shape = job.shape.of(slot.role)
        kept.append(Member.at(uid, slot, shape))
    made = replace(
        job,
        members=(),
        provisioning_pods=(),
        is_admitted=grant.assignment.replicas > 0,
        undelayed_size=grant.assignment.replicas,
    )
    return with_members(made, kept)
