"""Readers of the cluster's objects. The checker uses these, and none of the operator's code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

Body = dict[str, Any]
Amounts = Mapping[str, int]

GPU = "nvidia.com/gpu"
POOL = "pool"
"""The label of nodes that tells the two flavors apart."""
FLAVORS = ("a", "b")
OF = "of"
"""The label of pods that tells their job's name."""
RESERVED = "elastic-pytorch.dev/Reserved"
"""The annotation in which the operator notes the place that it keeps for a foreign pod."""


def requests_of(pod: Body) -> dict[str, int]:
    """What the pod's containers ask for in whole units, and its place on the node."""
    total = {"pods": 1}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources", {})
        for name, amount in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            total[name] = total.get(name, 0) + int(amount)
    return total


def gpus_of(pod: Body) -> int:
    """GPUs it asks for."""
    return requests_of(pod).get(GPU, 0)


def name_of(thing: Body) -> str:
    """Its name."""
    name: str = thing["metadata"]["name"]
    return name


def owner_of(thing: Body) -> Any:
    """The reference to what controls it, None for a foreign pod, that of a batch/v1 Job too."""
    owners = thing["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("kind") != "Job"), None)


def node_of(pod: Body) -> str:
    """The node it is bound to, "" if to none."""
    name: str = pod["spec"].get("nodeName", "")
    return name


def pinned_to(pod: Body) -> str:
    """The only node it may be bound to, "" if there are several."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            name: str = field["values"][0]
            return name
    return ""


def pod_priority(pod: Body) -> int:
    """Its priority among pods, as kube-scheduler sees it."""
    priority: int = pod["spec"].get("priority", 0)
    return priority


def preempts(pod: Body) -> bool:
    """Whether kube-scheduler evicts others for it by itself."""
    return pod["spec"].get("preemptionPolicy", "Never") != "Never"


def nominated_for(pod: Body) -> str:
    """The node that it is nominated for, "" if for none."""
    name: str = pod["status"].get("nominatedNodeName", "")
    return name


def reservation_in(pod: Body) -> Body:
    """What the operator noted in the pod of the place that it keeps for it; empty if it keeps none."""
    noted = _reservation(pod)
    return noted if noted.get("node") and noted["node"] == nominated_for(pod) else {}


def avoids(pod: Body, now: float) -> bool:
    """Whether a reservation of the pod ran out, and its node is left alone still."""
    return any(now < one["until"] for one in _reservation(pod).get("avoid", {}).values())


def _reservation(pod: Body) -> Body:
    messages = (one["message"] for one in pod["status"].get("conditions", ()) if one["type"] == RESERVED)
    found: Body = json.loads(next(messages, "{}"))
    return found


def waits(pod: Body) -> bool:
    """Whether it is somebody else's and has no node yet."""
    return owner_of(pod) is None and not node_of(pod) and staying(pod)


def lacks_gpus(pod: Body) -> bool:
    """Whether the scheduler finds no node for it because GPUs are taken."""
    messages = (condition.get("message", "") for condition in pod["status"].get("conditions", ()))
    return waits(pod) and any(f"Insufficient {GPU}" in message for message in messages)


def place_of(pod: Body) -> str:
    """Where it is bound, else where it is pinned."""
    return node_of(pod) or pinned_to(pod)


def ended(pod: Body) -> bool:
    """Whether it runs no more and holds nothing."""
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def terminating(pod: Body) -> bool:
    """Whether it was asked to go."""
    return "deletionTimestamp" in pod["metadata"]


def staying(pod: Body) -> bool:
    """Whether it runs, or is to run, and was not asked to go."""
    return not ended(pod) and not terminating(pod)


def is_master(pod: Body) -> bool:
    """Whether it is its job's master."""
    return name_of(pod).endswith("-master-0")


def is_ready(node: Body) -> bool:
    """Whether its kubelet is heard of."""
    return node["status"]["conditions"][0]["status"] == "True"


def is_open(node: Body) -> bool:
    """Whether it takes new pods."""
    return is_ready(node) and not node["spec"].get("unschedulable", False)


def suits(pod: Body, node: Body) -> bool:
    """Whether the pod's node selector selects the node."""
    labels = node["metadata"]["labels"]
    return all(labels.get(key) == value for key, value in pod["spec"].get("nodeSelector", {}).items())


def flavor_of(pod: Body) -> str:
    """The flavor of the GPUs that it asks for."""
    name: str = pod["spec"].get("nodeSelector", {}).get(POOL, "")
    return name


JOB_PRIORITIES = {"high": 10}
"""The PriorityClasses that jobs may name; any other one, a system's too, counts as 0 (96)."""


def priority_of(job: Body) -> int:
    """The priority of a job among jobs, by its class."""
    return JOB_PRIORITIES.get(job["spec"].get("priorityClassName", ""), 0)


def is_over(job: Body) -> bool:
    """Whether it has ended, or somebody deleted it and only a finalizer keeps it."""
    return "completionTime" in job.get("status", {}) or terminating(job)


def holds(pod: Body) -> bool:
    """Whether it takes room: not once it has ended, nor where it was deleted before it got a node."""
    return not ended(pod) and not (terminating(pod) and not node_of(pod))


def allocatable(node: Body) -> dict[str, int]:
    """What the node has in all."""
    return {name: int(amount) for name, amount in node["status"]["allocatable"].items()}


def total(loads: Iterable[Amounts]) -> dict[str, int]:
    """The sum."""
    sums: dict[str, int] = {}
    for load in loads:
        for name, amount in load.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def fits(pod: Body, node: Body, held: Iterable[Amounts]) -> bool:
    """Whether the pod has room on the node beside what is held there."""
    return room_for(requests_of(pod), node, held)


def room_for(wanted: Amounts, node: Body, held: Iterable[Amounts]) -> bool:
    """Whether so much is left on the node beside what is held there."""
    has, taken = allocatable(node), total(held)
    return all(taken.get(name, 0) + amount <= has.get(name, 0) for name, amount in wanted.items())


@lru_cache(maxsize=1000)
def sizes_of(least: int, most: int, step: int) -> tuple[int, ...]:
    """The sizes that a job may run with."""
    return tuple(range(least, most + 1, step))


def job_sizes(job: Body) -> tuple[int, ...]:
    """The sizes that the job may run with."""
    spec = job["spec"]
    return sizes_of(spec["minReplicas"], spec["maxReplicas"], spec.get("replicaStep", 1))
