"""The loads, as Kubernetes objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks.allocate import objects
from benchmarks.allocate.objects import GPU, Body
from benchmarks.allocate.scenario import GPUS_PER_NODE

OWNER, BORROWER = "team-0", "team-1"
PODS_PER_JOB = 16
RUNNING_PODS = 4


@dataclass(slots=True)
class Load:
    """A cluster."""

    nodes: int
    jobs: list[Body] = field(default_factory=list)
    pods: list[Body] = field(default_factory=list)
    policies: list[Body] = field(default_factory=list)


def running_jobs(count: int) -> Load:
    """`count` jobs that run in full."""
    load = Load(nodes=count * RUNNING_PODS // GPUS_PER_NODE + 1)
    for number in range(count):
        name = f"running-{number}"
        load.jobs.append(objects.job(OWNER, name, replicas=RUNNING_PODS, most=RUNNING_PODS))
        for index in range(RUNNING_PODS):
            host = (number * RUNNING_PODS + index) // GPUS_PER_NODE
            load.pods.append(objects.own_pod(OWNER, name, index=index, host=host))
    return _with_policies(load, guaranteed=count * RUNNING_PODS)


def queued_jobs(count: int, *, nodes: int = 500) -> Load:
    """`count` jobs of one team that were just created, and no GPU is free."""
    jobs = [_job(OWNER, f"queued-{number}", least=1, most=4) for number in range(count)]
    load = Load(nodes=nodes, jobs=jobs, pods=list(_taken_by_others(nodes)))
    return _with_policies(load, guaranteed=0)


def foreign_pods(count: int, *, nodes: int = 500) -> Load:
    """`count` pods of one Deployment wait, and jobs of another team have borrowed all GPUs."""
    load = Load(nodes=nodes)
    for number in range(nodes * GPUS_PER_NODE // PODS_PER_JOB):
        name = f"borrower-{number}"
        load.jobs.append(objects.job(BORROWER, name, replicas=PODS_PER_JOB))
        for index in range(PODS_PER_JOB):
            host = (number * PODS_PER_JOB + index) // GPUS_PER_NODE
            load.pods.append(objects.own_pod(BORROWER, name, index=index, host=host))
    load.pods += [_waiting_pod(f"web-{number}") for number in range(count)]
    return _with_policies(load, guaranteed=nodes * GPUS_PER_NODE)


def large_templates(count: int) -> Load:
    """Jobs with templates of 250 kB, which get `count` pods at once."""
    jobs = [
        _job(OWNER, f"large-{number}", least=PODS_PER_JOB, most=PODS_PER_JOB, variables=4_450)
        for number in range(count // PODS_PER_JOB)
    ]
    return _with_policies(Load(nodes=count // GPUS_PER_NODE + 1, jobs=jobs), guaranteed=0)


LOADS: dict[str, tuple[Callable[[int], Load], int]] = {
    "running jobs of four pods": (running_jobs, 1_000),
    "queued jobs of one team": (queued_jobs, 5_000),
    "waiting pods of one Deployment": (foreign_pods, 5_000),
    "pods of a 250 kB template": (large_templates, 1_000),
}
"""The loads, each with its size."""


def _with_policies(load: Load, *, guaranteed: int) -> Load:
    load.policies = [objects.policy(0, guaranteed=guaranteed), objects.policy(1, guaranteed=0)]
    return load


def _job(namespace: str, name: str, *, least: int, most: int, variables: int = 0) -> Body:
    body = objects.job(namespace, name, replicas=0, most=most)
    body["spec"]["minReplicas"] = least
    body["status"] = {}
    if variables:
        env = [{"name": f"VARIABLE_{number:05}", "value": "v" * 20} for number in range(variables)]
        body["spec"]["template"]["spec"]["containers"][0]["env"] = env
    return body


def _taken_by_others(nodes: int) -> Iterable[Body]:
    for node in range(nodes):
        yield objects.foreign_pod(f"notebook-{node}", node, gpus=GPUS_PER_NODE)


def _waiting_pod(name: str) -> Body:
    body = objects.foreign_pod(name, 0, gpus=1)
    body["metadata"]["namespace"] = OWNER
    del body["spec"]["nodeName"]
    said = f"0/500 nodes are available: 500 Insufficient {GPU}."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    body["spec"]["schedulerName"] = "default-scheduler"
    body["status"] = {"phase": "Pending", "conditions": [condition]}
    return body
