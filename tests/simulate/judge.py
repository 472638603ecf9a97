"""The rules of a cluster at rest, for one in memory and for a real one. They read only the cluster's objects."""

from __future__ import annotations

from random import Random

from tests.simulate import server as kinds
from tests.simulate.checker import Checker
from tests.simulate.entitled import check_entitlements
from tests.simulate.facts import (
    GPU,
    Body,
    allocatable,
    gpus_of,
    is_over,
    job_sizes,
    name_of,
    owner_of,
    place_of,
    staying,
    terminating,
)
from tests.simulate.server import Server
from tests.simulate.violation import require


def judge(server: Server, rng: Random) -> None:
    """Check the rules of a cluster at rest. Raises ViolationError."""
    Checker(server, rng).at_pause()
    check_entitlements(server)
    _nodes_hold_what_they_have(server)
    _statuses_are_true(server)


def sizes_hold(server: Server) -> None:
    """Check that no job has more pods than its largest size. Skips edited jobs."""
    for job in server.all(kinds.JOBS):
        if job["metadata"]["generation"] > 1:
            continue  # of an edit the operator hears later, after a change of the leader much later
        there, most = len(_pods_of(server, job)), job_sizes(job)[-1]
        require(there <= most, f"{name_of(job)} has {there} pods, {most} at most")


def _nodes_hold_what_they_have(server: Server) -> None:
    """Check that the pods on each node request no more GPUs than it has. kube-scheduler checks bound pods only."""
    for node in server.all(kinds.NODES):
        here = [pod for pod in server.all(kinds.PODS) if place_of(pod) == name_of(node) and staying(pod)]
        gpus, has = sum(map(gpus_of, here)), allocatable(node).get(GPU, 0)
        require(gpus <= has, f"{name_of(node)} has {has} GPUs, {gpus} are promised")


def _statuses_are_true(server: Server) -> None:
    if any(map(terminating, server.all(kinds.PODS))):
        return
    for job in server.all(kinds.JOBS):
        if is_over(job) or name_of(job) in server.aside:
            continue
        there, says = len(_pods_of(server, job)), job.get("status", {}).get("replicas", 0)
        require(says == there, f"{name_of(job)} says {says}, has {there} pods")
        require(there <= job_sizes(job)[-1], f"{name_of(job)} has {there} pods")


def _pods_of(server: Server, job: Body) -> list[Body]:
    pods = [pod for pod in server.all(kinds.PODS) if owner_of(pod) and staying(pod)]
    return [pod for pod in pods if owner_of(pod)["uid"] == job["metadata"]["uid"]]
