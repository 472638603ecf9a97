"""The planner's view of the cluster, read from the stores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from collections.abc import Set as AbstractSet

from elastic_operator.cluster import objects
from elastic_operator.loop.reclaim.dry_run_answers import DryRunAnswers
from elastic_operator.memory import DirtyJobs, SingleCache
from elastic_operator.plan.facts.demand import Member, PreemptionBar
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.job import FaultStage, Job, JobFeedback, OwnPod
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.job.remaining_pods import flavor_in_use
from elastic_operator.plan.policies.resolve import ResolvedPolicies
from elastic_operator.read.reader import Reader

log = logging.getLogger(__name__)

FEW_JOBS = 16
"""Up to this many new or changed jobs are read without letting other tasks run: a large template takes 10 ms."""


class StoreView:
    """The cluster as the stores showed it at the last `refresh`: a `ClusterView`, which describes its methods.

    Args:
        dirty_jobs: The jobs to read again.
        with_logs: Adds the content of their logs to the pods of a job (uid, namespace). Until its log was read, a
            failed pod is shown as running.
        feedback: By a job's uid and generation, its news beside its object and its pods.
        answers: The API server's answers, by which some jobs may not preempt.
    """

    def __init__(
        self,
        reader: Reader,
        dirty_jobs: DirtyJobs,
        with_logs: Callable[[str, str, tuple[OwnPod, ...]], tuple[OwnPod, ...]],
        feedback: Callable[[str, int], JobFeedback],
        answers: DryRunAnswers,
    ) -> None:
        self.reader, self._with_logs, self._feedback, self._answers = reader, with_logs, feedback, answers
        self._quarantine, self._stores, self._ledger = reader.quarantine, reader.stores, reader.ledger
        self.now = 0.0
        self.settings = reader.settings.allocation
        self._mine: SingleCache[int, AbstractSet[str]] = SingleCache()
        """The jobs (uids) that are served."""
        self._dirty_jobs = dirty_jobs
        self._dirty_jobs.mark_all()  # an earlier leader of this process may have taken some
        self._end_subscription = self._stores.jobs.subscribe(self._job_changed)

    def close(self) -> None:
        """Unsubscribe from the stores, which live longer than this leader."""
        self._end_subscription()
        self.reader.external_changes.close()

    def _job_changed(self, old: objects.CustomObject | None, new: objects.CustomObject | None) -> None:
        self._dirty_jobs.mark(*(body.metadata.uid for body in (old, new) if body is not None))

    @property
    def policies(self) -> ResolvedPolicies:
        return self.reader.policies.made.resolved

    def refresh(self, now: float) -> StoreView:
        """Read the stores at `now` (epoch seconds on the API server's clock); returns this view."""
        self.reader.first_seen.begin_pass()
        self.refresh_contexts(now)
        self._ledger.expire()
        return self

    def take_dirty(self) -> Collection[str] | None:
        jobs = self._dirty_jobs.take()
        if jobs is None:
            return None
        named = (self._stores.jobs.named(key[1], key[0]) for key in jobs if isinstance(key, tuple))
        by_uid = (key for key in jobs if isinstance(key, str))
        return {*by_uid, *(job.metadata.uid for job in named if job is not None)}

    def refresh_contexts(self, now: float) -> StoreView:
        self.now, last_change = now, self.reader.external_changes.since
        self._quarantine.note_ends()
        self._answers.note_ends()
        if self.reader.job_contexts.refresh(now):
            self._dirty_jobs.mark_all()
        if self.reader.external_changes.since != last_change:
            self._dirty_jobs.mark(*self.reader.specs.on_hold)
        self._dirty_jobs.mark(*self.reader.shapes.take_moved())
        return self

    def forget(self) -> None:
        """Forget the jobs that were read, so that the next refresh reads all of them."""
        self._dirty_jobs.mark_all()

    def read_again(self, uids: Iterable[str]) -> None:
        self._dirty_jobs.mark(*uids)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(self) -> AbstractSet[str]:
        return self._mine.get(self._stores.jobs.uids_revision, self._uids)

    def _uids(self) -> AbstractSet[str]:
        return {body.metadata.uid: None for body in self._stores.jobs.values() if self._is_mine(body)}.keys()

    def read_job(self, uid: str) -> Job:
        job = self._read(uid)
        if not job.quarantine:
            self._answers.job_read(job)
        return job

    def _read(self, uid: str) -> Job:
        body = self._stores.jobs.get(uid)
        assert body is not None, "the job is in the store"
        meta, fault = body.metadata, self._quarantine.fault(uid, body.metadata.generation)
        if fault is not None or meta.deletion_timestamp is not None:
            return self.reader.jobs.job_without_spec(body, self._ledger.own_pods(uid), fault)
        own, specs = self._ledger.own_pods(uid), self.reader.specs
        reads_no_log = specs.status(body).finished or specs.parse(body).reports_failures
        pods = own if reads_no_log else self._with_logs(uid, meta.namespace, own)
        return self.reader.jobs.job(body, pods, self._feedback(uid, meta.generation))

    def take_unread(self, is_observed: Callable[[str], bool]) -> Generator[str]:
        changed, has_read = self._dirty_jobs.peek(), self.reader.specs.has_read
        uids = self.jobs() if changed is None else sorted(self.jobs() & changed)
        found = {
            uid: None
            for uid in uids
            if (body := self._stores.jobs.get(uid)) is not None and not (is_observed(uid) and has_read(body))
        }
        if len(found) <= FEW_JOBS:
            return
        self._dirty_jobs.take()  # what is not read here stays marked
        self._dirty_jobs.mark(*(key for key in (uids if changed is None else changed) if key not in found))
        try:
            while found:
                body = self._stores.jobs.get(uid := next(iter(found)))
                if body is not None and self._is_mine(body):
                    yield uid
                del found[uid]
        finally:
            self._dirty_jobs.mark(*found)

    def _is_mine(self, body: objects.CustomObject) -> bool:
        return self.reader.settings.watches(body.metadata.namespace)

    def shape(self, job: Job) -> JobShape:
        return self.reader.shapes.shape_of(job)

    def assumed(self, uid: str) -> tuple[Member, ...]:
        return tuple(assumed.member for assumed in self._ledger.assumed.of_job(uid))

    def flavor_in_use(self, pods: Sequence[OwnPod]) -> str | None:
        """The flavor of the GPUs that these pods hold, by the labels of their nodes; None if they hold none."""
        found = ((pod.node, self._stores.nodes.named(pod.node)) for pod in pods if pod.node is not None)
        labels = {name: node.metadata.labels for name, node in found if node is not None}
        return flavor_in_use(pods, labels, self.settings.flavors)

    # -- whether others may lose pods for a job ------------------------------------------------------------------------

    def preemption_bar(self, job: Job) -> PreemptionBar | None:
        if (bar := self._answers.preemption_bar(job)) is not None:
            return bar
        return None if self._quarantine.may_preempt(job.uid, job.generation) else PreemptionBar.INTERNAL_ERROR

    # -- all else ------------------------------------------------------------------------------------------------------

    def nodes(self, members: AbstractSet[str], to_delete: Sequence[OwnPod]) -> tuple[Node, ...]:
        return self.reader.nodes.all_with_use(members, to_delete)

    def foreign_pods(self) -> tuple[ForeignPod, ...]:
        return self.reader.foreign_pods.refresh(self.now)

    def quarantine(self, uid: str, error: Exception, *, stage: FaultStage = FaultStage.READING) -> bool:
        body = self._stores.jobs.get(uid)
        if body is None:
            log.error("planning a job failed, and the job has been deleted since uid=%s", uid, exc_info=error)
            return False
        meta = body.metadata
        name = f"{meta.namespace}/{meta.name}"
        self._quarantine.quarantine("job", uid, name, error, version=meta.generation, stage=stage)
        return True

    def note_unknown_demand(self, job: Job, error: Exception) -> None:
        log.debug("the pods of a quarantined job count as used by others job=%s", job.key, exc_info=error)

    def quarantine_pod(self, pod: ForeignPod, error: Exception) -> None:
        name = f"{pod.demand.namespace}/{pod.demand.name}"
        self._quarantine.quarantine("pod", pod.uid, name, error, stage=FaultStage.ALLOCATION)
