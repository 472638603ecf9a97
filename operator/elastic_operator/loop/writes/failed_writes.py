"""Failed tries to carry out plans, per job: when the next try is due, and the message for the user meanwhile
(controller-runtime: the rate limiter of a workqueue).

The record is in memory only: a new leader learns of the error by one failed try.
"""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import dataclass, field, replace

from elastic_api.refusal import pod_blocked, pod_refusal
from elastic_api.status import JobStatus, RetryCause
from elastic_operator.attempts import NEVER_FAILED, Attempts
from elastic_operator.cluster.errors import ClusterError, NameTaken, PodRefused, RetryPolicy
from elastic_operator.memory import DirtyJobs, drop_absent
from elastic_operator.plan.facts.job import Job, JobFeedback
from elastic_operator.plan.facts.text import joined

FIRST_WRITE_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 30.0
EVENT_ATTEMPTS = 5
"""After this many failed writes in a row, a job's status shows an error that may pass (`RetryPolicy.RETRY`), and the
job gets an event about an error of its own objects. The status shows any other error at once (187).
"""
MAX_NAME_TAKEN_SECONDS = 2.0
"""The longest wait for a taken name. It is short: mostly the object with that name is being deleted, and a user waits.
"""


@dataclass(slots=True)
class FailedWrite:
    """The failures of one job.

    `attempts` are the tries that failed in a row (monotonic). Until `throttled_until` (monotonic) the API server has
    asked for patience. `only_creations`: the last try failed because the API server refuses the job's pods. `feedback`
    has the failures in words. Its `write_error` is "" while the error may pass soon (187), its `pods_rejected` once the
    job's status counts the refusal (27), and its `pods_rejected_until_edit` holds for `generation` only.
    """

    attempts: Attempts = NEVER_FAILED
    throttled_until: float = 0.0
    only_creations: bool = False
    feedback: JobFeedback = field(default_factory=JobFeedback)
    generation: int = 0

    def wait(self, now: float) -> float:
        """Seconds until the job may be tried again."""
        return max(0.0, self.attempts.until - now)

    def wait_without_creations(self, now: float) -> float:
        """Seconds until a plan that creates no pods may be tried: others may need the pods that it deletes."""
        return max(0.0, self.throttled_until - now) if self.only_creations else self.wait(now)


_NONE = FailedWrite()


class FailedWrites:
    """The failed writes of all jobs. A job is marked in `dirty_jobs` when its record changes."""

    def __init__(self, dirty_jobs: DirtyJobs) -> None:
        self._dirty_jobs = dirty_jobs
        self._jobs: dict[str, FailedWrite] = {}

    def forget_deleted(self, present: Set[str]) -> None:
        drop_absent(present, self._jobs)

    def backing_off(self, now: float) -> Set[str]:
        """The jobs (uids) whose next try is not due at `now` (monotonic)."""
        return {uid for uid, record in self._jobs.items() if record.wait(now) > 0}

    def clear(self, job: Job) -> None:
        """Forget failed tries after a success. A final refusal stays until the job is edited."""
        record = self._jobs.pop(job.uid, None)
        if record is None:
            return
        self._dirty_jobs.mark(job.uid)
        if (final := record.feedback.pods_rejected_until_edit) and record.generation == job.generation:
            rest = JobFeedback(pods_rejected_until_edit=final)
            self._jobs[job.uid] = FailedWrite(feedback=rest, generation=record.generation)

    def note_status_written(self, job: Job, status: JobStatus) -> None:
        """Forget the refusal that a written status counts in its failed size (27), so that it counts only once.

        `job` is the job that the status was made for; a refusal that came later stays.
        """
        record, failed = self._jobs.get(job.uid), status.failed_size
        if record is None or failed is None or failed.cause is not RetryCause.FAILED_CREATE:
            return
        refusal = job.feedback.pods_rejected
        if refusal and refusal == record.feedback.pods_rejected and failed != job.status.failed_size:
            record.feedback = replace(record.feedback, pods_rejected="")
            self._dirty_jobs.mark(job.uid)

    def feedback(self, uid: str, generation: int) -> JobFeedback:
        """The job's failed writes in words for users, for this generation of its spec."""
        record = self.failed_write(uid)
        if record.generation == generation:
            return record.feedback
        return replace(record.feedback, pods_rejected_until_edit="")

    def failed_write(self, uid: str) -> FailedWrite:
        """The job's failed writes; an empty record if there are none."""
        return self._jobs.get(uid, _NONE)

    def add(self, job: Job, error: ClusterError, now: float) -> FailedWrite:
        """Record a failed try; returns the job's record."""
        record = self._jobs.setdefault(job.uid, FailedWrite())
        if error.retry_policy is RetryPolicy.DECIDE_AGAIN:
            return record  # another client wrote the job; its new state is in the store already
        self._dirty_jobs.mark(job.uid)
        if error.retry_after is not None:
            record.throttled_until = now + error.retry_after
        record.only_creations = isinstance(error, PodRefused)
        longest = MAX_RETRY_SECONDS if not isinstance(error, NameTaken) else MAX_NAME_TAKEN_SECONDS
        record.attempts = record.attempts.failed(
            now,
            FIRST_WRITE_RETRY_SECONDS,
            longest,
            at_least=error.retry_after or 0.0,
            spread=random.uniform(0.8, 1.2),
        )
        is_lasting = not error.retry_policy.is_transient or record.attempts.times >= EVENT_ATTEMPTS
        if error.retry_policy.is_reported and is_lasting:
            record.feedback = replace(record.feedback, write_error=in_words(error))
        if isinstance(error, PodRefused):
            _take_refusal(record, job, error)
        return record


def in_words(error: ClusterError) -> str:
    """The failed write in words for the user: whole sentences."""
    if isinstance(error, NameTaken):
        return str(error)
    return joined(f"A write for this job failed: {error}", "The operator retries.")


def _take_refusal(record: FailedWrite, job: Job, refusal: PodRefused) -> None:
    assert job.spec is not None, "pods are created from a spec that could be read"
    if refusal.retry_policy is RetryPolicy.WAIT_FOR_EDIT:
        why = pod_refusal(
            job.spec, role=refusal.role, message=refusal.error.message, own_variables=refusal.own_variables
        )
        record.feedback = replace(record.feedback, pods_rejected_until_edit=why)
        record.generation = job.generation
    else:
        why = pod_blocked(refusal.error.message)
        record.feedback = replace(record.feedback, write_error=why, pods_rejected=why)
