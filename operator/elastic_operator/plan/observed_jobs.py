"""The planner's memory of each job from pass to pass, with its demand, and all jobs of one pass.

The jobs of a pass are made from the jobs of the pass before, and only jobs that were observed again are examined (23).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from elastic_operator.memory import SingleCache
from elastic_operator.plan.cluster_view import ClusterView
from elastic_operator.plan.facts.demand import JobDemand, Member, PreemptionBar
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.job.demand import demand_of, with_members
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.quarantined import demand_in_quarantine
from elastic_operator.plan.job.remaining_pods import demand_of_pods, frozen_demand, unwanted_pods


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

    def renew_demand(self, view: ClusterView, obs: Observation) -> None:
        """Make the job's demand. While its inputs do not change, the demand stays the same object.

        The inputs are compared by `==`, which takes no time if they are the same objects. A new observation is compared
        field by field, because a new demand would cost an allocation.
        """
        job = obs.job
        if not obs.wants_pods:
            pods = unwanted_pods(obs)
            flavor = view.flavor_in_use(pods)
            self.demanded.get((obs, flavor), demand_of_pods, job, pods, flavor)
            self.good = None
            return
        key = obs, view.shape(job), view.assumed(job.uid), view.preemption_bar(job)
        self.good = self.demanded.get(key, _demand_with, *key)

    def note_quarantined(self, view: ClusterView, job: Job) -> None:
        """Make the demand that counts while the job is quarantined: the last good one, or one made from its pods. If
        neither can be made, or the error came from the allocation, there is none: the job's pods count as foreign pods.

        An error in this method does not prolong the job's quarantine.
        """
        self.quarantined = None
        if job.quarantine and job.quarantine.in_allocation:
            return
        try:
            if self.good is not None:
                self.quarantined = demand_in_quarantine(self.good, job.pods)
            else:
                self.quarantined = demand_of_pods(job, job.active_pods, view.flavor_in_use(job.active_pods))
        except Exception as error:  # noqa: BLE001 - the view reports the error
            view.note_unknown_demand(job, error)


def _demand_with(
    obs: Observation, shape: JobShape, assumed: tuple[Member, ...], bar: PreemptionBar | None
) -> JobDemand:
    """The demand of a job that may have pods; pods that are being created count as its members."""
    demand = demand_of(obs, shape)
    if assumed:
        demand = with_members(demand, assumed)
    if obs.job.needs_edit or obs.status.held_until:
        demand = frozen_demand(demand)
    return demand if bar is None else replace(demand, preemption_bar=bar)


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
