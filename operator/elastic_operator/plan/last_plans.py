"""The last plan of each job, and which jobs may need another one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from elastic_api.status import JobStatus
from elastic_operator.memory import DelayQueue
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.decisions import Assignment
from elastic_operator.plan.job.observation import Observation


@dataclass(frozen=True, slots=True)
class LastPlan:
    """A job's last plan: its input, its status, and when it is made again if nothing changes."""

    obs: Observation
    assignment: Assignment | None
    due_monotonic: float
    status: JobStatus

    def is_current(self, obs: Observation, at: float) -> bool:
        """Whether the plan was made from that observation, and is not due at `at` (monotonic)."""
        return self.obs is obs and at < self.due_monotonic  # unchanged means identical (23)


class LastPlans:
    """The last plans, by the uid of the job. All times are monotonic."""

    def __init__(self) -> None:
        self._plans: dict[str, LastPlan] = {}
        self._due = DelayQueue()
        """When each plan is due."""
        self._outdated: dict[str, None] = {}
        """Jobs whose last plan may be made from an older observation, or which the last pass had no time for."""

    def note_observed(self, uids: Iterable[str]) -> None:
        """Note that these jobs were observed again, so their plans may be outdated."""
        self._outdated.update(dict.fromkeys(uids))

    def note(self, planned: LastPlan) -> None:
        """Note a plan that was made and begun."""
        uid = planned.obs.job.uid
        self._plans[uid] = planned
        self._due.set(uid, planned.due_monotonic)
        self._outdated.pop(uid, None)

    def all(self) -> Iterable[LastPlan]:
        """The last plans of all jobs that had one."""
        return self._plans.values()

    def last_plan(self, uid: str) -> LastPlan | None:
        """The job's last plan; None before its first one."""
        return self._plans.get(uid)

    def next_due_monotonic(self) -> float:
        """When the first plan is due again. Forgotten plans have no such time: the next passes make them."""
        return self._due.next()

    def needed(
        self, allocation: Allocation, all_obs: Mapping[str, Observation], at: float, *, is_new: bool
    ) -> Iterator[str]:
        """The jobs (uids) that need another plan, or at which the allocation raises an error. First come the postponed
        ones, then those that are outdated longest. `is_new`: the allocation is not the one of the last call.
        """
        changed = allocation.reassigned if is_new else frozenset()
        in_order = [uid for uid in all_obs if uid in changed] if changed else []
        for uid in dict.fromkeys((*self._outdated, *in_order, *self._due.due(at))):
            if uid not in all_obs:
                continue
            try:
                if self._is_up_to_date(all_obs[uid], allocation, at):
                    self._outdated.pop(uid, None)
                    continue
            except Exception:  # noqa: BLE001 - it is raised again where the plan is made, and handled there
                pass
            yield uid

    def _is_up_to_date(self, obs: Observation, allocation: Allocation, at: float) -> bool:
        """Whether another plan for the job would be the same, apart from the words of its messages."""
        uid = obs.job.uid
        known = self.last_plan(uid)
        if known is None or not known.is_current(obs, at):
            return False
        assignment = allocation.find_assignment(uid)  # an unchanged one is mostly the same object
        return known.assignment is assignment or known.assignment == assignment

    def postpone(self, uids: Iterable[str]) -> None:
        """Note that a pass had no time for the plans of these jobs. `needed` gives them first."""
        self._outdated = dict.fromkeys((*uids, *self._outdated))

    @property
    def outdated(self) -> Iterable[str]:
        """The jobs (uids) whose plan may be outdated."""
        return self._outdated.keys()

    def requeue(self, uid: str) -> None:
        """Plan for that job again. Until then, metrics show its last plan.

        A job that has no plan yet gets its first one in any case; a deleted job has no plan, either.
        """
        if (planned := self._plans.get(uid)) is not None:
            self._plans[uid] = replace(planned, due_monotonic=-inf)
            self._due.drop(uid)
            self._outdated[uid] = None

    def drop(self, uid: str) -> None:
        """Forget a deleted job."""
        self._plans.pop(uid, None)
        self._due.drop(uid)
        self._outdated.pop(uid, None)
