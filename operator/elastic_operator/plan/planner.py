"""One pass over everything: observe each job, allocate for all, reconcile each job.

The planner has all memory of decisions from pass to pass: one `JobMemory` and the last plan of each job, the state of
the last allocation, and what that pass has decided. The view caches all facts but jobs. The cost of a pass grows with
the changes since the last pass: an unchanged fact or decision stays the same object, so the next step skips it by
identity (23). A property test checks that a planner with caches decides like a planner without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import floor, inf

from elastic_operator.memory import DelayQueue, SingleCache
from elastic_operator.plan.allocation.allocate import Allocator, allocate
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.change_times import ChangeTimes
from elastic_operator.plan.cluster_view import ClusterView, Reclaim
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs, gpus_in
from elastic_operator.plan.facts.blame import culprits
from elastic_operator.plan.facts.decisions import Grant, Plan
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.eviction_limits import EvictionLimits
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.job import FaultStage, Job
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.observe import observe
from elastic_operator.plan.job.quarantined import plan_in_quarantine
from elastic_operator.plan.job.reconcile import reconcile
from elastic_operator.plan.last_plans import LastPlans
from elastic_operator.plan.lookahead import LookaheadAllocator
from elastic_operator.plan.observed_jobs import JobMemory, ObservedJobs
from elastic_operator.plan.policies.resolve import ResolvedPolicies

MAX_BLAMES = 2
"""The most searches for a culprit in one pass; each costs several allocations."""


@dataclass(frozen=True, slots=True)
class PassDecisions:
    """The result of one pass. All its decisions are of one moment, because a pass awaits nothing.

    `obs` are the observations of all jobs, by uid; `inputs` is the input of the allocation. `is_new`: the allocation
    was made in this pass. `until_epoch`: when time alone may change the allocation. `report_only` is an allocation with
    the evictions that the mode DryRun only reports. `error` is an error of the look ahead (143), or of `report_only`;
    the pass skipped the part that failed.
    """

    policies: ResolvedPolicies
    obs: Mapping[str, Observation]
    inputs: AllocationInputs
    allocation: Allocation
    is_new: bool
    until_epoch: float
    stopped: Reason | None
    report_only: Allocation | None = None
    error: Exception | None = None


class Planner:
    """Makes the decisions of each pass. `timed` makes a context manager that measures an allocation."""

    def __init__(self, timed: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self._timed = timed
        self._jobs: dict[str, JobMemory] = {}
        self._observed_jobs = ObservedJobs()
        self._observe_at = DelayQueue()
        """When (epoch seconds) a job is observed even without a change in the view; -inf: in the next pass."""
        self.plans = LastPlans()
        self._inputs: SingleCache[tuple[object, ...], AllocationInputs] = SingleCache()
        self.forget_allocation()

    # -- memory --------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget all jobs and the last allocation, so that the next pass decides everything again."""
        self.requeue(self._jobs)
        self._inputs.drop()
        self._observed_jobs = ObservedJobs()
        self.forget_allocation()

    def requeue(self, uids: Iterable[str]) -> None:
        """Observe these jobs again, and plan for them again."""
        for uid in uids:
            if memory := self._jobs.get(uid):
                memory.obs = None
                memory.demanded.drop()
                self._observe_at.set(uid, -inf)
                self.plans.requeue(uid)

    def forget_allocation(self) -> None:
        """Forget the allocation's state: the next allocation begins from nothing."""
        self._allocator, self._report_only_allocator = LookaheadAllocator(), Allocator()
        self._change_times = ChangeTimes()
        self.decided: PassDecisions | None = None
        """The decisions of the last pass, for its later readers; None before the first pass, and after `forget` or
        `forget_allocation`. The controller calls `forget` after a failed pass, which may have changed parts of them.
        """

    # -- observe -------------------------------------------------------------------------------------------------------

    def read_ahead(self, view: ClusterView) -> Iterator[None]:
        """If many jobs are new or changed, observe one of them per step. The next pass uses these observations.

        A job that changes between two steps is observed again. Deleted jobs are forgotten.
        """
        if (uids := view.jobs()) is not self._observed_jobs.uids:
            self._forget_deleted(uids)
        for uid in view.unread():
            self._observe(view, uid)
            self._demand(view, uid)
            yield

    def observe(self, view: ClusterView) -> tuple[Mapping[str, Observation], AllocationInputs]:
        """All jobs (by uid) as they are now, and the input to allocate from."""
        uids = self._to_observe(view)
        for uid in uids:
            self._observe(view, uid)
        for uid in uids:
            self._demand(view, uid)
        self._observed_jobs = self._observed_jobs.renewed(view.jobs(), uids, self._jobs)
        self.plans.note_observed(uids)
        return self._observed_jobs.obs, self._take_inputs(view)

    def _to_observe(self, view: ClusterView) -> Collection[str]:
        """The jobs (uids) whose observation may differ from that of the last pass. All other observations are kept."""
        uids, dirty = view.jobs(), view.take_dirty()
        new: Collection[str] = ()
        if uids is not self._observed_jobs.uids:
            self._forget_deleted(uids)
            new = [uid for uid in uids if uid not in self._jobs]
        if dirty is None:
            return tuple(uids)
        some = {*dirty, *self._observe_at.due(view.now)}
        return (*sorted(uid for uid in some if uid in self._jobs), *new)

    def _forget_deleted(self, uids: Collection[str]) -> None:
        for uid in self._jobs.keys() - set(uids):
            del self._jobs[uid]
            self._observe_at.drop(uid)
            self.plans.drop(uid)

    def _observe(self, view: ClusterView, uid: str) -> None:
        """Observe the job; while it is quarantined, without its spec."""
        memory = self._jobs.setdefault(uid, JobMemory())
        try:
            self._observe_as(view, memory, view.read_job(uid))
        except Exception as error:  # noqa: BLE001 - any error is handled as an error of this job only
            self.quarantine(view, uid, error)

    def _observe_as(self, view: ClusterView, memory: JobMemory, job: Job) -> Observation:
        known = memory.obs
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

    def quarantine(
        self, view: ClusterView, uid: str, error: Exception, *, stage: FaultStage = FaultStage.READING
    ) -> Observation | None:
        """Quarantine a job that has caused an error, and observe it; None if the job is deleted."""
        if not view.quarantine(uid, error, stage=stage):
            return None
        obs = self._observe_as(view, self._jobs.setdefault(uid, JobMemory()), view.read_job(uid))
        self._observe_at.set(uid, -inf)
        return obs

    def _take_inputs(self, view: ClusterView) -> AllocationInputs:
        """The input to allocate from; the same object while nothing but time differs."""
        jobs, policies, settings = self._observed_jobs, view.policies, view.settings
        nodes, foreign_pods = view.nodes(jobs.members, jobs.to_delete), view.foreign_pods()

        def make() -> AllocationInputs:
            return AllocationInputs(
                now=view.now,
                nodes=nodes,
                jobs=jobs.demands,
                settings=settings,
                teams=policies.teams,
                foreign_pods=foreign_pods,
            )

        return self._inputs.get((policies, jobs.demands, nodes, foreign_pods), make)

    # -- demand --------------------------------------------------------------------------------------------------------

    def _demand(self, view: ClusterView, uid: str) -> None:
        """Make the job's demand, unless it is quarantined."""
        memory = self._jobs[uid]
        if memory.obs is not None and not memory.obs.job.quarantine:
            try:
                memory.renew_demand(view, memory.obs)
            except Exception as error:  # noqa: BLE001 - as in `_observe`
                self.quarantine(view, uid, error)

    # -- allocate ------------------------------------------------------------------------------------------------------

    def decide(self, view: ClusterView, reclaim: Reclaim) -> PassDecisions:
        """The decisions of a pass. A job or foreign pod at which the allocation raises an error is left out."""
        for _ in range(MAX_BLAMES):
            obs, inputs = self.observe(view)
            try:
                return self._allocate(view, obs, inputs, reclaim)
            except Exception as error:
                self.forget_allocation()
                if not self._blame(view, _to_allocate(inputs, view.now, reclaim), error):
                    raise
        return self._allocate(view, *self.observe(view), reclaim)

    def _blame(self, view: ClusterView, inputs: AllocationInputs, error: Exception) -> bool:
        """Quarantine the jobs and foreign pods at which the allocation raises; returns whether there are any."""
        found = _culprits_of_allocation(inputs)
        for bad in found:
            if isinstance(bad, ForeignPod):
                view.quarantine_pod(bad, error)
            else:
                self.quarantine(view, bad.uid, error, stage=FaultStage.ALLOCATION)
        return bool(found)

    def _allocate(
        self, view: ClusterView, obs: Mapping[str, Observation], inputs: AllocationInputs, reclaim: Reclaim
    ) -> PassDecisions:
        """The decisions. If a new allocation would be equal to the last one, the last one is kept."""
        last, stopped, now = self.decided, reclaim.stopped, view.now
        # Unchanged inputs are the identical object (23).
        same = last is not None and inputs is last.inputs and stopped == last.stopped
        if last is not None and same and now < last.until_epoch:
            self.decided = replace(last, policies=view.policies, obs=obs, is_new=False, report_only=None, error=None)
            return self.decided
        to_allocate = _to_allocate(inputs, now, reclaim)
        with self._timed():
            allocation, error = self._look_ahead(to_allocate)
            report_only = None
            if stopped is not None and reclaim.is_report_only:
                report_only, error = self._report_only(to_allocate, error)
            _ = allocation.nominations  # they are made when they are read, and an error is handled here
        until = min(
            self._change_times.next(to_allocate),
            now + reclaim.seconds_until_capacity(allocation),
            self._allocator.again_at_epoch,
        )
        self.decided = PassDecisions(view.policies, obs, inputs, allocation, True, until, stopped, report_only, error)
        return self.decided

    def _look_ahead(self, inputs: AllocationInputs) -> tuple[Allocation, Exception | None]:
        """The allocation with the look ahead. If only the look ahead fails, the allocation without it."""
        try:
            return self._allocator.allocate(inputs), None
        except Exception as error:  # noqa: BLE001 - it is returned
            self._allocator = LookaheadAllocator()
            # The error is raised again here if the look ahead is not the cause.
            return self._allocator.allocate_unchecked(inputs), error

    def _report_only(
        self, inputs: AllocationInputs, error: Exception | None
    ) -> tuple[Allocation | None, Exception | None]:
        """The allocation with the evictions that the mode DryRun only reports; None if it fails."""
        try:
            asked = replace(inputs, reclaim_stopped=None, eviction_limits=EvictionLimits())
            return self._report_only_allocator.allocate(asked), error
        except Exception as raised:  # noqa: BLE001 - it is returned
            self._report_only_allocator = Allocator()
            return None, raised

    # -- reconcile -----------------------------------------------------------------------------------------------------

    def may_need_plans(self, decisions: PassDecisions, at: float) -> Iterator[str]:
        """The jobs (uids) that may need another plan; `at` is monotonic."""
        return self.plans.needed(decisions.allocation, decisions.obs, at, is_new=decisions.is_new)

    def plan(self, obs: Observation, grant: Grant | None, now: float) -> Plan:
        return reconcile(obs, grant, now=now)

    def plan_in_quarantine(self, job: Job, release: Collection[str], now: float) -> Plan:
        """The plan of a quarantined job, whose pods `release` (uids) are preempted."""
        return plan_in_quarantine(job, release, now)


def _to_allocate(inputs: AllocationInputs, now: float, reclaim: Reclaim) -> AllocationInputs:
    """The input of the allocation. The search for culprits uses the same input."""
    limits = reclaim.eviction_limits(gpus_in(inputs))
    return replace(inputs, now=now, reclaim_stopped=reclaim.stopped, eviction_limits=limits)


def _culprits_of_allocation(inputs: AllocationInputs) -> list[JobDemand | ForeignPod]:
    """The jobs and foreign pods that cause an error in an allocation."""
    everyone: tuple[JobDemand | ForeignPod, ...] = (*inputs.jobs, *inputs.foreign_pods)

    def work(some: Sequence[JobDemand | ForeignPod]) -> None:
        jobs = tuple(one for one in some if isinstance(one, JobDemand))
        foreign_pods = tuple(one for one in some if isinstance(one, ForeignPod))
        allocation = allocate(replace(inputs, jobs=jobs, foreign_pods=foreign_pods))
        _ = allocation.evictions, allocation.nominations  # reasons and grants are made when they are read

    return culprits(everyone, work)


def _valid_until(obs: Observation, now: float) -> float:
    """When (epoch seconds) time alone may change the observation of the job.

    The times of a status are whole seconds. So a status that is not written yet is made again each second, unless the
    status must be written before all other writes.
    """
    if obs.write_status_first:
        return -inf
    until = min((time for time in (*obs.requeue_at, obs.no_pods_before) if time > now), default=inf)
    return until if obs.status is obs.job.status else min(until, floor(now) + 1.0)
