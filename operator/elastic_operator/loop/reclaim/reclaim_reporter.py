"""Reports on reclaim for users: entries that wait for a limit on evictions, evictions of the mode DryRun, and gangs
without room.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from elastic_operator.cluster import objects
from elastic_operator.cluster.events import EventRecorder, Subject, job_subject, pod_subject
from elastic_operator.cluster.store import Store
from elastic_operator.loop.reclaim.reclaim_times import ReclaimTimes
from elastic_operator.metrics import Metrics
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.decisions import Event, EventReason
from elastic_operator.plan.facts.text import listed, names_of, pods

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class ReclaimReporter:
    jobs: Store[objects.CustomObject]
    pods: Store[objects.Pod]
    events: EventRecorder
    metrics: Metrics

    def __post_init__(self) -> None:
        self._over_eviction_limit: frozenset[tuple[str, bool]] = frozenset()
        self._reported: frozenset[str] = frozenset()
        self._times = ReclaimTimes(self.metrics, is_bound=self._is_bound)

    def note_allocation(self, inputs: AllocationInputs, allocation: Allocation) -> None:
        """Report on a new allocation, made from that input."""
        self._report_over_eviction_limit(allocation)
        self.metrics.not_lasting.inc(len(allocation.withheld))
        self.metrics.reservations.set(sum(bool(pod.reserved) for pod in inputs.foreign_pods))
        self._times.note_allocation(inputs, allocation)

    def report_futile(self, inputs: AllocationInputs, preemptors: frozenset[str]) -> None:
        """Report the preemptors (uids) that cannot start although pods are preempted for them (112, 219)."""
        if not preemptors:
            return
        known = (*inputs.jobs, *(pod.demand for pod in inputs.foreign_pods))
        names = sorted(f"{demand.namespace}/{demand.name}" for demand in known if demand.uid in preemptors)
        log.warning("pods were preempted for preemptors that still cannot start preemptors=%s", listed(names))

    def _is_bound(self, uid: str) -> bool | None:
        """Whether the pod has a node; None if it is deleted."""
        pod = self.pods.get(uid)
        return bool(pod.spec.node_name) if pod else None

    def _report_over_eviction_limit(self, allocation: Allocation) -> None:
        """Report each entry that a limit on evictions stops, once per wait."""
        over, previous = allocation.over_eviction_limit, self._over_eviction_limit
        self._over_eviction_limit = frozenset((one.demand.uid, one.hit.needs_higher_limit) for one in over)
        self.metrics.waiting_for_limit.set(len(over))
        self.metrics.too_large.set(sum(one.hit.needs_higher_limit for one in over))
        for one in over:
            demand, hit = one.demand, one.hit
            if (demand.uid, hit.needs_higher_limit) in previous:
                continue
            why, kind = hit.reason, "pod" if one.is_foreign_pod else "job"
            text = "a preemptor waits for a limit on evictions %s=%s/%s reason=%r"
            log.warning(text, kind, demand.namespace, demand.name, why.message)
            pod = self.pods.get(demand.uid) if one.is_foreign_pod else None
            subject = pod_subject(pod) if pod is not None else self._job_of(demand.uid)
            if subject is not None and hit.needs_higher_limit:
                self.events.record(subject, Event(EventReason.RECLAIM_TOO_LARGE, why.message, "Warning"))

    def would_reclaim(self, allocation: Allocation) -> None:
        """Report the evictions that would be made, once for each pod."""
        released = {uid: allocation.assignment(uid).release for uid in allocation.evictions}
        previous, self._reported = self._reported, frozenset().union(*released.values())
        for uid, preemptors in allocation.evictions.items():
            job, new = self._job_of(uid), [pod for pod in released[uid] if pod not in previous]
            if job is not None and new:
                names = ", ".join(names_of(preemptors))
                text = f"{pods(len(new))} would be evicted for {names}. reclaim.mode is DryRun."
                log.info("event recorded job=%s/%s event=WouldReclaim message=%r", job.namespace, job.name, text)
                self.events.record(job, Event(EventReason.WOULD_RECLAIM, text))
                self.metrics.would_evict.inc(len(new))

    def no_room(self, gangs: Iterable[frozenset[str]]) -> None:
        """Report on one pod of each of these gangs that there is no room for the whole gang; `gangs` are their pods
        (uids).
        """
        for uids in gangs:
            pod = self.pods.get(min(uids))
            if pod is None:
                continue
            text = (
                f"The {len(uids)} waiting pods of this pod's gang do not all fit into the room that its team may use."
                " No pods are evicted for a part of a gang."
            )
            meta = pod.metadata
            log.info("event recorded pod=%s/%s event=NoRoomForGang message=%r", meta.namespace, meta.name, text)
            self.events.record(pod_subject(pod), Event(EventReason.NO_ROOM_FOR_GANG, text))

    def _job_of(self, uid: str) -> Subject | None:
        job = self.jobs.get(uid)
        return job_subject(job.metadata.namespace, job.metadata.name, uid) if job else None
