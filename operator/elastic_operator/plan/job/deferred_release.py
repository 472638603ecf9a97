"""Decides which pods a job releases later, because it is not known yet whether their preemptors can use the room, and
changes the job's grant accordingly (139).

The job releases its other pods meanwhile, so that one preemptor does not delay the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from elastic_api.status import GRANT_SIZE_REASONS, ConditionType, JobStatus
from elastic_operator.plan.facts.decisions import Assignment, Grant
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.text import Reason
from elastic_worker.contract import ROLE_MASTER


@dataclass(frozen=True, slots=True)
class DeferredRelease:
    """The pods (uids) of a job whose release is deferred, and the preemptors (uids) that wait for their room."""

    pods: frozenset[str] = frozenset()
    preemptors: frozenset[str] = frozenset()

    def applied_to(self, grant: Grant, status: JobStatus, generation: int) -> Grant:
        """The grant while the release of these pods is deferred.

        If spec (`generation`) and size are unchanged, so is the reason in the job's `status`.
        """
        if not self.pods:
            return grant
        target = status.target_replicas
        changed = self._without(grant, target)
        condition, assignment = status.condition(ConditionType.FULL_SIZE), changed.assignment
        if assignment.release or assignment.replicas != target or condition is None:
            return changed
        if condition.observed_generation != generation or condition.reason not in GRANT_SIZE_REASONS:
            return changed
        return replace(changed, size_reason=Reason(condition.reason, condition.message))

    def _without(self, grant: Grant, target: int) -> Grant:
        """The grant without the release of these pods. If no pod is released now, the status keeps its `target`.

        Lost pods are created nevertheless, if there is room for them now. The room of deferred pods is not free.
        """
        before = grant.assignment
        keep = (*before.keep, *(uid for uid in before.release if uid in self.pods))
        release = tuple(uid for uid in before.release if uid not in self.pods)
        soonest = sorted(before.create, key=lambda slot: not slot.ready)
        create = tuple(soonest[: max(0, max(target, before.replicas) - len(keep))])
        if release:
            preemptors = {uid: name for uid, name in grant.preemptors.items() if uid not in self.preemptors}
            now = Assignment(keep, release, create)
            return replace(grant, assignment=now, target_replicas=now.replicas, preemptors=preemptors)
        now = Assignment(keep, (), tuple(slot for slot in create if slot.ready))
        target = target or before.replicas
        return replace(grant, assignment=now, target_replicas=target, preemptors={}, victim_jobs={})


def pods_to_defer(
    demand: JobDemand, assignment: Assignment, preemptors: Mapping[str, str], waiting: Set[str]
) -> frozenset[str]:
    """The pods (uids) to release later, while some preemptors are `waiting`; `preemptors` maps a pod to the uid of its
    preemptor.

    The job keeps an allowed size. So if no allowed size lies in between, it releases more pods than the other
    preemptors need, and a rigid job releases all its pods for one preemptor. Pods that are released for no preemptor,
    for example to bring the job to its largest size, are released at once, too.
    """
    for_waiting = [uid for uid in assignment.release if preemptors.get(uid) in waiting]
    if not for_waiting:
        return frozenset()
    served = [uid for uid in assignment.release if uid in preemptors and preemptors[uid] not in waiting]
    others = [uid for uid in assignment.release if uid not in preemptors]
    to_release = [*served, *others, *for_waiting]
    return frozenset(to_release[len(assignment.keep) + len(to_release) - _size_for_now(demand, assignment, served) :])


def _size_for_now(demand: JobDemand, assignment: Assignment, served: list[str]) -> int:
    """The largest size that leaves enough room for the preemptors that are not waiting."""
    least, most = len(assignment.keep), len(assignment.keep) + len(assignment.release) - len(served)
    if not demand.sizes:
        return most
    if not served:
        return max(least, min(most, demand.sizes[-1]))
    if any(member.uid in served for member in demand.members if member.role == ROLE_MASTER):
        return least
    return max((size for size in demand.sizes if least <= size <= most), default=least)
