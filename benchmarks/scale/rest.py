"""Measures the operators' use of the machine with many pods at rest, of jobs and foreign ones, and an operator's start.

The operator creates the pods of the jobs; a plain client creates the foreign ones, which hold no GPU.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from benchmarks.live.errors import BenchError
from benchmarks.live.operators import operators
from benchmarks.live.place import Body, Place, pods_of
from benchmarks.react import weigh
from benchmarks.react.weigh import Rest
from benchmarks.reclaim.scenario import GPUS_PER_NODE
from benchmarks.reclaim.scenario import job as elastic_job
from benchmarks.scale import takeover
from benchmarks.scale.fill import JOBS, REQUESTS_AT_ONCE, until_ready
from benchmarks.scale.scenario import NAMESPACE, SPARE
from devcluster.progress import Progress
from elastic_operator.loop.reconciler import RESYNC_SECONDS

OTHERS = "others"
"""The namespace of the foreign pods. The audit log leaves them out."""
REST_SECONDS = RESYNC_SECONDS
"""The operator decides on everything once in that time, so the share of the CPU includes one such pass."""
CHANGED_JOBS = 3
PODS_PER_NODE = 100
"""The pods of a node; KWOK's nodes take 110."""
FILL_SECONDS = 3600.0
OTHERS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """`pods` pods with one GPU, `size` for each job, and `others` foreign pods."""

    pods: int
    others: int = 0
    size: int = 4

    def __post_init__(self) -> None:
        if self.size < 2:
            raise BenchError(f"size={self.size}: write at least 2, as workers are lost")
        if self.pods % self.size or self.pods < CHANGED_JOBS * self.size:
            raise BenchError(
                f"rest={self.pods}: write a multiple of size={self.size}, at least {CHANGED_JOBS} times it"
            )
        if self.others < 0:
            raise BenchError(f"others={self.others}: write 0 or more")

    @property
    def nodes(self) -> int:
        """The number of nodes: room for all jobs, and for one more job in ten."""
        full = max(self.pods / GPUS_PER_NODE, (self.pods + self.others) / PODS_PER_NODE)
        return math.ceil(full * SPARE)

    @property
    def names(self) -> list[str]:
        """The names of the jobs."""
        return [f"rest-{number}" for number in range(self.pods // self.size)]

    def job(self, name: str) -> Body:
        """One job, which may have one to `size` pods."""
        return elastic_job(name, least=1, most=self.size)

    def other(self, number: int) -> Body:
        """A foreign pod that is bound to its node already: its scheduling is not measured."""
        container = {"name": "main", "image": "local/none:1", "resources": {"requests": {"cpu": "100m"}}}
        spec = {"nodeName": f"k{number % self.nodes + 1}", "containers": [container]}
        return {"metadata": {"name": f"other-{number}", "labels": {"app": "other"}}, "spec": spec}


@dataclass(frozen=True, slots=True)
class Resting:
    """The measurements. `fresh_megabytes` is the memory of an operator that has just started among all the pods.

    `start_cpu_s` is its CPU time until its first pod: on a busy machine it waits for its turn as well.
    """

    plan: Plan
    leader: Rest
    standby: Rest
    killed_s: float
    stopped_s: float
    start_s: float
    start_cpu_s: float
    fresh_megabytes: float
    load: float


def fill(place: Place, plan: Plan, progress: Progress) -> None:
    """Create the nodes, the foreign pods, then all jobs at once; wait until everything runs, also by all statuses."""
    place.add_nodes(plan.nodes, gpus=GPUS_PER_NODE, progress=progress)
    for namespace in (NAMESPACE, OTHERS):
        place.create_namespace(namespace)
    with progress.step(f"{plan.others} foreign pods") as step:
        others = [(pods_of(OTHERS), plan.other(number)) for number in range(plan.others)]
        for made in range(0, plan.others, OTHERS_AT_ONCE):
            step.detail = f"{made} are created"
            place.create_all(others[made:][:OTHERS_AT_ONCE], at_once=REQUESTS_AT_ONCE)
        waits = f"{pods_of(OTHERS)}?fieldSelector=status.phase!=Running&limit=1"
        place.until("those pods to run", lambda: not place.items(waits), seconds=FILL_SECONDS, pause=1.0)
    with progress.step(f"{plan.pods} pods of {len(plan.names)} jobs, by the operator") as step:

        def tell(ready: int) -> None:
            step.detail = f"{ready} are ready"

        since = place.now()
        place.create_all([(JOBS, plan.job(name)) for name in plan.names], at_once=REQUESTS_AT_ONCE)
        until_ready(place, plan.names, plan.pods, since=since, seconds=FILL_SECONDS, told=tell)
        place.quiet(seconds=FILL_SECONDS)
    place.audit.forget()


def measure(place: Place, plan: Plan, replicas: int, progress: Progress) -> Resting:
    """Measure the operators at rest; then the end of the leader, twice, and the start of the only operator."""
    leader, standby, *_ = operators(place)
    with progress.step(f"{REST_SECONDS:.0f} s of rest"):
        leading, standing_by = weigh.at_rest([leader, standby], seconds=REST_SECONDS)
    load = os.getloadavg()[0]
    one, two, three = plan.names[-CHANGED_JOBS:]
    killed, stopped = takeover.after_both(place, one, two, replicas, progress)
    with progress.step("an operator starts"):
        started = takeover.after_start(place, three)
        only = operators(place)[0]
        cpu = only.cpu_seconds()
        place.quiet()
        fresh = only.resident_megabytes()
    return Resting(plan, leading, standing_by, killed, stopped, started, cpu, fresh, load)
