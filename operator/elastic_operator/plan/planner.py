"""One pass over everything: observe each job, allocate for all, and find the jobs that need another plan.

The planner has all memory of decisions from pass to pass: one `JobMemory` and the last plan of each job, the state of
the last allocation, and what that pass has decided. The view caches all facts but jobs. The cost of a pass grows with
the changes since the last pass: an unchanged fact or decision stays the same object, so the next step skips it by
identity (23). A property test checks that a planner with caches decides like a planner without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from elastic_operator.plan.allocation.allocate import Allocator, allocate
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.change_times import ChangeTimes
from elastic_operator.plan.cluster_view import ClusterView, Reclaim
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs, gpus_in
from elastic_operator.plan.facts.blame import culprits
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.eviction_limits import EvictionLimits
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.job import FaultStage
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.last_plans import LastPlans
from elastic_operator.plan.lookahead import LookaheadAllocator
from elastic_operator.plan.observed_jobs import JobObserver
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
        self.plans = LastPlans()
        self.jobs = JobObserver(self.plans)
        self.forget_allocation()

    # -- memory --------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget all jobs and the last allocation, so that the next pass decides everything again."""
        self.jobs.forget()
        self.forget_allocation()

    def forget_allocation(self) -> None:
        """Forget the allocation's state: the next allocation begins from nothing."""
        self._allocator, self._report_only_allocator = LookaheadAllocator(), Allocator()
        self._change_times = ChangeTimes()
        self.decided: PassDecisions | None = None
        """The decisions of the last pass, for its later readers; None before the first pass, and after `forget` or
        `forget_allocation`. The controller calls `forget` after a failed pass, which may have changed parts of them.
        """

    # -- observe -------------------------------------------------------------------------------------------------------

    def observe(self, view: ClusterView) -> tuple[Mapping[str, Observation], AllocationInputs]:
        """All jobs (by uid) as they are now, and the input to allocate from: the last one while nothing but time
        differs.
        """
        jobs = self.jobs.observe(view)
        inputs = AllocationInputs(
            now=view.now,
            nodes=view.nodes(jobs.members, jobs.to_delete),
            jobs=jobs.demands,
            settings=view.settings,
            teams=view.policies.teams,
            foreign_pods=view.foreign_pods(),
        )
        last = self.decided.inputs if self.decided is not None else None
        if last is not None and replace(inputs, now=last.now) == last:
            inputs = last
        return jobs.obs, inputs

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
                self.jobs.quarantine(view, bad.uid, error, stage=FaultStage.ALLOCATION)
        return bool(found)

    def _allocate(
        self, view: ClusterView, obs: Mapping[str, Observation], inputs: AllocationInputs, reclaim: Reclaim
    ) -> PassDecisions:
        """The decisions. If a new allocation would be equal to the last one, the last one is kept."""
        last, stopped, now = self.decided, reclaim.stopped, view.now
        # Unchanged inputs are the identical object (23).
        same = last is not None and inputs is last.inputs and stopped == last.stopped
        if last is None or last.inputs.teams is not inputs.teams:
            self._change_times = ChangeTimes()
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
            *(one.gangs_first_until for one in (allocation, report_only) if one is not None),
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

    # -- plans ---------------------------------------------------------------------------------------------------------

    def may_need_plans(self, decisions: PassDecisions, at: float) -> Iterator[str]:
        """The jobs (uids) that may need another plan; `at` is monotonic."""
        return self.plans.needed(decisions.allocation, decisions.obs, at, is_new=decisions.is_new)


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
