"""The form of the cases here: nodes, teams and jobs, and what each job and each foreign pod gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.facts.team import DEFAULT_FLAVOR, Team
from tests.plan.allocate.world import NOW, carried_out, make_inputs, make_shape, notation

PASSES = 12


@dataclass(frozen=True)
class Case:
    """Expected are sizes (int) or the one-line notation of grants; for foreign pods "node -victim -victim" or ""."""

    nodes: tuple[Node, ...]
    teams: tuple[Team, ...]
    jobs: tuple[JobDemand, ...]
    expected: Mapping[str, int | str]
    more: Mapping[str, Any] = field(default_factory=dict)


def came_out(case: Case) -> dict[str, int | str]:
    """What the allocator decides, in the form of `expected`."""
    inputs = replace(make_inputs(case.nodes, case.jobs, teams=case.teams), **case.more)
    granted = allocate(inputs)
    sizes = {uid for uid, wanted in case.expected.items() if isinstance(wanted, int)}
    found = {uid: grant.assignment.replicas if uid in sizes else notation(grant) for uid, grant in granted.items()}
    plans = {plan.uid: " ".join([plan.node, *(f"-{uid}" for uid in plan.victims)]) for plan in granted.nominations}
    return {**found, **{pod.uid: plans.get(pod.uid, "") for pod in inputs.foreign_pods}}


def make_foreign_pod(
    name="r", gpus=1, *, team="a", age=0, cpu=1, priority=0, shape=None, flavor=DEFAULT_FLAVOR, **more
):
    """A foreign pod that waits."""
    shape = shape or make_shape(gpus, cpu=cpu)
    demand = JobDemand(name, team, name, priority, NOW - age, (1,), JobShape(shape, shape, flavor))
    return ForeignPod(demand, **more)


def on(node: str, pods: int) -> str:
    """So many pods of a job, all on one node."""
    return " ".join([node] * pods)


def history(inputs, passes=PASSES):
    """The releases of each of so many passes, each carried out before the next, and the input at the end."""
    releases = []
    for _ in range(passes):
        granted = allocate(inputs)
        releases.append(sorted(uid for grant in granted.values() for uid in grant.assignment.release))
        inputs = carried_out(inputs, granted)
    return releases, inputs


def sizes(inputs):
    """How many pods each job has."""
    return {job.uid: len(job.members) for job in inputs.jobs}


def released(nodes, jobs, **more):
    """All that one pass lets go."""
    granted = allocate(make_inputs(nodes, jobs, **more))
    return sorted(uid for grant in granted.values() for uid in grant.assignment.release)
