"""The input of the allocator: nodes, jobs' demands, foreign pods, teams, and the settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.eviction_limits import EvictionLimits
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.team import NO_POLICY, Flavor, Team, Teams
from elastic_operator.plan.facts.text import Reason


@dataclass(frozen=True, slots=True)
class AllocationSettings:
    """The operator's settings that an allocation depends on, by themselves or through the teams.

    `gpu_resources` are the extended resources that count as GPUs: those of all flavors, each once. `default_team` and
    `default_parents` become a part of the `Teams`: every namespace that no policy covers is a team called `namespace
    NAME`, with the rules of `default_team`. If `default_team` has a parent, the parent is in `default_parents`, and the
    GPUs that all these namespaces get together are divided among them (111). If a job has waited for
    `starvation_seconds`, room that becomes free is held for it (37).
    """

    gpu_resources: tuple[str, ...] = ("nvidia.com/gpu",)
    flavors: tuple[Flavor, ...] = (Flavor(),)
    default_team: Team = NO_POLICY
    default_parents: tuple[Team, ...] = ()
    starvation_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class AllocationInputs:
    """Everything that the allocator decides from. The rules of teams are in `teams`, and not read from the settings.

    `reclaim_stopped` says why no team loses a pod to another team or to foreign pods (43); None: they lose no more than
    the `eviction_limits` allow.
    """

    now: float
    nodes: tuple[Node, ...]
    jobs: tuple[JobDemand, ...]
    settings: AllocationSettings = field(default_factory=AllocationSettings)
    teams: Teams = field(default_factory=Teams)
    foreign_pods: tuple[ForeignPod, ...] = ()
    reclaim_stopped: Reason | None = None
    eviction_limits: EvictionLimits = field(default_factory=EvictionLimits)

    @property
    def reclaiming(self) -> bool:
        """Whether teams may lose pods to other teams and to foreign pods."""
        return self.reclaim_stopped is None


def gpus_in(inputs: AllocationInputs) -> int:
    """The GPUs of all nodes in any state: the sum of `count_gpus`, without a call for each node (23)."""
    return sum([node.allocatable.get(name, 0) for name in inputs.settings.gpu_resources for node in inputs.nodes])
