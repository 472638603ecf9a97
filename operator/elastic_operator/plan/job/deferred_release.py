"""Changes the grant of a job whose release of pods is deferred, because their preemptors may be unable to use the room
(139).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastic_api.status import GRANT_SIZE_REASONS, ConditionType, JobStatus
from elastic_operator.plan.facts.decisions import Assignment, Grant
from elastic_operator.plan.facts.text import Reason


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
        changed = replace(self._without(grant, target), deferred=self.pods)
        condition, assignment = status.condition(ConditionType.FULL_SIZE), changed.assignment
        size = len(assignment.keep) + len(assignment.create)
        if assignment.release or size != target or condition is None or condition.observed_generation != generation:
            return changed
        if condition.reason not in GRANT_SIZE_REASONS:
            return changed
        return replace(changed, size_reason=Reason(condition.reason, condition.message))

    def _without(self, grant: Grant, target: int) -> Grant:
        """The grant without the release of these pods, with `target` pods as the size.

        Lost pods are created nevertheless, if there is room for them now. The room of deferred pods is not free.
        """
        before = grant.assignment
        keep = (*before.keep, *(uid for uid in before.release if uid in self.pods))
        release = tuple(uid for uid in before.release if uid not in self.pods)
        soonest = sorted(before.create, key=lambda slot: not slot.ready)
        create = tuple(soonest[: max(0, max(target, before.replicas) - len(keep))])
        if release:
            preemptors = {uid: name for uid, name in grant.preemptors.items() if uid not in self.preemptors}
            return replace(
                grant, assignment=Assignment(len(keep) + len(create), keep, release, create), preemptors=preemptors
            )
        create = tuple(slot for slot in create if slot.ready)
        assignment = Assignment(target or before.replicas, keep, (), create)
        return replace(grant, assignment=assignment, preemptors={}, victim_jobs={})
