"""Computes how many GPUs plain pods (pods of no job) may hold in each namespace that a policy covers (98).

The rule: a team's plain pods and its jobs that are not preemptible, whose GPUs cannot be reclaimed, hold no more than
its guarantee. Its other jobs do not count: their GPUs beyond the guarantee are borrowed, and can be reclaimed. A team
that fills its guarantee with preemptible jobs may still create plain pods; its jobs then borrow.

The API server enforces the answer, for each namespace and each extended resource. It knows no nodes, so flavors of
one resource are added up. It admits a pod when that is created, so a pod that waits for a node counts like one that
runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.node import Resources
from elastic_operator.plan.facts.team import Flavor, Quota, Team, Teams

Holdings = Mapping[str, Resources]
"""Namespace -> extended resource -> GPUs."""


def plain_pod_limits(
    teams: Teams, flavors: Sequence[Flavor], *, plain: Holdings, kept: Holdings
) -> dict[str, dict[str, int]]:
    """The most GPUs of each resource that plain pods may hold together, for each namespace that a policy covers.

    `plain` are the GPUs of plain pods, with a node or without; `kept` the GPUs of jobs that are not preemptible. The
    GPUs of a team's other namespaces are subtracted from the limit of each, because they share one guarantee.
    """
    usage = _TeamUsage(teams, flavors, plain)
    for namespace in teams.covered:
        for team in usage.path(namespace):
            usage.held[team.name].update(plain.get(namespace, {}))
            usage.held[team.name].update(kept.get(namespace, {}))
    resources = sorted({resource for flavor in flavors for resource in flavor.resources})
    return {
        namespace: {name: usage.limit(namespace, name) for name in resources} for namespace in sorted(teams.covered)
    }


def non_preemptible_gpus(jobs: Iterable[JobDemand], resources: Sequence[str]) -> Holdings:
    """GPUs held by pods of jobs that are not preemptible."""
    held: dict[str, Counter[str]] = {}
    for job in jobs:
        if not job.preemptible:
            for member in job.members:
                mine = held.setdefault(job.namespace, Counter())
                mine.update({name: member.requests.get(name, 0) for name in resources})
    return held


@dataclass(slots=True)
class _TeamUsage:
    """`held` are the GPUs that each team, and each parent, holds and cannot lose."""

    teams: Teams
    flavors: Sequence[Flavor]
    plain: Holdings
    held: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def limit(self, namespace: str, resource: str) -> int:
        """The smallest room of any team on the path."""
        return min((self._room(team, namespace, resource) for team in self.path(namespace)), default=0)

    def path(self, namespace: str) -> Iterator[Team]:
        """The path from the namespace's team to the top."""
        name: str | None = self.teams.covered[namespace]
        while name is not None and (team := self.teams.by_name.get(name)):
            yield team
            name = team.parent

    def _room(self, team: Team, namespace: str, resource: str) -> int:
        """The guarantee of the resource, less the GPUs held for good by anything but the namespace's plain pods."""
        ours = [flavor for flavor in self.flavors if resource in flavor.resources]
        elsewhere = self.held[team.name][resource] - self.plain.get(namespace, {}).get(resource, 0)
        others = {name for flavor in ours for name in flavor.resources} - {resource}
        beside = sum(self._beyond_own(team, other, ours) for other in others)
        return max(0, _guaranteed(team, ours) - elsewhere - beside)

    def _beyond_own(self, team: Team, other: str, shared: Sequence[Flavor]) -> int:
        """GPUs of another resource that are held beyond the guarantees of its unshared flavors."""
        own = [flavor for flavor in self.flavors if other in flavor.resources and flavor not in shared]
        return max(0, self.held[team.name][other] - _guaranteed(team, own))


def _guaranteed(team: Team, flavors: Iterable[Flavor]) -> int:
    return sum(team.quotas.get(flavor.name, Quota()).guaranteed for flavor in flavors)
