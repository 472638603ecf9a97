"""Pods that are being created. Each counts from the moment before its request is sent until the pod is observed (48).

So no pass gives the pod's place to another pod (kube-scheduler: `cache.AssumePod`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from math import inf

from elastic_operator.build.names import Owner
from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.demand import Member
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.read.counted_pod import Assumed, assumed_uid
from elastic_operator.read.sums import PodIndex

ASSUMED_SECONDS = 15.0
"""A pod that was sent and is not observed counts for this long after the answer. A watch event takes far less (48)."""


class AssumedPods:
    """The assumed pods, by job and by node.

    Args:
        now: A monotonic clock.
        on_change: Called with job (uid) and node when a pod is assumed, or is not assumed any more.
    """

    def __init__(self, now: Callable[[], float], on_change: Callable[[str, str | None], object]) -> None:
        self._now, self._on_change = now, on_change
        self._pods: dict[str, Assumed] = {}
        self._by_job, self._by_node = PodIndex(), PodIndex()

    def add(self, job: Owner, slot: Slot, shape: PodShape) -> str:
        """Count a pod that is about to be created for the job, until a pod of that name is seen. Returns the pod's uid
        until then (48).

        The pod counts even if the creation takes long. Call `await_seen` at the end of the creation.
        """
        name = slot.pod_name(job.name)
        self.forget(job.namespace, name)
        uid = assumed_uid(job.namespace, name)
        self._pods[uid] = Assumed(Member.at(uid, slot, shape), job.uid, job.namespace, name, inf)
        self._by_job.add(job.uid, uid)
        self._by_node.add(slot.node, uid)
        self._on_change(job.uid, slot.node)
        return uid

    def forget(self, namespace: str, name: str) -> None:
        """Count an assumed pod no more, because it was certainly not created, or because it is observed now."""
        uid = assumed_uid(namespace, name)
        assumed = self._pods.pop(uid, None)
        if assumed is not None:
            self._by_job.remove(assumed.job_uid, uid)
            self._by_node.remove(assumed.member.node, uid)
            self._on_change(assumed.job_uid, assumed.member.node)

    def await_seen(self, namespace: str, name: str) -> None:
        """Note the end of the creation. A pod that is still not seen may exist nevertheless, so it counts for
        `ASSUMED_SECONDS` more.
        """
        uid = assumed_uid(namespace, name)
        if uid in self._pods:
            self._pods[uid] = replace(self._pods[uid], until=self._now() + ASSUMED_SECONDS)

    def of_job(self, job_uid: str) -> tuple[Assumed, ...]:
        """The job's pods that are being created and are not seen yet."""
        return tuple(self._pods[uid] for uid in sorted(self._by_job.get(job_uid)))

    def uids_at(self, node: str | None) -> Set[str]:
        """The uids of the assumed pods that are pinned to the node."""
        return self._by_node.get(node)

    def at(self, node: str) -> Iterator[Assumed]:
        """The assumed pods that are pinned to the node."""
        return map(self._pods.__getitem__, self._by_node.get(node))

    def next_expiry_monotonic(self) -> float:
        """When (monotonic) `expire` forgets the next pod; infinity if it forgets none."""
        return min((assumed.until for assumed in self._pods.values()), default=inf)

    def expire(self) -> None:
        """Forget pods whose creation was not confirmed for too long."""
        for assumed in [a for a in self._pods.values() if a.until <= self._now()]:
            self.forget(assumed.namespace, assumed.name)
