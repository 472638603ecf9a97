"""The observer of all jobs: its memory of each job from pass to pass, with the job's demand, and all jobs of one pass.

Only jobs that have changed, or that time alone may change, are observed again (23). An error at a job quarantines it.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import inf

from elastic_operator.memory import DelayQueue, SingleCache
from elastic_operator.plan.cluster_view import ClusterView
from elastic_operator.plan.facts.demand import Bar, JobDemand, Member, PreemptionBar
from elastic_operator.plan.facts.job import FaultStage, Job, OwnPod
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.job.demand import demand_of, with_members
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.observe import observe
from elastic_operator.plan.job.quarantined import demand_in_quarantine
from elastic_operator.plan.job.remaining_pods import demand_of_pods, frozen_demand, unwanted_pods
from elastic_operator.plan.last_plans import LastPlans


@dataclass(slots=True)
class JobMemory:
    """The observer's memory of one job.

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
    return demand if bar is None else replace(demand, bar=Bar(bar))


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
            demands = tuple([demand for demand in all_demands.values() if demand is not None])
            before = _members_of(self.demand_of[uid] for uid in demand_of if uid in self.demand_of)
            after = _members_of(demand_of.values())
            members = members if before == after else (members - before) | after
        return ObservedJobs(self.uids, all_obs, all_demands, demands, members, to_delete)


def _members_of(demands: Iterable[JobDemand | None]) -> frozenset[str]:
    return frozenset(member.uid for demand in demands if demand is not None for member in demand.members)


class JobObserver:
    """The jobs as they were last observed. `plans` learns which jobs are observed again, and which are deleted."""

    def __init__(self, plans: LastPlans) -> None:
        self._plans = plans
        self._memories: dict[str, JobMemory] = {}
        self._observed = ObservedJobs()
        """The jobs of the last pass."""
        self._observe_at = DelayQueue()
        """When (epoch seconds) a job is observed even without a change in the view; -inf: in the next pass."""
        self._read_ahead: dict[str, None] = {}
        """The jobs (uids) that were read ahead since the last pass."""

    def forget(self) -> None:
        """Forget what was observed, so that the next pass observes all jobs, and plans for them again."""
        self.requeue(self._memories)
        self._observed = ObservedJobs()

    def requeue(self, uids: Iterable[str]) -> None:
        """Observe these jobs again, and plan for them again."""
        for uid in uids:
            if memory := self._memories.get(uid):
                memory.obs = None
                memory.demanded.drop()
                self._observe_at.set(uid, -inf)
                self._plans.requeue(uid)

    def read_ahead(self, view: ClusterView) -> Generator[None]:
        """If many jobs are new or changed, observe one of them per step. The next pass uses these observations, also if
        they are some seconds old by then. It observes a job again that has changed since. Deleted jobs are forgotten.
        """
        if (uids := view.jobs()) is not self._observed.uids:
            self._forget_deleted(uids)
        with closing(view.take_unread(self._is_observed)) as unread:
            for uid in unread:
                self._observe(view, uid)
                self._demand(view, uid)
                self._read_ahead[uid] = None
                yield

    def _is_observed(self, uid: str) -> bool:
        memory = self._memories.get(uid)
        return memory is not None and memory.obs is not None

    def observe(self, view: ClusterView) -> ObservedJobs:
        """All jobs as they are now; the same object while no observation or demand differs."""
        uids = self._to_observe(view)
        for uid in uids:
            self._observe(view, uid)
        for uid in uids:
            self._demand(view, uid)
        observed = {**self._read_ahead, **dict.fromkeys(uids)}
        self._read_ahead = {}
        self._observed = self._observed.renewed(view.jobs(), observed, self._memories)
        self._plans.note_observed(observed)
        return self._observed

    def quarantine(
        self, view: ClusterView, uid: str, error: Exception, *, stage: FaultStage = FaultStage.READING
    ) -> Observation | None:
        """Quarantine a job that has caused an error, and observe it; None if the job is deleted."""
        if not view.quarantine(uid, error, stage=stage):
            return None
        obs = self._observe_now(view, uid)
        self._observe_at.set(uid, -inf)
        return obs

    def _to_observe(self, view: ClusterView) -> Collection[str]:
        """The jobs (uids) whose observation may differ from that of the last pass. All other observations are kept."""
        uids, dirty = view.jobs(), view.take_dirty()
        new: Collection[str] = ()
        if uids is not self._observed.uids:
            self._forget_deleted(uids)
            new = [uid for uid in uids if uid not in self._memories]
        if dirty is None:
            return tuple(uids)
        some = {*dirty, *self._observe_at.due(view.now)}
        return (*sorted(uid for uid in some if uid in self._memories), *new)

    def _forget_deleted(self, uids: Collection[str]) -> None:
        for uid in self._memories.keys() - set(uids):
            del self._memories[uid]
            self._observe_at.drop(uid)
            self._read_ahead.pop(uid, None)
            self._plans.drop(uid)

    def _observe(self, view: ClusterView, uid: str) -> None:
        """Observe the job; while it is quarantined, without its spec."""
        try:
            self._observe_now(view, uid)
        except Exception as error:  # noqa: BLE001 - any error is handled as an error of this job only
            self.quarantine(view, uid, error)

    def _observe_now(self, view: ClusterView, uid: str) -> Observation:
        memory = self._memories.setdefault(uid, JobMemory())
        job, known = view.read_job(uid), memory.obs
        if known is not None and known.job == job:
            job = known.job  # an unchanged job is the identical object (23)
            if view.now < self._observe_at.time_of(job.uid):
                return known
        until = inf
        if not job.quarantine:
            obs = observe(job, view.now)
            until = _valid_until(obs, view.now)
        elif known is not None and known.job is job:  # by identity (23)
            obs = known
        else:
            obs = Observation(job, job.status)
            memory.note_quarantined(view, job)
        self._observe_at.set(job.uid, until)
        memory.obs = obs
        return obs

    def _demand(self, view: ClusterView, uid: str) -> None:
        """Make the job's demand, unless it is quarantined."""
        memory = self._memories[uid]
        if memory.obs is not None and not memory.obs.job.quarantine:
            try:
                memory.renew_demand(view, memory.obs)
            except Exception as error:  # noqa: BLE001 - as in `_observe`
                self.quarantine(view, uid, error)


def _valid_until(obs: Observation, now: float) -> float:
    """When (epoch seconds) time alone may change the observation of the job.

    A status that is not written yet keeps the times of this observation, however long its write is queued, unless it
    must be written before all other writes (220).
    """
    if obs.write_status_first:
        return -inf
    return min((time for time in (*obs.requeue_at, obs.no_pods_before) if time > now), default=inf)
