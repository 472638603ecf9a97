"""The planner's memory of each job from pass to pass, beside the job's plan, and all jobs of one pass.

The jobs of a pass are made from the jobs of the pass before, and only jobs that were observed again are examined (23).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from elastic_operator.memory import SingleCache
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.job.observation import Observation


@dataclass(slots=True)
class JobMemory:
    """The planner's memory of one job.

    `good` is the job's demand when it was last observed without an error, `quarantined` the demand that counts while
    the job is quarantined.
    """

    obs: Observation | None = None
    demanded: SingleCache[tuple[object, ...], JobDemand | None] = field(default_factory=SingleCache)
    """The job's demand while it is not quarantined, remembered by its inputs."""
    good: JobDemand | None = None
    quarantined: JobDemand | None = None

    @property
    def demand(self) -> JobDemand | None:
        """The demand that counts: `quarantined` while the job is quarantined; None if the job may have no pods."""
        if self.obs is not None and self.obs.job.quarantine:
            return self.quarantined
        return self.demanded.last


@dataclass(frozen=True, slots=True)
class ObservedJobs:
    """The jobs of one pass, in the view's order. Immutable.

    `uids` is the view's own collection of all jobs. `obs` has the observation of each job, `demand_of` its
    demand; None if it may have no pods. `demands`: the demands in `demand_of` that are not None. `members`: the uids
    of all their members. `to_delete` are the pods that are about to be deleted.
    """

    uids: Collection[str] | None = None
    obs: Mapping[str, Observation] = field(default_factory=dict)
    demand_of: Mapping[str, JobDemand | None] = field(default_factory=dict)
    demands: tuple[JobDemand, ...] = ()
    members: frozenset[str] = frozenset()
    to_delete: tuple[OwnPod, ...] = ()

    def renewed(
        self, uids: Collection[str], observed: Collection[str], memories: Mapping[str, JobMemory]
    ) -> ObservedJobs:
        """The jobs of the next pass: `uids`, of which `observed` were observed again."""
        before = self if uids is self.uids else ObservedJobs(uids)
        obs: dict[str, Observation] = {}
        demand_of: dict[str, JobDemand | None] = {}
        for uid in observed if before is self else uids:
            memory = memories[uid]
            if memory.obs is not None and memory.obs is not before.obs.get(uid):  # unchanged means identical (23)
                obs[uid] = memory.obs
            if before is not self or memory.demand is not before.demand_of[uid]:  # unchanged means identical (23)
                demand_of[uid] = memory.demand
        if before is self and not obs and not demand_of:
            return self
        return before._with(obs, demand_of)

    def _with(self, obs: Mapping[str, Observation], demand_of: Mapping[str, JobDemand | None]) -> ObservedJobs:
        all_obs, demands, members, to_delete = {**self.obs, **obs}, self.demands, self.members, self.to_delete
        if any(one.to_delete or (uid in self.obs and self.obs[uid].to_delete) for uid, one in obs.items()):
            to_delete = tuple(deletion.pod for one in all_obs.values() for deletion in one.to_delete)
        all_demands = {**self.demand_of, **demand_of}
        if demand_of:
            demands = tuple(demand for demand in all_demands.values() if demand is not None)
            before = _members_of(self.demand_of[uid] for uid in demand_of if uid in self.demand_of)
            after = _members_of(demand_of.values())
            members = members if before == after else (members - before) | after
        return ObservedJobs(self.uids, all_obs, all_demands, demands, members, to_delete)


def _members_of(demands: Iterable[JobDemand | None]) -> frozenset[str]:
    return frozenset(member.uid for demand in demands if demand is not None for member in demand.members)
