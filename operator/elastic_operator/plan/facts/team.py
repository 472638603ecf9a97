"""Teams, flavors and quotas as the allocator reads them: the sharers of GPUs, the kinds of GPUs, and the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

DEFAULT_FLAVOR = "default"
"""The name of the one kind of GPU if the settings name no kinds."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A kind of GPU: the GPUs of these extended resources on nodes with these labels. No two flavors share a GPU."""

    name: str = DEFAULT_FLAVOR
    resources: tuple[str, ...] = ("nvidia.com/gpu",)
    node_selector: Mapping[str, str] = field(default_factory=dict)

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Whether the GPUs of a node with these labels are of this kind."""
        return all(labels.get(key) == value for key, value in self.node_selector.items())


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of a team for one flavor, in GPUs."""

    guaranteed: int = 0
    borrow_limit: int | None = None
    """How many GPUs above `guaranteed` the team may use; None = all idle GPUs."""
    weight: int = 1
    """The team's weight in sharing unguaranteed GPUs."""
    lend_limit: int | None = None
    """How many GPUs of an idle guarantee others may use; None = all of them."""

    @property
    def limit(self) -> int | None:
        """The most that the team may use; None = no limit."""
        return None if self.borrow_limit is None else self.guaranteed + self.borrow_limit


@dataclass(frozen=True, slots=True)
class Team:
    """The namespaces that share one quota: those of a policy, one namespace without a policy, or all of these together
    (111).

    A team with children owns no namespaces.
    """

    name: str
    """Unique among all teams."""
    created: float = 0.0
    parent: str | None = None
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """By flavor. A missing flavor is `Quota()`: nothing is guaranteed, idle GPUs may be borrowed."""
    priority: int = 0
    """The tier in which idle GPUs are handed out."""
    max_gpus_per_job: int | None = None
    min_runtime_seconds: int = 0
    """No other team preempts a whole job of the team before the job has run for this long."""
    quantum_seconds: int | None = None
    """Jobs of equal priority that cannot all run take turns of this length; None: they take no turns."""
    grace_seconds: int | None = None
    """The longest grace of a leaving pod of the team; None: no ceiling."""
    has_policy: bool = True
    """False for namespaces without a policy."""


class HasAge(Protocol):
    """The part of a team or a policy that `by_age` reads: its creation (epoch seconds), and its name."""

    @property
    def created(self) -> float: ...
    @property
    def name(self) -> str: ...


def by_age(one: HasAge) -> tuple[float, str]:
    """A key to sort teams or policies that are otherwise equal: the older first; at equal age, by name (177).

    Policies that are applied together have the same age, because Kubernetes writes times in whole seconds.
    """
    return one.created, one.name


NO_POLICY = Team("namespace", has_policy=False)
"""The team of a namespace without a policy, unless the settings say otherwise."""

DEFAULT_POLICY = "default policy"
"""The name of the team that all namespaces without a policy are part of. No policy can have a name with a space."""


@dataclass(frozen=True)
class Teams:
    """The team of each namespace: its policy's team, or a team of its own like `default` (111).

    `listed` are the teams of the policies, and the parents of `default`. `covered` names the team of each namespace
    that a policy covers.
    """

    listed: tuple[Team, ...] = ()
    covered: Mapping[str, str] = field(default_factory=dict)
    default: Team = NO_POLICY

    @cached_property
    def by_name(self) -> Mapping[str, Team]:
        """The listed teams."""
        return {team.name: team for team in self.listed}

    def name_of(self, namespace: str) -> str:
        """The name of the team that the namespace belongs to."""
        name = self.covered.get(namespace, "")
        return name if name in self.by_name else f"namespace {namespace}"

    def named(self, name: str) -> Team:
        """The team of that name; if none is listed, a team of that name like the default."""
        return self.by_name[name] if name in self.by_name else replace(self.default, name=name)

    def team_of(self, namespace: str) -> Team:
        return self.named(self.name_of(namespace))
