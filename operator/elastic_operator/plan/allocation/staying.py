"""Which of the pods that a job is to let go stay for now, as those who get their room are not known to have use for it.

The others go meanwhile: one of many takers must not keep the rest waiting (139).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from elastic_operator.plan.facts.decisions import Assignment
from elastic_operator.plan.facts.roles import MASTER
from elastic_operator.plan.facts.snapshot import JobDemand


def staying(demand: JobDemand, share: Assignment, takers: Mapping[str, str], waiting: Set[str]) -> frozenset[str]:
    """The released pods (uids) that stay while some of the `takers` (by the pod each gets the room of) are `waiting`.

    The job is left with an allowed size: so more go than the others need where there is none in between, and all of a
    gang go for one. What nobody takes goes with them, or where the job has more pods than its largest size.
    """
    held = [uid for uid in share.release if takers.get(uid) in waiting]
    if not held:
        return frozenset()
    served = [uid for uid in share.release if uid in takers and takers[uid] not in waiting]
    others = [uid for uid in share.release if uid not in takers]
    going = [*served, *others, *held]
    return frozenset(going[len(share.keep) + len(going) - _size_for_now(demand, share, served) :])


def _size_for_now(demand: JobDemand, share: Assignment, served: list[str]) -> int:
    """The largest size that leaves those who are served their room."""
    least, most = len(share.keep), len(share.keep) + len(share.release) - len(served)
    if not demand.sizes:
        return most
    if not served:
        return max(least, min(most, demand.sizes[-1]))
    if any(member.uid in served for member in demand.members if member.role == MASTER):
        return least
    return max((size for size in demand.sizes if least <= size <= most), default=least)
