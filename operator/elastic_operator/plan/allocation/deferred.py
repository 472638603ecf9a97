"""Decides which pods a job releases later, because it is not known yet whether their preemptors can use the room
(139).

The job releases its other pods meanwhile, so that one preemptor does not delay the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from elastic_operator.plan.facts.decisions import Assignment
from elastic_operator.plan.facts.demand import JobDemand
from elastic_worker.contract import ROLE_MASTER


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
