"""Decides whether a job's pods may be evicted for others now, and begins the steps before it.

No pod is evicted for a preemptor that cannot use the room: the API server is asked about the pods of jobs (`dry_runs`),
and a foreign pod is nominated (`nominator`) (41, 139). While the stores are not fresh, no pod is evicted, because no
pod is created either. While a failed pod's log is read, its job neither loses pods nor causes evictions: all of its
pods may be replaced a moment later (14).

Each change of size costs a job some time. So the job waits, for a limited time, for the answers about all of its
preemptors. Then it releases the pods whose preemptors can use the room, and releases the other pods later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.loop.reclaim.dry_run import DryRunQuestion
from elastic_operator.loop.reclaim.dry_runs import DryRuns
from elastic_operator.loop.reclaim.eviction_limiter import EvictionLimiter
from elastic_operator.loop.reclaim.nominator import Nominator
from elastic_operator.loop.writes.plan_executor import Gate
from elastic_operator.memory import drop_absent
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.decisions import NewPods, Plan
from elastic_operator.plan.facts.eviction_limits import PreemptorKey
from elastic_operator.plan.job.deferred_release import DeferredRelease, pods_to_defer
from elastic_operator.plan.job.plan_writes import pods_to_create
from elastic_operator.plan.planner import PassDecisions, Planner

ALL_ANSWERS_SECONDS = 10.0
"""The most seconds for which a job waits for the answers about all of its preemptors."""
FOREIGN_POD_ANSWERS_SECONDS = 2.0
"""The same limit if some of the job's pods are evicted for foreign pods. It is shorter, because a foreign pod needs no
dry run, and because the other pods of a gang wait for the node, too.
"""


@dataclass(kw_only=True, eq=False, repr=False)
class EvictionGate:
    """Decides for each job from the decisions of the present pass."""

    planner: Planner
    dry_runs: DryRuns
    nominator: Nominator
    limiter: EvictionLimiter
    pods: Store[objects.Pod]
    is_fresh: Callable[[], bool]
    """Whether the stores are recent enough to create pods."""
    reads: Callable[[str], bool]
    """Whether logs of failed pods of a job (uid) are being read."""

    def __post_init__(self) -> None:
        self._waits_since: dict[str, float] = {}
        """When (monotonic) the present wait for answers began, by job. A release of pods begins another wait."""

    def forget_deleted(self, present: Set[str]) -> None:
        drop_absent(present, self._waits_since)

    def defer_release(self, uid: str) -> DeferredRelease:
        """Defer the release of that job's pods whose preemptors are not known to be able to use the room; returns these
        pods.

        Starts and ends the job's wait, and queues the questions about the preemptors.
        """
        allocation = self._allocation
        released = allocation.assignment(uid).release if uid in allocation else ()
        if released and (self.reads(uid) or not self.is_fresh()):
            return DeferredRelease(frozenset(released))
        waiting = self._queue_questions(uid) if released else frozenset()
        if not waiting:
            self._waits_since.pop(uid, None)
            return DeferredRelease()
        now = time.monotonic()
        longest = FOREIGN_POD_ANSWERS_SECONDS if allocation.has_foreign_preemptors(uid) else ALL_ANSWERS_SECONDS
        if now < self._waits_since.setdefault(uid, now) + longest:
            return DeferredRelease(frozenset(released))
        preemptors = allocation.preemptors_by_pod(uid)
        return DeferredRelease(
            pods_to_defer(allocation.demand(uid), allocation.assignment(uid), preemptors, waiting), waiting
        )

    @property
    def awaiting_dry_runs(self) -> int:
        """The number of jobs that wait for the answers about their preemptors."""
        return len(self._waits_since)

    def _queue_questions(self, uid: str) -> frozenset[str]:
        """Queue the questions about the preemptors of the job's pods. Returns the preemptors about which there is no
        answer yet: they may be unable to use the room.
        """
        preemptors = self._allocation.job_preemptors(uid)
        return frozenset(preemptor for preemptor in preemptors if not self._queue_unless_accepted(preemptor, uid))

    def begin(self, uid: str, plan: Plan) -> Gate | None:
        """Begin the steps before the plan's first write: foreign pods are nominated. Returns the gate of the plan; None
        if there are no such steps, and no deletion counts under the limits on evictions.
        """
        taken = self._allocation.evicted_for
        evicted = {pod.uid: taken[pod.uid] for pod in plan.deletes if pod.uid in taken}
        if uid in self._waits_since and plan.deletes:
            self._waits_since[uid] = time.monotonic()
        nominated = self.nominator.begin_for(uid)
        return partial(self._may_evict, nominated, evicted) if nominated or evicted else None

    async def _may_evict(self, nominated: Gate | None, evicted: Mapping[str, PreemptorKey]) -> bool:
        """Whether all foreign pods are nominated. Then the evictions are counted under the limits.

        They are counted before the plan's first write, so that the next pass knows of a plan under way. If this write
        fails, they stay counted: mostly the next try evicts the same pods, and each counts once. Otherwise the limits
        allow that many evictions fewer for a minute (138).
        """
        if nominated is not None and not await nominated():
            return False
        self.limiter.note_evictions(evicted)
        return True

    @property
    def _decided(self) -> PassDecisions:
        assert self.planner.decided is not None, "the planner has decided in this pass"
        return self.planner.decided

    @property
    def _allocation(self) -> Allocation:
        return self._decided.allocation

    def _queue_unless_accepted(self, uid: str, victim_job: str) -> bool:
        """Whether the API server is known to accept the pods of this preemptor. If not, a dry run is queued, and the
        victim job is decided on again after the answer.
        """
        obs = self._decided.obs.get(uid)
        if self.reads(uid):
            return False
        if obs is None:
            return True
        try:
            creates = self._creates(uid)
        except Exception:  # noqa: BLE001 - any error is handled as an error of the preemptor
            self.dry_runs.answers.note_fault(obs.job)
            return False
        if not creates:
            return True
        order = self._allocation.position(uid)
        return self.dry_runs.queue_unless_accepted(
            obs.job, creates.roles, partial(self._dry_run_question, uid), victim_job=victim_job, order=order
        )

    def _dry_run_question(self, uid: str) -> DryRunQuestion | None:
        """The present question about the job's pods, if there is any."""
        all_obs = self._decided.obs
        obs, creates = all_obs.get(uid), self._creates(uid)
        if obs is None or obs.job.spec is None or not creates:
            return None
        job, assignment = obs.job, self._allocation.assignment(uid)
        ready = sum(slot.ready for slot in assignment.create)
        others = [all_obs[uid].job for uid in sorted(self.dry_runs.answered_or_running() - {job.uid}) if uid in all_obs]
        besides = ((other, self._creates(other.uid)) for other in others if other.namespace == job.namespace)
        return DryRunQuestion(
            job,
            creates,
            besides=tuple((other, made.roles) for other, made in besides if made),
            leaving=partial(self._leaving, job.namespace, self._allocation.preempted_pods),
            needed=len(assignment.keep) + ready < obs.job.spec.minimum,
        )

    def _creates(self, uid: str) -> NewPods | None:
        """The job's planned pods, as if their room were free."""
        obs = self._decided.obs.get(uid)
        slots = self._allocation.assignment(uid).create if uid in self._allocation else ()
        return pods_to_create(obs, slots) if obs is not None else None

    def _leaving(self, namespace: str, evicted: frozenset[str]) -> list[objects.Pod]:
        """The pods of that namespace that are to be deleted or are being deleted."""
        return [
            pod
            for pod in self.pods
            if pod.metadata.namespace == namespace
            and (pod.metadata.uid in evicted or pod.metadata.deletion_timestamp is not None)
        ]
